// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
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
	Refresh    time.Duration `default:"1s" must:"be a period"`
	Resize     *int
}

// Run shows who has which partitions of a group, or sets how many there are.
func (f *shardCmd) Run(c *console) error {
	if err := f.check(); err != nil {
		return err
	}
	at, err := f.location(c)
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
		c.result(r, "%q has %s already", f.Group, counted(r.Partitions, "partition"))
		return nil
	}
	then := "its workers take that over with their next plan"
	if len(st.Members) == 0 {
		then = "it has no workers"
	}
	c.result(r, "%q has %s from now on, and had %d; %s", f.Group, counted(r.Partitions, "partition"), r.Before, then)
	return nil
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

// print writes the group once.
func (f *shardCmd) print(c *console, v groupView) error {
	switch {
	case c.json:
		c.object(v.object(f.Partitions))
	case len(v.Partitions) == 0:
		c.say("no worker has been in %q yet", f.Group)
	default:
		c.put(v.text(style{}, f.Partitions))
	}
	for _, p := range v.Partitions {
		if p.Error != "" {
			return storeFailed(errors.New(p.Error))
		}
	}
	return nil
}

// watch looks at the group again and again.
func (f *shardCmd) watch(ctx context.Context, c *console, look func() (groupView, error)) error {
	return watch(ctx, c, watched[groupView]{
		command: "tenure shard", refresh: f.Refresh, look: look,
		text:  func(v groupView, st style) string { return v.text(st, f.Partitions) },
		items: func(v groupView) []item { return v.items(c.json, f.Partitions) },
	})
}

// items are the group as it is watched: one object, or lines for it and for each partition.
func (v *groupView) items(object, partitions bool) []item {
	if object {
		o := v.object(partitions)
		return []item{{state: fmt.Sprintf("%+v", o), object: func(seen time.Time) any {
			o.Time = instant(seen)
			return o
		}}}
	}
	text := v.heading() + "; " + v.summary()
	if len(v.Partitions) == 0 {
		text = fmt.Sprintf("%s: no worker has been there yet", v.Group)
	}
	all := []item{{state: text, text: text}}
	if !partitions {
		return all
	}
	for _, p := range v.Partitions {
		text := fmt.Sprintf("%s/%s: ", v.Group, p.ID)
		if to, moving := v.movesTo(p); p.Owner == "" {
			text += "nobody has it: " + v.reason(p)
		} else if text += fmt.Sprintf("%s has it under token %d", p.Owner, p.Token); moving {
			text += ", " + to + " is to have it"
		}
		all = append(all, item{key: p.ID, state: text, text: text})
	}
	return all
}

// groupJSON is a group as an object of --json.
type groupJSON struct {
	Time        string `json:"time,omitempty"` // with --watch: when it was seen
	Group       string `json:"group"`
	Epoch       uint64 `json:"epoch"`
	Coordinator string `json:"coordinator,omitempty"`

	Workers    int `json:"workers"` // that are there
	Partitions int `json:"partitions"`
	Owned      int `json:"owned"`
	Moving     int `json:"moving"`
	Unowned    int `json:"unowned"`
	Unassigned int `json:"unassigned"`

	Imbalance float64      `json:"imbalance"`
	Members   []memberJSON `json:"members"`
	Moves     []move       `json:"moves"`
	Reasons   []unowned    `json:"unowned_reasons"`

	Assignment []partitionJSON `json:"assignment,omitempty"` // with --partitions
}

type memberJSON struct {
	Place   int     `json:"place"`
	Owner   string  `json:"owner"`
	Session string  `json:"session"`
	State   string  `json:"state"`
	Host    string  `json:"host,omitempty"`
	Label   string  `json:"label,omitempty"`
	Zone    string  `json:"zone,omitempty"`
	Weight  float64 `json:"weight"`
	Max     int     `json:"max,omitempty"`
	Planned int     `json:"planned"`
	Held    int     `json:"held"`
	Share   float64 `json:"share"`
}

type partitionJSON struct {
	ID         string `json:"id"`
	Owner      string `json:"owner,omitempty"`
	Planned    string `json:"planned_owner,omitempty"`
	Token      uint64 `json:"token"`
	Since      string `json:"since,omitempty"`
	Reserved   string `json:"reserved_for,omitempty"`
	Checkpoint int    `json:"checkpoint_bytes"`
	Reason     string `json:"reason,omitempty"` // why nobody has it
}

func (v *groupView) object(partitions bool) groupJSON {
	o := groupJSON{
		Group: v.Group, Epoch: v.Epoch, Coordinator: v.Coordinator,
		Workers: v.Workers, Partitions: len(v.Partitions),
		Owned: v.Owned, Moving: v.Moving, Unowned: v.Unowned, Unassigned: v.Unassigned, Imbalance: v.Imbalance,
		Members: []memberJSON{}, Moves: append([]move{}, v.moves...), Reasons: append([]unowned{}, v.unowned...),
	}
	for _, w := range v.Members {
		o.Members = append(o.Members, memberJSON{
			Place: w.Place, Owner: w.Owner, Session: w.Session, State: w.State, Host: w.Host, Label: w.Label,
			Zone: w.Zone, Weight: w.Weight, Max: w.Max, Planned: w.Planned, Held: w.Owned, Share: w.Share,
		})
	}
	if !partitions {
		return o
	}
	for _, p := range v.Partitions {
		w, _ := v.at(p.Planned)
		one := partitionJSON{
			ID: p.ID, Owner: p.Owner, Planned: w.Owner, Token: p.Token, Since: instant(p.Since),
			Reserved: p.ReservedFor, Checkpoint: p.CheckpointBytes,
		}
		if p.Owner == "" {
			one.Reason = v.reason(p)
		}
		o.Assignment = append(o.Assignment, one)
	}
	return o
}
