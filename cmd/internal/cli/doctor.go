// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/printable"
	"github.com/tenurelock/tenure/driver"
)

// doctorCmd is tenure doctor.
type doctorCmd struct {
	readerFlags
	timingFlags
	bellFlags
	serverFlags
}

// statusBad is the exit status of an examination that found something bad.
const statusBad = 1

// Run examines the store and the machine, or a lock service.
func (f *doctorCmd) Run(c *console) error {
	switch {
	case f.Server != nil && (f.Store != nil || f.Given() || f.Bell != nil):
		return usage("--server excludes --store, --bell and the durations of a lease: the service has its own")
	case f.Server != nil:
		return f.examineServer(c)
	case f.TokenFile != nil:
		return usage("--token-file is for a lock service: name it with --server")
	case f.CAFile != nil:
		return usage("--ca-file is for a lock service: name it with --server")
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
	at, err := f.location(c)
	if err != nil {
		return err
	}
	if err := mustExist(at); err != nil {
		return err
	}
	ctx, stop := catchSignals().cancel(context.Background())
	defer stop()
	r := report{c: c}
	bad, err := doctor.Examine(ctx, doctor.Patient{
		Diagnose: at.Diagnose, Open: at.Open, Store: at.Shown, Options: whole, Tell: r.tell,
	})
	bad = r.examineBell(ctx, plan, at) || bad
	return r.end(ctx, bad, err)
}

// report tells findings, and counts them.
type report struct {
	c     *console
	count [3]int // ok, warn, bad
}

func (r *report) tell(finding driver.Finding) {
	switch finding.Level {
	case driver.LevelOK:
		r.count[0]++
		if r.c.quiet {
			return
		}
	case driver.LevelWarn:
		r.count[1]++
	case driver.LevelBad:
		r.count[2]++
	}
	if r.c.json {
		r.c.object(finding)
		return
	}
	r.c.put(printable.Text(finding.String()) + "\n")
}

// end writes the last line, and returns the exit status. Err is why the examination could
// not go on; it was told.
func (r *report) end(ctx context.Context, bad bool, err error) error {
	if !r.c.json && context.Cause(ctx) == nil && (!r.c.quiet || r.count[1]+r.count[2] > 0 || r.count[0] == 0) {
		r.c.put(fmt.Sprintf("%d bad, %s\n", r.count[2], counted(r.count[1], "warning")))
	}
	sig := signaled{}
	switch {
	case errors.As(context.Cause(ctx), &sig):
		return sig
	case err != nil:
		return ended(statusStore)
	case bad:
		return ended(statusBad)
	}
	return nil
}
