// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tenurelock/tenure"
)

// sweepCmd is tenure sweep.
type sweepCmd struct {
	storeFlags
	JSON  bool `name:"json"`
	Quiet bool `short:"q"`
}

// Run clears what ended sessions have left in the store.
func (f *sweepCmd) Run(c *console, rest operands) error {
	c.set(outputFlags{JSON: f.JSON, Quiet: f.Quiet})
	if rest.given {
		return usage(`this command runs nothing: leave out "--" and what follows`)
	}
	at, err := f.location(c, os.Getenv)
	if err != nil {
		return err
	}
	if err := mustExist(at); err != nil {
		return err
	}
	store, err := at.Open()
	if err != nil {
		return storeFailed(err)
	}
	defer func() { _ = store.Close() }() // every write was confirmed, or told of
	client, err := tenure.New(store, nil)
	if err != nil {
		return err // the defaults are sound
	}
	ctx, stop := catchSignals().cancel(context.Background())
	defer stop()
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }() // it holds nothing
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
	if sig := (signaled{}); err != nil && errors.As(context.Cause(ctx), &sig) {
		return ended(sig.ExitCode())
	}
	if err != nil {
		return storeFailed(err)
	}
	return nil
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
	if err := writeJSON(c.stdout, r); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}
