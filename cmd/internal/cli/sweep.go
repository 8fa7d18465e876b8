// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
)

// sweepCmd is tenure sweep.
type sweepCmd struct {
	Prefix         string  `arg:"" optional:""`
	ReleasedBefore *string `placeholder:"DURATION"`
	RestartTokens  bool
	DryRun         bool
	readerFlags
}

// Run clears what ended sessions have left in the store, or locks that nobody has
// used for long.
func (f *sweepCmd) Run(c *console) error {
	long, err := f.check()
	if err != nil {
		return err
	}
	v, err := f.client(c, nil, nil)
	if err != nil {
		return err
	}
	defer v.close()
	if f.ReleasedBefore == nil {
		return f.sessions(c, v)
	}
	keeper, ok := v.store.(driver.TokenKeeper)
	if !f.DryRun && !f.RestartTokens && (!ok || !keeper.KeepsTokens()) {
		return usage("--released-before deletes the tokens of locks with them in this store: they begin at 1 again, " +
			"and a fence that remembers a higher one refuses them; write --restart-tokens to accept that")
	}
	return f.locks(c, v, long)
}

// sessions clears what ended sessions have left.
func (f *sweepCmd) sessions(c *console, v *storeClient) error {
	c.show("watching the sessions in the store: if one has ended, for a minute")
	begun := time.Now()
	n, err := v.client.Sweep(v.ctx)
	took := time.Since(begun)
	c.clear()
	r := swept{Result: "swept", Swept: n, Took: seconds(took)}
	text := fmt.Sprintf("cleared %s, in %v", counted(n, "record")+" of ended sessions", round(took))
	switch {
	case err != nil:
		r.Result = "incomplete"
		text = fmt.Sprintf("cleared %s until then, in %v", counted(n, "record")+" of ended sessions", round(took))
	case n == 0:
		text = "nothing to clear: no session in the store has ended"
	}
	c.result(r, "%s", text)
	return v.ended(err)
}

// check finds what is wrong with the command line before a store is touched.
func (f *sweepCmd) check() (long time.Duration, err error) {
	if f.ReleasedBefore == nil {
		switch {
		case f.Prefix != "":
			return 0, usage("unexpected argument %.20q: a PREFIX goes with --released-before", f.Prefix)
		case f.RestartTokens || f.DryRun:
			return 0, usage("--restart-tokens and --dry-run go with --released-before")
		}
		return 0, nil
	}
	long, ok := parseAgo(*f.ReleasedBefore)
	if !ok {
		return 0, usage("--released-before %.40q is no duration: write a number with its unit, such as 30d or 12h",
			*f.ReleasedBefore)
	}
	if long < time.Minute {
		return 0, usage("--released-before %v must be at least 1m", long)
	}
	return long, nil
}

// locks deletes the locks that were released long ago.
func (f *sweepCmd) locks(c *console, v *storeClient, long time.Duration) error {
	begun := time.Now()
	n, err := v.client.SweepReleased(v.ctx, f.Prefix, &tenure.SweepOptions{
		ReleasedFor: long, RestartTokens: f.RestartTokens, DryRun: f.DryRun,
	})
	r := sweptLocks{
		Result: "swept", Locks: n.Locks, History: n.History, WithData: n.WithData, Taken: n.Taken,
		Took: seconds(time.Since(begun)),
	}
	text := fmt.Sprintf("deleted %s that had been released for more than %s, and %s of history",
		counted(n.Locks, "lock"), *f.ReleasedBefore, counted(n.History, "record"))
	switch {
	case err != nil:
		r.Result = "incomplete"
		text += ", until then"
	case f.DryRun:
		r.Result = "dry_run"
		text = fmt.Sprintf("would delete %s that have been released for more than %s, and their history",
			counted(n.Locks, "lock"), *f.ReleasedBefore)
	}
	var left []string
	if n.WithData > 0 {
		left = append(left, fmt.Sprintf("%d with data", n.WithData))
	}
	if n.Taken > 0 {
		left = append(left, fmt.Sprintf("%d that somebody took meanwhile", n.Taken))
	}
	if len(left) > 0 {
		text += "; left alone: " + strings.Join(left, ", ")
	}
	c.result(r, "%s", text)
	return v.ended(err)
}

// sweptLocks is what came of --released-before, as an object of --json.
type sweptLocks struct {
	Result   string   `json:"result"`
	Locks    int      `json:"locks"`
	History  int      `json:"history"`
	WithData int      `json:"with_data"`
	Taken    int      `json:"taken"`
	Took     *float64 `json:"took_seconds"`
}

// swept is what came of it, as an object of --json.
type swept struct {
	Result string   `json:"result"`
	Swept  int      `json:"swept"`
	Took   *float64 `json:"took_seconds"`
}
