// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/printable"
	"github.com/tenurelock/tenure/driver"
)

// doctorCmd is tenure doctor.
type doctorCmd struct {
	storeFlags
	timingFlags
	bellFlags
	serverFlags
	JSON  bool `name:"json"`
	Quiet bool `short:"q"`
}

// statusBad is the exit status of an examination that found something bad.
const statusBad = 1

// Run examines the store and the machine, or a lock service.
func (f *doctorCmd) Run(c *console, rest operands) error {
	c.set(outputFlags{JSON: f.JSON, Quiet: f.Quiet})
	if rest.given {
		return usage(`this command runs nothing: leave out "--" and what follows`)
	}
	if f.Server != nil {
		if f.Store != nil || f.Given() || f.Bell != nil {
			return usage("--server excludes --store, --bell and the durations of a lease: the service has its own")
		}
		return f.examineServer(c)
	}
	if flag, ok := f.given(); ok {
		return usage("%s is for a lock service: name it with --server", flag)
	}
	options, err := f.Options(f.Store)
	if err != nil {
		return err
	}
	if err := check(options); err != nil {
		return err
	}
	whole, err := flags.WithDefaults(options)
	if err != nil {
		return err
	}
	plan, err := f.asked()
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
	r := report{c: c, json: f.JSON, quiet: f.Quiet}
	bad, err := doctor.Examine(ctx, doctor.Patient{
		Diagnose: at.Diagnose, Open: at.Open, Store: at.Shown, Options: whole, Tell: r.tell,
	})
	bad = r.examineBell(ctx, plan, at) || bad
	return r.end(ctx, bad, err)
}

// report tells findings, and counts them.
type report struct {
	c           *console
	json, quiet bool
	count       [3]int // ok, warn, bad
	failed      error  // of standard output
}

func (r *report) tell(finding driver.Finding) {
	switch finding.Level {
	case driver.LevelOK:
		r.count[0]++
		if r.quiet {
			return
		}
	case driver.LevelWarn:
		r.count[1]++
	case driver.LevelBad:
		r.count[2]++
	}
	r.failed = errors.Join(r.failed, r.write(finding))
}

func (r *report) write(finding driver.Finding) error {
	if r.json {
		return writeJSON(r.c.stdout, finding)
	}
	_, err := fmt.Fprintln(r.c.stdout, printable.Text(finding.String()))
	return err
}

// end writes the last line, and returns the exit status. Err is why the examination could
// not go on; it was told.
func (r *report) end(ctx context.Context, bad bool, err error) error {
	if !r.json && r.failed == nil && context.Cause(ctx) == nil && (!r.quiet || r.count[1]+r.count[2] > 0 || r.count[0] == 0) {
		_, r.failed = fmt.Fprintf(r.c.stdout, "%d bad, %s\n", r.count[2], counted(r.count[1], "warning"))
	}
	sig := signaled{}
	switch {
	case errors.As(context.Cause(ctx), &sig):
		return sig
	case r.failed != nil:
		return fmt.Errorf("standard output: %w", r.failed)
	case err != nil:
		return ended(statusStore)
	case bad:
		return ended(statusBad)
	}
	return nil
}
