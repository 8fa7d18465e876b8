// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/printable"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/memstore"
)

// doctorCmd is tenure doctor.
type doctorCmd struct {
	storeFlags
	timingFlags
	JSON  bool `name:"json"`
	Quiet bool `short:"q"`
}

// statusBad is the exit status of an examination that found something bad.
const statusBad = 1

// Run examines the store and the machine.
func (f *doctorCmd) Run(c *console, rest operands) error {
	c.set(outputFlags{JSON: f.JSON, Quiet: f.Quiet})
	if rest.given {
		return usage(`this command runs nothing: leave out "--" and what follows`)
	}
	options, err := f.Options()
	if err != nil {
		return err
	}
	if err := check(options); err != nil {
		return err
	}
	whole, err := withDefaults(options)
	if err != nil {
		return err
	}
	at, err := f.location(c, os.Getenv)
	if err != nil {
		return err
	}
	if err := mustExist(at); err != nil {
		return err
	}
	ctx, stop := catchSignals().cancel(context.Background())
	defer stop()
	var failed error
	count := map[doctor.Level]int{}
	bad, err := doctor.Examine(ctx, doctor.Patient{
		File: at.File(), Engine: engineOf(at), Open: at.Open, Options: whole,
		Tell: func(finding doctor.Finding) {
			count[finding.Level]++
			if f.Quiet && finding.Level == doctor.OK {
				return
			}
			failed = errors.Join(failed, f.tell(c, finding))
		},
	})
	sig := signaled{}
	if !f.JSON && failed == nil && context.Cause(ctx) == nil && (!f.Quiet || len(count) > 1 || count[doctor.OK] == 0) {
		_, failed = fmt.Fprintf(c.stdout, "%d bad, %s\n", count[doctor.Bad], counted(count[doctor.Warn], "warning"))
	}
	switch {
	case errors.As(context.Cause(ctx), &sig):
		return sig
	case failed != nil:
		return fmt.Errorf("standard output: %w", failed)
	case err != nil:
		return ended(statusStore) // it was told
	case bad:
		return ended(statusBad)
	}
	return nil
}

// engineOf returns what the doctor examines beside the store, nil if there is
// nothing.
func engineOf(at storeurl.Location) doctor.Engine {
	if url, ok := at.DynamoDB(); ok {
		return doctor.DynamoDB{Table: url.Table, Options: url.Options, Connect: at.Connect}
	}
	if url, ok := at.Etcd(); ok {
		return doctor.Etcd{Options: url.Options, Config: url.Config}
	}
	if url, ok := at.ZooKeeper(); ok {
		return doctor.ZooKeeper{Hosts: url.Hosts, Options: url.Options}
	}
	if url, ok := at.Postgres(); ok {
		return doctor.Postgres{Options: url.Options, Pool: url.Pool}
	}
	if url, ok := at.Kubernetes(); ok {
		return doctor.Kubernetes{Options: url.Options, Config: url.Config}
	}
	return nil
}

// withDefaults returns the options as a client fills them in.
func withDefaults(o tenure.Options) (tenure.Options, error) {
	client, err := tenure.New(memstore.New(), &o)
	if err != nil {
		return o, usage("%w", err)
	}
	defer func() { _ = client.Close(context.Background()) }() // it holds nothing
	return client.Options(), nil
}

func (f *doctorCmd) tell(c *console, finding doctor.Finding) error {
	if f.JSON {
		return writeJSON(c.stdout, finding)
	}
	text := fmt.Sprintf("%-4s  %s: %s", finding.Level, finding.Check, finding.Finding)
	if finding.Advice != "" {
		text += "; " + finding.Advice
	}
	_, err := fmt.Fprintln(c.stdout, printable.Text(text))
	return err
}
