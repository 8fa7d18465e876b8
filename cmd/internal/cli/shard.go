// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/shard"
)

// shardCmd is tenure shard.
type shardCmd struct {
	Group string `arg:""`
	readerFlags
	Partitions bool          `short:"p"`
	Watch      bool          `short:"w"`
	Refresh    time.Duration `default:"1s"`
	Resize     *int
}

// Run shows who has which partitions of a group, or sets how many there are.
func (f *shardCmd) Run(c *console) error {
	if err := f.check(); err != nil {
		return err
	}
	at, err := f.location(c, os.Getenv)
	if err != nil {
		return err
	}
	empty, err := f.missing(at)
	if err != nil {
		return err
	}
	if empty && f.Resize != nil {
		return f.nobody()
	}
	if empty && !f.Watch {
		return f.print(c, groupView{Status: shard.Status{Group: f.Group}})
	}
	v, err := clientAt(at, nil, nil)
	if err != nil {
		return err
	}
	defer v.close()
	ctx, client := v.ctx, v.client
	look := func() (groupView, error) { return lookAtGroup(ctx, client, f.Group) }
	switch {
	case f.Resize != nil:
		return f.resize(ctx, c, client)
	case f.Watch:
		return f.watch(ctx, c, look)
	}
	seen, err := look()
	if err != nil {
		return lookFailed(ctx, err)
	}
	return f.print(c, seen)
}

// check finds what is wrong with the command line before a store is touched.
func (f *shardCmd) check() error {
	switch {
	case f.Resize != nil && (f.Watch || f.Partitions):
		return usage("--resize shows nothing: leave out --watch and --partitions")
	case f.Resize != nil && (*f.Resize < 1 || *f.Resize > shard.MaxPartitions):
		return usage("--resize %d must be from 1 to %d", *f.Resize, shard.MaxPartitions)
	}
	if err := checkPeriod("--refresh", f.Refresh); err != nil {
		return err
	}
	if err := check(tenure.Options{}, f.Group); err != nil {
		return err
	}
	return checkGroup(f.Group)
}

// resize sets the number of partitions. A group that nobody has run is not made
// by that: its name is more likely to be mistyped.
func (f *shardCmd) resize(ctx context.Context, c *console, client *tenure.Client) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	st, err := shard.Read(ctx, client, f.Group)
	if errors.Is(err, tenure.ErrNotHeld) {
		return f.nobody()
	}
	if err != nil {
		return lookFailed(ctx, err)
	}
	if !numbered(st.Partitions) {
		return usage("the partitions of %q have names of their own, such as %q: its program changes them, not --resize",
			f.Group, st.Partitions[0].ID)
	}
	g, err := shard.New(client, f.Group, &shard.Options{Partitions: *f.Resize})
	if err != nil {
		return usage("%w", err)
	}
	if err := g.Resize(ctx, *f.Resize); err != nil {
		return lookFailed(ctx, err)
	}
	r := resized{Group: f.Group, Result: "resized", Partitions: *f.Resize, Before: len(st.Partitions)}
	if r.Partitions == r.Before {
		r.Result = "unchanged"
		return c.result(r, "%q has %s already", f.Group, partitionCount(r.Partitions))
	}
	then := "its workers take that over with their next plan"
	if len(st.Members) == 0 {
		then = "it has no workers"
	}
	return c.result(r, "%q has %s from now on, and had %d; %s", f.Group, partitionCount(r.Partitions), r.Before, then)
}

// resized is what came of --resize, as an object of --json.
type resized struct {
	Group      string `json:"group"`
	Result     string `json:"result"`
	Partitions int    `json:"partitions"`
	Before     int    `json:"partitions_before"`
}

func (f *shardCmd) nobody() error {
	return usage("no worker has been in a group %q: a group is made by its workers, with their number of partitions",
		f.Group)
}

// numbered says that the partitions have the names "0", "1" and so on.
func numbered(list []shard.PartitionStatus) bool {
	for i, p := range list {
		if p.ID != strconv.Itoa(i) {
			return false
		}
	}
	return true
}

// checkGroup returns an error if the name cannot be that of a group.
func checkGroup(name string) error {
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		return err // the defaults are sound
	}
	defer func() { _ = client.Close(context.Background()) }() // it holds nothing
	if _, err := shard.New(client, name, &shard.Options{Partitions: 1}); err != nil {
		return usage("%w", err)
	}
	return nil
}
