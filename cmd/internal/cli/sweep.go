// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
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
	storeFlags
	JSON  bool `name:"json"`
	Quiet bool `short:"q"`
}

// Run clears what ended sessions have left in the store, or locks that nobody has
// used for long.
func (f *sweepCmd) Run(c *console, rest operands) error {
	c.set(outputFlags{JSON: f.JSON, Quiet: f.Quiet})
	if rest.given {
		return usage(`this command runs nothing: leave out "--" and what follows`)
	}
	long, err := f.check()
	if err != nil {
		return err
	}
	v, err := f.visit(c, nil, nil)
	if err != nil {
		return err
	}
	defer v.close()
	ctx, client := v.ctx, v.client
	if f.ReleasedBefore != nil {
		keeper, ok := v.store.(driver.TokenKeeper)
		if !f.DryRun && !f.RestartTokens && (!ok || !keeper.KeepsTokens()) {
			return usage("--released-before deletes the tokens of locks with them in this store: they begin at 1 again, and a fence that remembers a higher one refuses them; write --restart-tokens to accept that")
		}
		return f.locks(ctx, c, client, long)
	}
	c.show("watching the sessions in the store: if one has ended, for a minute")
	begun := time.Now()
	n, err := client.Sweep(ctx)
	took := time.Since(begun)
	c.clear()
	r := swept{Result: "swept", Swept: n, Took: seconds(took)}
	if err != nil {
		r.Result = "incomplete"
	}
	if err := f.tell(c, r, took); err != nil {
		return err
	}
	if err != nil {
		return lookFailed(ctx, err)
	}
	return nil
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
		return 0, usage("--released-before %.40q is no duration: write a number with its unit, such as 30d or 12h", *f.ReleasedBefore)
	}
	if long < time.Minute {
		return 0, usage("--released-before %v must be at least 1m", long)
	}
	return long, nil
}

// locks deletes the locks that were released long ago.
func (f *sweepCmd) locks(ctx context.Context, c *console, client *tenure.Client, long time.Duration) error {
	begun := time.Now()
	n, err := client.SweepReleased(ctx, f.Prefix, &tenure.SweepOptions{ReleasedFor: long, RestartTokens: f.RestartTokens, DryRun: f.DryRun})
	r := sweptLocks{Result: "swept", Locks: n.Locks, History: n.History, WithData: n.WithData, Taken: n.Taken, Took: seconds(time.Since(begun))}
	text := fmt.Sprintf("deleted %s that had been released for more than %s, and %s of history", counted(n.Locks, "lock"), *f.ReleasedBefore, counted(n.History, "record"))
	switch {
	case err != nil:
		r.Result = "incomplete"
		text += ", until then"
	case f.DryRun:
		r.Result = "dry_run"
		text = fmt.Sprintf("would delete %s that have been released for more than %s, and their history", counted(n.Locks, "lock"), *f.ReleasedBefore)
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
	if c.say("%s", text); f.JSON {
		if err := c.object(r); err != nil {
			return err
		}
	}
	if err != nil {
		return lookFailed(ctx, err)
	}
	return nil
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

func (f *sweepCmd) tell(c *console, r swept, took time.Duration) error {
	switch what := counted(r.Swept, "record") + " of ended sessions"; {
	case f.JSON:
	case r.Result == "incomplete":
		c.say("cleared %s until then, in %v", what, round(took))
		return nil
	case r.Swept == 0:
		c.say("nothing to clear: no session in the store has ended")
		return nil
	default:
		c.say("cleared %s, in %v", what, round(took))
		return nil
	}
	return c.object(r)
}
