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
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/driver"
)

type sweepCmd struct {
	Prefix         string  `arg:"" optional:""`
	ReleasedBefore *string `placeholder:"DURATION"`
	RestartTokens  bool
	DryRun         bool
	readerFlags
}

// Run deletes the records of ended sessions, or locks that have not been used for a
// long time.
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
	retainer, ok := v.store.(driver.TokenRetainer)
	if !f.DryRun && !f.RestartTokens && (!ok || !retainer.KeepsTokens()) {
		return usage("--released-before also deletes the tokens of the locks in this store: they begin at 1 again, " +
			"and a fence that remembers a higher one refuses them; write --restart-tokens to accept that")
	}
	return f.locks(c, v, long)
}

func (f *sweepCmd) sessions(c *console, v *storeClient) error {
	c.show("watching the sessions in the store, for a minute if one has ended")
	begun := time.Now()
	n, err := admin.Sweep(v.ctx, v.client)
	took := time.Since(begun)
	c.clear()
	r := swept{Result: "swept", Swept: n, Took: seconds(took)}
	switch {
	case err != nil:
		r.Result = "incomplete"
		c.result(r, "deleted %s of ended sessions before that, in %v", counted(n, "record"), round(took))
	case n == 0:
		c.result(r, "nothing to delete: no session in the store has ended")
	default:
		c.result(r, "deleted %s of ended sessions, in %v", counted(n, "record"), round(took))
	}
	return readFailed(v.ctx, err)
}

// check finds what is wrong with the command line before a store is touched.
func (f *sweepCmd) check() (long time.Duration, err error) {
	long, ok := parseAgo(valueOf(f.ReleasedBefore))
	switch given := f.ReleasedBefore != nil; {
	case !given && f.Prefix != "":
		return 0, usage("unexpected argument %.20q: a PREFIX goes with --released-before", f.Prefix)
	case !given && (f.RestartTokens || f.DryRun):
		return 0, usage("--restart-tokens and --dry-run go with --released-before")
	case given && !ok:
		return 0, usage("--released-before %.40q is not a duration: write a number with its unit, such as 30d or 12h",
			*f.ReleasedBefore)
	case given && long < time.Minute:
		return 0, usage("--released-before %v must be at least 1m", long)
	}
	return long, nil
}

func (f *sweepCmd) locks(c *console, v *storeClient, long time.Duration) error {
	begun := time.Now()
	n, err := admin.SweepReleased(v.ctx, v.client, f.Prefix, &admin.SweepOptions{
		ReleasedFor: long, RestartTokens: f.RestartTokens, DryRun: f.DryRun,
	})
	r := sweptLocks{"swept", n, seconds(time.Since(begun))}
	text := fmt.Sprintf("deleted %s that had been released for more than %s, and %s of history",
		counted(n.Locks, "lock"), *f.ReleasedBefore, counted(n.History, "record"))
	switch {
	case err != nil:
		r.Result = "incomplete"
		text += ", before that"
	case f.DryRun:
		r.Result = "dry_run"
		text = fmt.Sprintf("would delete %s that have been released for more than %s, and their history",
			counted(n.Locks, "lock"), *f.ReleasedBefore)
	}
	separator := "; left alone: "
	if n.WithData > 0 {
		text += fmt.Sprintf("%s%d with data", separator, n.WithData)
		separator = ", "
	}
	if n.Taken > 0 {
		text += fmt.Sprintf("%s%d that were acquired meanwhile", separator, n.Taken)
	}
	c.result(r, "%s", text)
	return readFailed(v.ctx, err)
}

type sweptLocks struct {
	Result string `json:"result"`
	admin.SweptLocks
	Took *float64 `json:"took_seconds"`
}

type swept struct {
	Result string   `json:"result"`
	Swept  int      `json:"swept"`
	Took   *float64 `json:"took_seconds"`
}

type reapCmd struct {
	Prefixes  []string       `arg:"" optional:"" name:"prefix"`
	Name      []string       `sep:"none" placeholder:"NAME"`
	ListEvery *time.Duration `must:"be positive"`
	Once      bool
	Reason    string
	byFlag
	readerFlags
}

// reaped is a lock that was freed, or a session that was closed, as an object of --json.
type reaped struct {
	Time   string `json:"time"`
	Result string `json:"result"` // reaped, or closed
	admin.Reaped
}

// Run frees the locks of dead holders until a signal comes, or once.
func (f *reapCmd) Run(c *console, rest operands) error {
	f.Prefixes = append(f.Prefixes, rest.words...)
	if len(f.Prefixes)+len(f.Name) == 0 {
		return usage("no locks named: give a PREFIX of their names, or --name NAME; '' is all locks")
	}
	options := tenure.Options{Owner: f.operator()}
	o := admin.ReapOptions{
		Prefixes: f.Prefixes, Names: f.Name, ListEvery: valueOf(f.ListEvery), Once: f.Once, Reason: f.Reason,
	}
	err := refused(options, func(ctx context.Context, client *tenure.Client) error { return admin.Reap(ctx, client, o) })
	if err != nil {
		return err
	}
	v, err := f.client(c, &options, nil)
	if err != nil {
		return err
	}
	defer v.close()
	trouble, freed := &outages{console: c}, 0
	o.OnReaped = func(r admin.Reaped) {
		trouble.tell(nil)
		freed++
		c.tellReaped(r)
	}
	o.OnError = func(err error) {
		if errors.Is(err, tenure.ErrUnreadable) {
			c.warn("%s", flags.OneLine(err))
			return
		}
		trouble.tell(err)
	}
	if f.Once {
		c.show("watching for dead holders: for a lease, if a lock is held")
	}
	err = admin.Reap(v.ctx, v.client, o)
	c.clear()
	if err == nil && f.Once {
		err = v.ctx.Err()
	}
	if err == nil && f.Once && freed == 0 {
		c.say("none of the watched holders is dead")
	}
	return readFailed(v.ctx, err)
}

func (c *console) tellReaped(r admin.Reaped) {
	line := reaped{instant(time.Now()), "reaped", r}
	if r.Name != "" {
		c.result(line, "freed %q: %s has shown no sign of life for its lease", r.Name, holderText(r.Owner, r.Token))
		return
	}
	line.Result = "closed"
	c.result(line, "closed session %s of %q, and freed all locks under it: it has shown no sign of life for its lease",
		r.Session, r.Owner)
}

// tokensCmd is tenure tokens: what an operator does about tokens.
type tokensCmd struct {
	Raise raiseTokensCmd `cmd:""`
}

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
	var how admin.RaiseOptions
	by, options, err := f.check(&how)
	if err != nil {
		return err
	}
	v, err := f.client(c, &options, nil)
	if err != nil {
		return err
	}
	defer v.close()
	begun, last := time.Now(), time.Time{}
	how.OnProgress = func(p admin.RaiseProgress) {
		if time.Since(last) < time.Second {
			return
		}
		last = time.Now()
		if p.Remaining > 0 {
			c.show("%s: checking for %v more that nothing changes; stop all programs that still use the store",
				counted(p.Locks, "lock"), round(p.Remaining))
			return
		}
		c.show("raising tokens: %d of %s done", p.Done.Locks, counted(p.Locks, "lock"))
	}
	n, err := admin.RaiseTokens(v.ctx, v.client, f.Prefix, by, &how)
	took := time.Since(begun)
	c.clear()
	return f.tell(v, c, n, took, err)
}

// check finds what is wrong with the command line before a store is touched.
func (f *raiseTokensCmd) check(how *admin.RaiseOptions) (by uint64, options tenure.Options, err error) {
	if f.By == nil {
		return 0, options, usage("no --by given: write --by N, more than the number of tokens that any lock was " +
			"given since the backup, such as --by 1000000")
	}
	by, err = strconv.ParseUint(*f.By, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && by > driver.MaxToken:
		return 0, options, usage("--by %.40s is too high: the highest token is %d", *f.By, uint64(driver.MaxToken))
	case err != nil:
		return 0, options, usage("--by %.40q is not a whole number of 1 or more", *f.By)
	case by == 0:
		return 0, options, usage("--by 0 raises nothing: write more than the number of tokens that any lock was " +
			"given since the backup, such as --by 1000000")
	case strings.HasPrefix(f.Prefix, driver.OwnPrefix):
		return 0, options, usage("no lock has a name that begins with %q: such names are for records of Tenure itself",
			driver.OwnPrefix)
	}
	if options, err = (&timingFlags{Lease: f.Lease}).Options(f.Store); err != nil {
		return 0, options, err
	}
	options.Owner = operatorName()
	if err := check(options); err != nil {
		return 0, options, err
	}
	if f.Reason != nil {
		how.Reason = *f.Reason
		err = refused(options, func(ctx context.Context, client *tenure.Client) error {
			return client.StepDown(ctx, "x", &tenure.StepDownOptions{Reason: how.Reason})
		})
	}
	if err == nil && !f.Yes {
		err = usage("use this only after restoring a backup, or after a failover that lost writes, " +
			"when all programs that use the store are stopped: " +
			"it frees their locks and closes their sessions; write --yes to say that they are")
	}
	return by, options, err
}

func (f *raiseTokensCmd) tell(v *storeClient, c *console, n admin.RaisedTokens, took time.Duration, err error) error {
	r := raisedTokens{"raised", n, seconds(took)}
	left := ""
	if n.Foreign > 0 {
		left = fmt.Sprintf("; left alone: %s of other clients, to which Tenure has never given a token",
			counted(n.Foreign, "lock"))
	}
	text := fmt.Sprintf("raised the tokens of %s by %s, and closed %s, in %v%s",
		counted(n.Locks, "lock"), *f.By, counted(n.Sessions, "session"), round(took), left)
	switch {
	case err == nil && n.Locks == 0 && n.Sessions == 0:
		c.say("nothing to raise: no lock matches%s", left)
	case err == nil:
		c.say("%s; you can start the programs again", text)
	case n != (admin.RaisedTokens{}):
		c.say("%s, before that; repeat it when the cause is fixed: raising a token twice does no harm", text)
	}
	switch {
	case errors.Is(err, tenure.ErrAlive):
		r.Result, err = "alive", failed(statusHeld, err)
	case errors.Is(err, tenure.ErrTokenLimit):
		r.Result, err = "incomplete", usage("%w", err)
	case err != nil:
		r.Result, err = "incomplete", readFailed(v.ctx, err)
	}
	if c.json {
		c.object(r)
	}
	return err
}

type raisedTokens struct {
	Result string `json:"result"`
	admin.RaisedTokens
	Took *float64 `json:"took_seconds"`
}
