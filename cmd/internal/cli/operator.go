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
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/once"
)

// operatorFlags are the flags of a command with which a person, or a script, asks
// a holder.
type operatorFlags struct {
	Reason *string
	byFlag
	readerFlags
}

// operator is such a command while it runs.
type operator struct {
	console *console
	lock    string
	to      successor
	reason  string
	*storeClient
}

// open makes everything ready, and finds what is wrong with the command line
// before a store is touched.
func (f *operatorFlags) open(c *console, lock string, to successor, notify notifyFlags) (*operator, error) {
	if f.Reason == nil || *f.Reason == "" {
		return nil, usage("no --reason given: write why; the history shows it")
	}
	// The caller is there for a moment, and wants to see what comes of it.
	options := tenure.Options{Owner: f.operator(), RefreshPeriod: 100 * time.Millisecond}
	o := &operator{console: c, lock: lock, to: to, reason: *f.Reason}
	if err := check(options, lock); err != nil {
		return nil, err
	}
	if err := refused(options, o.ask); err != nil {
		return nil, err
	}
	plan, err := notify.asked()
	if err != nil {
		return nil, err
	}
	o.storeClient, err = f.client(c, &options, plan)
	return o, err
}

func (o *operator) ask(ctx context.Context, client *tenure.Client) error {
	options := tenure.StepDownOptions{Reason: o.reason, To: o.to.owner, ToLabel: o.to.label}
	return client.StepDown(ctx, o.lock, &options)
}

// successor is the next holder: an owner, or any process with a label; any process if
// both are empty.
type successor struct{ owner, label string }

func (h successor) anybody() bool { return h == successor{} }

func (h successor) is(owner, label string) bool {
	if h.owner != "" {
		return owner == h.owner
	}
	return h.label != "" && label == h.label
}

func (h successor) text() string {
	if h.owner != "" {
		return fmt.Sprintf("%q", h.owner)
	}
	return fmt.Sprintf("label %q", h.label)
}

// mustExist returns an error if the store is a file that does not exist: a request
// does not create it.
func mustExist(at storeurl.Location) error {
	if at.File() == "" {
		return nil
	}
	if _, err := os.Stat(at.File()); !errors.Is(err, fs.ErrNotExist) {
		return nil // Open reports other errors
	}
	return storeFailed(fmt.Errorf("%s: there is no such file: it is created by the first tenure run, lead, once or every",
		at.Shown()))
}

// byFlag names who asks.
type byFlag struct {
	By *string `placeholder:"NAME" empty:"name the person or program that asks"`
}

func (f byFlag) operator() string { return cmp.Or(valueOf(f.By), operatorName()) }

func operatorName() string {
	name := "somebody"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

func (o *operator) status() (tenure.Status, error) {
	st, err := o.client.Status(o.ctx, o.lock)
	return st, o.failed(err)
}

// failed returns what to end with when the store has failed, or a signal came, nil if it has not.
func (o *operator) failed(err error) error {
	if errors.Is(err, tenure.ErrUnreadable) {
		return storeFailed(err)
	}
	return readFailed(o.ctx, err)
}

type party struct {
	Owner string `json:"owner"`
	Token uint64 `json:"token,omitempty"`
}

// result is what came of a command, as an object of --json.
type result struct {
	Lock   string   `json:"lock"`
	Result string   `json:"result"`
	Holder *party   `json:"holder,omitempty"` // the holder that was asked
	Next   *party   `json:"next,omitempty"`   // the present holder
	Took   *float64 `json:"took_seconds,omitempty"`
	After  *float64 `json:"next_after_seconds,omitempty"`
}

func (o *operator) done(r result, format string, args ...any) error {
	o.console.clear()
	r.Lock = o.lock
	o.console.result(r, format, args...)
	return nil
}

func holderOf(st tenure.Status) *party { return &party{Owner: st.Owner, Token: st.Token} }

// awaitLeader waits for a holder that will do, while the context lasts. A store that fails is
// asked again.
func awaitLeader(
	ctx context.Context, client *tenure.Client, lock string, will func(tenure.Leader) bool,
) (leader tenure.Leader, found bool) {
	for l, err := range client.Election(lock, nil).Observe(ctx) {
		if err == nil && will(l) {
			return l, true
		}
	}
	return leader, false
}

type releaseCmd struct {
	Name  string `arg:""`
	Force bool
	operatorFlags
}

// Run releases the lock of a dead holder, or takes it from a living one.
func (f *releaseCmd) Run(c *console) error {
	o, err := f.open(c, f.Name, successor{}, notifyFlags{})
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
	release := admin.ReleaseDead
	reserved := st.State == tenure.StateReserved // no holder is left, who could be watched or cut off
	switch {
	case reserved:
		o.console.show("watching %q, reserved for %s: it is free after %v if no process takes it",
			o.lock, reservedText(st), round(st.FreeIn))
	case st.Session != "": // a single lock of a session cannot be taken away
		o.console.show("watching the session under which %s holds %q: it is closed after %v without a sign of life",
			holder, o.lock, round(st.Lease))
	case f.Force:
		r.Result, release = "revoked", admin.Revoke
		o.console.show("%s cannot renew %q from now on; it may keep working until its lease has run out, so the lock is "+
			"free in %v, not earlier", holder, o.lock, round(st.Lease))
	default:
		o.console.show("watching %q, held by %s: it is released after %v without a sign of life; --force does not "+
			"wait for that", o.lock, holder, round(st.Lease))
	}
	if err := release(o.ctx, o.client, o.lock, o.reason); err != nil {
		return o.notDone(err, st)
	}
	took := time.Since(begun)
	r.Took = seconds(took)
	if now, err := o.status(); err == nil && now.Held {
		r.Next = holderOf(now)
		return o.done(r, "%s has lost %q; %s has it now, after %v",
			holder, o.lock, holderText(now.Owner, now.Token), round(took))
	}
	switch {
	case reserved:
		return o.done(r, "%q is free: it was reserved for %s, and no process has taken it", o.lock, reservedText(st))
	case r.Result == "revoked":
		return o.done(r, "%q is free: revoked from %s, whose lease has run out after %v", o.lock, holder, round(took))
	}
	return o.done(r, "%q is free: %s has shown no sign of life for %v", o.lock, holder, round(st.Lease))
}

type stepDownCmd struct {
	Name    string         `arg:""`
	To      *string        `placeholder:"OWNER" empty:"name the next owner of the lock, or leave it out"`
	ToLabel *string        `placeholder:"LABEL" empty:"name the label of the next owner of the lock, or leave it out"`
	Wait    *time.Duration `must:"be positive"`
	operatorFlags
	notifyFlags
}

// nextPatience is how long the successor is waited for, for telling of it.
const nextPatience = 2 * time.Second

// Run asks the holder to stop, and waits until it has.
func (s *stepDownCmd) Run(c *console) error {
	if s.To != nil && s.ToLabel != nil {
		return usage("--to and --to-label: name one of the two")
	}
	to := successor{valueOf(s.To), valueOf(s.ToLabel)}
	o, err := s.open(c, s.Name, to, s.notifyFlags)
	if err != nil {
		return err
	}
	defer o.close()
	st, err := o.status()
	holder := holderText(st.Owner, st.Token)
	switch {
	case err != nil:
		return err
	case !st.Held && !to.anybody():
		return o.awaitSuccessor(o.ctx, st, time.Now(), 0)
	case !st.Held:
		return o.notHeld(st)
	case to.is(st.Owner, st.Label):
		return o.done(result{Result: "already_held", Holder: holderOf(st)}, "%s has %q already", holder, o.lock)
	}
	what := "step down"
	if !to.anybody() {
		what = "hand over to " + to.text()
	}
	within := "when it next renews its lease"
	if heartbeat := o.heartbeat(st); heartbeat > 0 {
		within = fmt.Sprintf("within %v", round(heartbeat))
	}
	o.console.show("asking %s to %s; it sees the request %s, and then ends its work", holder, what, within)
	ctx := o.ctx
	if s.Wait != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, *s.Wait, errWaited)
		defer cancel()
	}
	begun := time.Now()
	err = o.ask(ctx, o.client)
	took := time.Since(begun)
	switch {
	case !to.anybody() && errors.Is(err, tenure.ErrNotHeld) && context.Cause(ctx) == nil:
		return o.awaitSuccessor(ctx, st, begun, 0) // it has gone by itself
	case err != nil:
		return o.notDone(err, st)
	case !to.anybody():
		return o.awaitSuccessor(ctx, st, begun, took)
	}
	r := result{Result: "stepped_down", Holder: holderOf(st), Took: seconds(took)}
	soon, cancel := context.WithTimeout(o.ctx, nextPatience)
	defer cancel()
	l, ok := awaitLeader(soon, o.client, o.lock, func(l tenure.Leader) bool { return l.Token > st.Token })
	if !ok {
		return o.done(r, "%s has stepped down, %v after the request; no other process has taken the lock yet", holder, round(took))
	}
	after := time.Since(begun)
	r.Next, r.After = &party{Owner: l.Owner, Token: l.Token}, seconds(after)
	return o.done(r, "%s has stepped down; %s has the lock now, %v after the request",
		holder, holderText(l.Owner, l.Token), round(after))
}

// successorPause is the pause between checks for the successor of a hand-over.
const successorPause = 100 * time.Millisecond

// awaitSuccessor waits until a target of the hand-over has the lock, which completes it; or
// another owner has it; or the time of the reservation has run out. The holder has stopped,
// and took is how long that took; 0 if it was not asked.
func (o *operator) awaitSuccessor(
	ctx context.Context, holder tenure.Status, begun time.Time, took time.Duration,
) error {
	r := result{Result: "not_handed_over", Holder: holderOf(holder)}
	stopped := holderText(holder.Owner, holder.Token)
	switch {
	case holder.Token == 0:
		r.Holder, stopped = nil, "it was never held"
	case took > 0:
		r.Took, stopped = seconds(took), stopped+" has stepped down"
	default:
		stopped += " no longer has it"
	}
	failed := func(format string, args ...any) error { // it is not silent with --quiet
		if o.console.json {
			_ = o.done(r, "")
			return ended(statusHeld)
		}
		return tempFail("%q: not handed over to %s: %s; %s", o.lock, o.to.text(), stopped, fmt.Sprintf(format, args...))
	}
	kept := time.Duration(0)
	for {
		st, err := o.client.Status(ctx, o.lock)
		after, next := time.Since(begun), ""
		if err == nil && st.Token > holder.Token {
			next = o.came(ctx, holder.Token, st)
		}
		switch sig := (signaled{}); {
		case errors.As(context.Cause(o.ctx), &sig):
			return sig
		case ctx.Err() != nil:
			return failed("the lock is reserved for %s, but %s within --wait", o.to.text(), o.to.nobodyCame())
		case err != nil && (permanent(err) || after > took+lookTimeout):
			return o.failed(err)
		case err != nil: // it is asked again
		case next != "":
			r.Result, r.Next, r.After = "handed_over", &party{Owner: next, Token: holder.Token + 1}, seconds(after)
			return o.done(r, "%s; %s has the lock now, %v after the request",
				stopped, holderText(next, holder.Token+1), round(after))
		case st.Token > holder.Token:
			r.Next, r.After = holderOf(st), seconds(after)
			return failed("%s came first", holderText(st.Owner, st.Token))
		case o.to.label != "" && st.State == tenure.StateReserved && reservedFor(st).anybody() && st.FreeIn > 0:
			return failed("the lock was not reserved, because its last holder is an older version without labels; "+
				"the first process that asks has it in %v", round(st.FreeIn))
		case o.to != reservedFor(st) && kept == 0:
			return failed("the lock is free, but not reserved for %s", o.to.text())
		case o.to != reservedFor(st) || st.FreeIn <= 0:
			return failed("the lock was reserved for %s for %v, but %s", o.to.text(), round(kept), o.to.nobodyCame())
		default:
			kept = max(kept, st.Lease)
		}
		_ = sleep(ctx, successorPause) // the end of ctx is seen above
	}
}

func reservedFor(st tenure.Status) successor { return successor{st.ReservedFor, st.ReservedForLabel} }

func reservedText(st tenure.Status) string {
	if to := reservedFor(st); !to.anybody() {
		return to.text()
	}
	return "nobody"
}

func (h successor) nobodyCame() string {
	if h.owner != "" {
		return "that owner did not take it"
	}
	return "no process with that label took it"
}

// came returns the next owner of the lock, even if it had the lock only for a moment, if
// that owner is a target of the hand-over; otherwise "".
func (o *operator) came(ctx context.Context, token uint64, st tenure.Status) string {
	if st.Token == token+1 {
		if o.to.is(st.Owner, st.Label) {
			return st.Owner
		}
		return ""
	}
	history, err := o.client.History(ctx, o.lock)
	i := slices.IndexFunc(history, func(t tenure.Term) bool { return t.Token == token+1 && o.to.is(t.Owner, t.Label) })
	if err != nil || i < 0 {
		return ""
	}
	return history[i].Owner
}

// heartbeat is how often the holder renews its lease, or its session's lease; 0 if the
// record does not show it.
func (o *operator) heartbeat(st tenure.Status) time.Duration {
	if st.Session == "" {
		return st.Heartbeat
	}
	s, err := o.client.SessionStatus(o.ctx, st.Session, nil)
	if err != nil {
		return 0 // the request shows the error
	}
	return s.Heartbeat
}

// notHeld ends a command that has no holder to ask. That is not a failure: the lock is
// already free.
func (o *operator) notHeld(st tenure.Status) error {
	r := result{Result: "not_held"}
	defer o.console.sayHeldUnder(o.ctx, o.client, o.lock)
	switch {
	case st.Token == 0:
		return o.done(r, "%q was never held", o.lock)
	case !reservedFor(st).anybody():
		if st.ReservedFor != "" {
			r.Next = &party{Owner: st.ReservedFor}
		}
		return o.done(r, "%q is not held: it is reserved for %s, and free in %v at the latest",
			o.lock, reservedFor(st).text(), round(st.FreeIn))
	}
	return o.done(r, "%q is not held: the last holder was %s", o.lock, holderText(st.Owner, st.Token))
}

// notDone ends a command that was not done.
func (o *operator) notDone(err error, st tenure.Status) error {
	var first *tenure.RequestedError
	holder := holderText(st.Owner, st.Token)
	switch sig := (signaled{}); {
	case errors.As(context.Cause(o.ctx), &sig):
		return sig
	case errors.Is(err, tenure.ErrNotHeld):
		return o.notHeld(st)
	case errors.As(err, &first):
		return tempFail("%q: %s was already asked, by %s at %s, %s: %s; it can be asked again when that is done",
			o.lock, holder, first.Request.By, clockText(first.Request.At), requestText(first.Request), first.Request.Reason)
	case errors.Is(err, tenure.ErrUnanswered) && errors.Is(err, errWaited):
		return tempFail("%q: %s was asked, but has not stopped yet; the request stays", o.lock, holder)
	case errors.Is(err, tenure.ErrUnanswered):
		return tempFail("%q: %s was asked, but shows no sign of life: a waiting process takes over; see tenure release",
			o.lock, holder)
	case errors.Is(err, tenure.ErrAlive) && st.Session != "":
		return tempFail("%q: %s holds it under a session that is alive, so this lock cannot be taken away on its own: "+
			"ask it with tenure step-down, or end its process", o.lock, holder)
	case errors.Is(err, tenure.ErrAlive):
		return tempFail("%q: %s is alive: ask it with tenure step-down, or take the lock away with --force", o.lock, holder)
	case errors.Is(err, tenure.ErrForeign):
		return tempFail("%q: %s is another lock client, which does not understand requests", o.lock, holder)
	case errors.Is(err, errWaited):
		return storeFailed(fmt.Errorf("%q: the store did not answer in time: %w", o.lock, err))
	}
	return storeFailed(err)
}

// wayText says what a holder is asked to do, depending on the next owner.
func wayText(to, label string) string {
	next := successor{to, label}
	if next.anybody() {
		return "step down"
	}
	return "hand over to " + next.text()
}

func requestText(q tenure.Request) string {
	switch q.Kind {
	case tenure.RequestHandOver:
		return "to " + wayText(q.To, q.ToLabel)
	case tenure.RequestStepDown:
		return "to step down"
	case tenure.RequestReleaseDead:
		return "released as dead"
	case tenure.RequestRevoke:
		return "revoked"
	case tenure.RequestRaise:
		return "raised its token"
	}
	return string(q.Kind)
}

// sayHeldUnder names the locks that tenure derives from a name, and that are held: who reads
// that the lock of the name is free may think that no process works under the name.
func (c *console) sayHeldUnder(ctx context.Context, client *tenure.Client, name string) {
	if c.quiet || c.json {
		return
	}
	rows, err := partsOf(ctx, client, name)
	if err != nil {
		rows = nil // this was not asked for
	}
	for _, lock := range []string{once.LockName(name), once.EveryLockName(name)} {
		if st, err := client.Status(ctx, lock); err == nil {
			rows = append(rows, rowOf(st))
		}
	}
	for _, r := range rows {
		if r.Held {
			c.say("but %q is held, by %s: it is another lock, so name it if you mean it", r.Name, holderText(r.Owner, r.Token))
		}
	}
}
