// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
)

// tokensCmd is tenure tokens: what an operator does about tokens.
type tokensCmd struct {
	Raise raiseTokensCmd `cmd:""`
}

// raiseTokensCmd is tenure tokens raise.
type raiseTokensCmd struct {
	Prefix string  `arg:"" optional:""`
	By     *string `placeholder:"N"`
	Yes    bool
	Lease  *time.Duration
	Reason *string `empty:"say why, or leave the flag out"`
	readerFlags
}

// Run raises the tokens of all locks after a loss of the store.
func (f *raiseTokensCmd) Run(c *console) error {
	by, options, how, err := f.check()
	if err != nil {
		return err
	}
	v, err := f.client(c, &options, nil)
	if err != nil {
		return err
	}
	defer v.close()
	begun, last := time.Now(), time.Time{}
	how.OnProgress = func(p tenure.RaiseProgress) {
		if time.Since(last) < time.Second {
			return
		}
		last = time.Now()
		if p.Remaining > 0 {
			c.show("%s: watching that nothing changes for %v more; stop all programs that use the store, if any is left",
				counted(p.Locks, "lock"), round(p.Remaining))
			return
		}
		c.show("raising tokens: %d of %s done", p.Done.Locks, counted(p.Locks, "lock"))
	}
	n, err := v.client.RaiseTokens(v.ctx, f.Prefix, by, &how)
	took := time.Since(begun)
	c.clear()
	return f.tell(v, c, n, took, err)
}

// check finds what is wrong with the command line before a store is touched.
func (f *raiseTokensCmd) check() (by uint64, options tenure.Options, how tenure.RaiseOptions, err error) {
	if f.By == nil {
		return 0, options, how, usage("no --by given: write --by N, more than the number of tokens that any lock was " +
			"given since the backup, such as --by 1000000")
	}
	by, err = strconv.ParseUint(*f.By, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && by > driver.MaxToken:
		return 0, options, how, usage("--by %.40s is too high: the highest token is %d", *f.By, uint64(driver.MaxToken))
	case err != nil:
		return 0, options, how, usage("--by %.40q is no whole number of 1 or more", *f.By)
	case by == 0:
		return 0, options, how, usage("--by 0 raises nothing: write more than the number of tokens that any lock was " +
			"given since the backup, such as --by 1000000")
	case strings.HasPrefix(f.Prefix, driver.OwnPrefix):
		return 0, options, how, usage("no lock has a name that begins with %q: such names are for records of Tenure itself",
			driver.OwnPrefix)
	}
	if options, err = (&timingFlags{Lease: f.Lease}).Options(f.Store); err != nil {
		return 0, options, how, err
	}
	options.Owner = operatorName()
	if err := check(options); err != nil {
		return 0, options, how, err
	}
	if f.Reason != nil {
		how.Reason = *f.Reason
		err := refused(options, func(ctx context.Context, client *tenure.Client) error {
			return client.StepDown(ctx, "x", how.Reason)
		})
		if err != nil {
			return 0, options, how, err
		}
	}
	if !f.Yes {
		return 0, options, how, usage("this is for the time after a restored backup, or a failover with loss, " +
			"when all programs that use the store are stopped: " +
			"it frees their locks and closes their sessions; write --yes to say that they are")
	}
	return by, options, how, nil
}

// tell tells what was done.
func (f *raiseTokensCmd) tell(v *storeClient, c *console, n tenure.RaisedTokens, took time.Duration, err error) error {
	r := raisedTokens{
		Result: "raised", Locks: n.Locks, Sessions: n.Sessions, Unreadable: n.Unreadable,
		Foreign: n.Foreign, Took: seconds(took),
	}
	switch {
	case errors.Is(err, tenure.ErrAlive):
		r.Result = "alive"
	case err != nil:
		r.Result = "incomplete"
	}
	text := fmt.Sprintf("raised the tokens of %s by %s, and closed %s, in %v",
		counted(n.Locks, "lock"), *f.By, counted(n.Sessions, "session"), round(took))
	if n.Foreign > 0 {
		text += fmt.Sprintf("; left alone: %s of other clients, for which Tenure has never given a token",
			counted(n.Foreign, "lock"))
	}
	switch {
	case err == nil && n.Locks == 0 && n.Sessions == 0:
		c.say("nothing to raise: there is no such lock%s", text[strings.Index(text+";", ";"):])
	case err == nil:
		c.say("%s; the programs can be started", text)
	case n != (tenure.RaisedTokens{}):
		c.say("%s, until then; repeat it when the reason is gone: what is raised twice is only higher", text)
	}
	if c.json {
		c.object(r)
	}
	switch {
	case errors.Is(err, tenure.ErrAlive):
		return failed(statusHeld, err)
	case errors.Is(err, tenure.ErrTokenLimit):
		return usage("%w", err)
	}
	return v.ended(err)
}

// raisedTokens is what came of it, as an object of --json.
type raisedTokens struct {
	Result     string   `json:"result"`
	Locks      int      `json:"locks"`
	Sessions   int      `json:"sessions"`
	Unreadable int      `json:"unreadable"`
	Foreign    int      `json:"foreign"`
	Took       *float64 `json:"took_seconds"`
}
