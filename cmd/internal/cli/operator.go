// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
)

// operatorFlags are those of a command by which a person, or a script, asks
// something of a holder.
type operatorFlags struct {
	Reason *string
	byFlag
	readerFlags
}

// operator is one such command under way.
type operator struct {
	console *console
	lock    string
	to      heir
	reason  string
	*storeClient
}

// open makes everything ready, and finds what is wrong with the command line
// before a store is touched.
func (f *operatorFlags) open(c *console, lock string, to heir, rings bellFlags) (*operator, error) {
	if f.Reason == nil || *f.Reason == "" {
		return nil, usage("no --reason given: say why; the history shows it")
	}
	// The caller is there for a moment, and wants to see what comes of it.
	options := tenure.Options{Owner: f.operator(), RefreshPeriod: 100 * time.Millisecond}
	o := &operator{console: c, lock: lock, to: to, reason: *f.Reason}
	if err := o.check(options); err != nil {
		return nil, err
	}
	plan, err := rings.asked()
	if err != nil {
		return nil, err
	}
	o.storeClient, err = f.client(c, &options, plan)
	return o, err
}

// check finds what is wrong with the request before anybody is asked, and before
// it is said that somebody is.
func (o *operator) check(options tenure.Options) error {
	if err := check(options, o.lock); err != nil {
		return err
	}
	return refused(options, func(ctx context.Context, client *tenure.Client) error {
		return o.ask(ctx, client)
	})
}

// ask asks the holder to make way.
func (o *operator) ask(ctx context.Context, client *tenure.Client) error {
	switch {
	case o.to.owner != "":
		return client.Transfer(ctx, o.lock, o.to.owner, o.reason)
	case o.to.label != "":
		return client.TransferToLabel(ctx, o.lock, o.to.label, o.reason)
	}
	return client.StepDown(ctx, o.lock, o.reason)
}

// heir is who is to have the lock next: an owner, or whoever has a label; anybody if
// both are empty.
type heir struct{ owner, label string }

func (h heir) anybody() bool { return h == heir{} }

// is says whether a holder is the heir.
func (h heir) is(owner, label string) bool {
	if h.owner != "" {
		return owner == h.owner
	}
	return h.label != "" && label == h.label
}

// text names the heir in a sentence.
func (h heir) text() string {
	if h.owner != "" {
		return fmt.Sprintf("%q", h.owner)
	}
	return fmt.Sprintf("label %q", h.label)
}

// mustExist returns an error if the store is a file that there is not: to ask
// somebody does not create it.
func mustExist(at storeurl.Location) error {
	if at.File() == "" {
		return nil
	}
	if _, err := os.Stat(at.File()); !errors.Is(err, fs.ErrNotExist) {
		return nil // Open says what else is wrong
	}
	return storeFailed(fmt.Errorf("%s: there is no such file: it is created by the first tenure run, lead, once or every",
		at.Shown()))
}

// byFlag names who asks.
type byFlag struct {
	By *string `placeholder:"NAME" empty:"name the person or program that asks"`
}

func (f byFlag) operator() string { return cmp.Or(valueOf(f.By), operatorName()) }

// operatorName is the name of the caller, without --by.
func operatorName() string {
	name := "somebody"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}

// status looks at the lock.
func (o *operator) status() (tenure.Status, error) {
	st, err := o.client.Status(o.ctx, o.lock)
	if err != nil {
		return st, o.failed(err)
	}
	return st, nil
}

// failed returns what to end with when the store has failed, or a signal came.
func (o *operator) failed(err error) error {
	if errors.Is(err, tenure.ErrUnreadable) {
		return storeFailed(err)
	}
	return lookFailed(o.ctx, err)
}

// party is one of those that a result tells of.
type party struct {
	Owner string `json:"owner"`
	Token uint64 `json:"token,omitempty"`
}

// result is what came of a command, as an object of --json.
type result struct {
	Lock   string   `json:"lock"`
	Result string   `json:"result"`
	Holder *party   `json:"holder,omitempty"` // the one that was asked
	Next   *party   `json:"next,omitempty"`   // the present holder
	Took   *float64 `json:"took_seconds,omitempty"`
	After  *float64 `json:"next_after_seconds,omitempty"`
}

// done tells the result.
func (o *operator) done(r result, format string, args ...any) error {
	o.console.clear()
	r.Lock = o.lock
	o.console.result(r, format, args...)
	return nil
}

// incomplete tells a result that is not what was asked for: it is not silent with
// --quiet.
func (o *operator) incomplete(r result, text string) error {
	if !o.console.json {
		return failed(statusHeld, errors.New(text))
	}
	r.Lock = o.lock
	o.console.object(r)
	return ended(statusHeld)
}

func holderOf(st tenure.Status) *party { return &party{Owner: st.Owner, Token: st.Token} }

// next waits for a while for the holder after the one with the token.
func (o *operator) next(token uint64, patience time.Duration) (tenure.Leader, bool) {
	ctx, cancel := context.WithTimeout(o.ctx, patience)
	defer cancel()
	for l, err := range o.client.Election(o.lock, nil).Observe(ctx) {
		if err == nil && l.Token > token {
			return l, true
		}
	}
	return tenure.Leader{}, false
}

// releaseCmd is tenure release.
type releaseCmd struct {
	Name  string `arg:""`
	Force bool
	operatorFlags
}

// Run releases the lock of a dead holder, or takes it from a living one.
func (f *releaseCmd) Run(c *console) error {
	o, err := f.open(c, f.Name, heir{}, bellFlags{})
	if err != nil {
		return err
	}
	defer o.close()
	st, err := o.status()
	if err != nil {
		return err
	}
	holder := holderText(st.Owner, st.Token)
	if st.State != tenure.StateHeld && st.State != tenure.StateReserved {
		return o.notHeld(st)
	}
	begun := time.Now()
	r := result{Result: "released", Holder: holderOf(st)}
	force := f.Force && st.Session == "" // one under a session cannot be cut off alone
	switch {
	case st.Session != "":
		o.console.show("watching the session under which %s holds %q: it is closed when no sign of life has come for %v",
			holder, o.lock, round(st.Lease))
	case force:
		r.Result = "revoked"
		o.console.show("%s cannot renew %q from now on; it may be at work until its lease has run out, so the lock is "+
			"free in %v, and not before",
			holder, o.lock, round(st.Lease))
	default:
		o.console.show("watching %q, held by %s: it is released when no sign of life has come for %v; --force does not "+
			"wait for that",
			o.lock, holder, round(st.Lease))
	}
	if force {
		err = o.client.Revoke(o.ctx, o.lock, o.reason)
	} else {
		err = o.client.ReleaseDead(o.ctx, o.lock, o.reason)
	}
	if err != nil {
		return o.notDone(err, st)
	}
	took := time.Since(begun)
	r.Took = seconds(took)
	if now, err := o.status(); err == nil && now.Held {
		return o.taken(r, now, took)
	}
	if force {
		return o.done(r, "%q is free: revoked from %s, whose lease has run out after %v", o.lock, holder, round(took))
	}
	return o.done(r, "%q is free: %s has shown no sign of life for %v", o.lock, holder, round(st.Lease))
}

// taken tells that somebody has the lock already.
func (o *operator) taken(r result, now tenure.Status, took time.Duration) error {
	r.Next = holderOf(now)
	return o.done(r, "%s has lost %q; %s has it now, after %v", holderText(r.Holder.Owner, r.Holder.Token), o.lock,
		holderText(now.Owner, now.Token), round(took))
}
