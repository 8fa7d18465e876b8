// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Remote takes locks for programs that have no store of their own, and reach this
// process over a network: it is what a lock service stands on. The program is the holder.
// It makes each of its beats, and counts the lease by its own clock; Remote carries out
// what it says. It keeps nothing that matters: a program may send each call to another
// process, and send a call again that had no answer.
//
// A program holds the lock from its first confirmed [Remote.Heartbeat] on, and not before:
// a grant is no lease. It may act until the instant before which it first sent the last
// confirmed heartbeat, plus [RemoteRenewal.Usable], by a clock that counts suspends. A
// lease that has expired stays expired, whatever is answered later.
//
// Each call is one conditional write where the process knows the record already, or a read
// before it. All methods may be called concurrently. See docs/reference/service.md.
type Remote struct{ c *Client }

// Remote returns the door for holders elsewhere.
func (c *Client) Remote() *Remote { return &Remote{c: c} }

// RemoteOptions describe one holder elsewhere.
type RemoteOptions struct {
	// Owner, Host and Label are as in [Options], each for this holder. Owner is needed.
	Owner, Host, Label string
	// Data is as in [AcquireOptions].
	Data []byte
	// Waiting is called for each holder that the acquire waits for, with an error that
	// tells who it is, by the goroutine of the caller. It may be nil.
	Waiting func(*HeldError)
}

// RemoteGrant is a lock that was granted to a holder elsewhere.
type RemoteGrant struct {
	// Token is the fencing token, and Beat the first beat: the After of the first
	// heartbeat. Tell it to nobody but the holder. Whoever knows it can renew and release.
	Token uint64
	Beat  string
	// Data are what the record holds: the holder's own, or those of the one before it.
	Data []byte
	// Lease is the lease duration, and Heartbeat the period in which to renew.
	Lease, Heartbeat time.Duration
	// FreeAfter is how long the grant waits for the first heartbeat: a third of the lease.
	// Then this process releases the lock.
	FreeAfter time.Duration
}

// Acquire takes the lock for a holder elsewhere, waiting until it is free, or ctx ends.
// Those who wait in one process come in their order, but for one whom the lock is handed
// over to. A grant that nobody can be told of is given back by [Remote.Discard].
//
// The errors are those of [Client.Acquire], and match [ErrInvalid] if an argument breaks a
// rule.
func (r *Remote) Acquire(ctx context.Context, name string, options RemoteOptions) (RemoteGrant, error) {
	return r.acquire(ctx, "acquire", name, options, false)
}

// TryAcquire is [Remote.Acquire] without waiting for another holder: then the error is a
// [*HeldError].
func (r *Remote) TryAcquire(ctx context.Context, name string, options RemoteOptions) (RemoteGrant, error) {
	return r.acquire(ctx, "try acquire", name, options, true)
}

// RemoteBeat is one heartbeat of a holder elsewhere.
type RemoteBeat struct {
	Name  string
	Token uint64
	// After is the beat that was confirmed last, at first that of the grant.
	After string
	// Next is a new one. The holder makes it: After up to and with its dash, and 13 letters
	// or digits, made at random. The same call again has the same Next.
	Next string
}

// RemoteRenewal is a heartbeat that was confirmed.
type RemoteRenewal struct {
	// Usable is for how long the holder may act, counted from before it first sent this
	// heartbeat. It has the drift of clocks and the grace taken off.
	Usable time.Duration
	// Heartbeat is the period in which to renew.
	Heartbeat time.Duration
	// Asked is what the holder was asked: to step down, or to hand over. It is nil if there
	// is nothing. The holder stops its work then, and releases the lock. It is told with
	// each heartbeat until it does.
	Asked *Request
}

// Heartbeat renews the lease of a holder elsewhere. The error matches [ErrLost] if the
// tenure is over: the holder must stop at once. It matches [ErrUncertain] if the store has
// given no answer: the holder makes the same call again, and counts from before its first.
// It matches [ErrInvalid] if an argument breaks a rule.
func (r *Remote) Heartbeat(ctx context.Context, b RemoteBeat) (RemoteRenewal, error) {
	const op = "heartbeat"
	err := r.checkBeat(b.Name, b.Token, b.After)
	if err == nil && !protocol.FollowsBeat(b.After, b.Next) {
		err = invalid("next beat %.80q does not follow %.80q: it must begin as that does, up to the dash, and end with 13 new letters or digits", b.Next, b.After)
	}
	if err != nil {
		return RemoteRenewal{}, wrap(op, b.Name, err)
	}
	rec, err := r.c.engine.RemoteWrite(ctx, protocol.Dispatch{Key: b.Name, Token: b.Token, After: b.After, Next: b.Next})
	if err != nil {
		return RemoteRenewal{}, wrap(op, b.Name, err)
	}
	t := r.c.timing
	return RemoteRenewal{
		Usable: max(0, t.UsableOf(rec)), Heartbeat: min(t.Heartbeat, rec.Lease/5), Asked: requestOf(protocol.AskedOf(rec)),
	}, nil
}

// RemoteRelease is the end of a tenure, as its holder says it.
type RemoteRelease struct {
	Name  string
	Token uint64
	// After is the beat that was confirmed last. If a heartbeat had no answer, the record
	// may have its Next: then one of the two releases the lock, and the other has no effect.
	After string
	// Data are as in [ReleaseOptions], and so is Failed, which is empty if the work has
	// not failed.
	Data   []byte
	Failed string
	// Delete has the record and the history deleted that the release leaves, if that can be
	// done. The tokens of the lock begin at 1 again, unless the store keeps them: see
	// [driver.TokenKeeper]. So it is for a lock that tries something out, whose token no
	// fence sees: after it, two tenures have one token, and a fence lets the writes of both
	// pass. A lock that somebody takes meanwhile is left alone. A release that is sent again
	// finds no lock, and gets an error that matches [ErrLost].
	Delete bool
}

// Release ends the tenure of a holder elsewhere, as its work has ended. What the holder
// was asked is done with it: the lock is free, or reserved for whom it is handed over to.
// The same call again has no effect, and returns nil as well. The errors are those of
// [Remote.Heartbeat].
func (r *Remote) Release(ctx context.Context, o RemoteRelease) error {
	const op = "release"
	err := r.checkBeat(o.Name, o.Token, o.After)
	if err == nil {
		err = checkData(o.Data)
	}
	if err != nil {
		return wrap(op, o.Name, err)
	}
	d := protocol.Dispatch{Key: o.Name, Token: o.Token, After: o.After, Data: o.Data}
	if o.Failed != "" {
		d.Failed = &driver.Request{By: r.c.options.Owner, Reason: textOf(o.Failed), At: time.Now()}
	}
	rec, err := r.c.engine.RemoteWrite(ctx, d)
	if err != nil {
		return wrap(op, o.Name, err)
	}
	if o.Delete && rec.State == driver.Released {
		r.delete(ctx, rec)
	}
	r.c.engine.Released(o.Name)
	return nil
}

// delete deletes a released lock and the latest of its history. It is released, whatever is
// left of it.
func (r *Remote) delete(ctx context.Context, rec driver.Record) {
	const latest = 25
	var keys []string
	for token := rec.Token - min(rec.Token, latest) + 1; token <= rec.Token; token++ {
		keys = append(keys, protocol.HistoryKey(rec.Key, token))
	}
	found, err := r.c.engine.ReadAll(ctx, keys, nil)
	if err != nil {
		return
	}
	var past []driver.Record
	for _, f := range found {
		if f.Err == nil && f.Record.State == driver.Past {
			past = append(past, f.Record)
		}
	}
	_, _ = r.c.engine.DeleteReleased(ctx, rec, past)
}

// Discard releases a lock at once that was granted, if its holder cannot be told of it and
// has shown no life through this process. It does not wait for the store.
func (r *Remote) Discard(name string, g RemoteGrant) {
	r.c.engine.RemoteDiscard(name, g.Token)
}

func (r *Remote) checkBeat(name string, token uint64, after string) error {
	err := checkName(name)
	switch {
	case err != nil:
		return err
	case token == 0:
		return invalid("token is 0: give the token of the grant")
	case after == "":
		return invalid("the beat before is empty: give that of the grant, or of the heartbeat that was confirmed last")
	}
	return checkForm("the beat before", after, maxBeatLen)
}

// maxBeatLen is how long a beat is at most, in bytes: as long as a version.
const maxBeatLen = 64

func (r *Remote) acquire(ctx context.Context, op, name string, o RemoteOptions, try bool) (RemoteGrant, error) {
	c := r.c
	patience := c.timing.Lease
	if try {
		patience = 3 * c.timing.RequestTimeout
	}
	if err := o.validate(ctx, name); err != nil {
		return RemoteGrant{}, wrap(op, name, err)
	}
	var waiting func(error)
	if o.Waiting != nil {
		waiting = func(held error) { o.Waiting(held.(*HeldError)) } //nolint:errorlint // heldError made it
	}
	rec, err := c.engine.RemoteAcquire(ctx, protocol.Want{
		Key: name, Owner: o.Owner, Host: o.Host, Label: o.Label, Data: o.Data, Try: try, Patience: patience,
	}, waiting)
	if err != nil {
		return RemoteGrant{}, wrap(op, name, err)
	}
	t := c.timing
	return RemoteGrant{
		Token: rec.Token, Beat: rec.Beat, Data: rec.Data, Lease: t.Lease, Heartbeat: t.Heartbeat, FreeAfter: t.FreeAfter(),
	}, nil
}

func (o *RemoteOptions) validate(ctx context.Context, name string) error {
	err := checkName(name)
	if err == nil && o.Owner == "" {
		err = invalid("owner is empty: name the holder, for those who look who it is")
	}
	for _, of := range []struct{ what, text string }{{"owner", o.Owner}, {"host", o.Host}, {"label", o.Label}} {
		if err == nil {
			err = checkText(of.what, of.text)
		}
	}
	if err == nil {
		err = checkData(o.Data)
	}
	if err == nil && ctx.Err() != nil {
		err = engine.Done(ctx)
	}
	if o.Data != nil {
		o.Data = append([]byte{}, o.Data...)
	}
	return err
}

// RemoteRequest is what somebody asks of a holder through this process.
type RemoteRequest struct {
	Name string
	Kind RequestKind
	// By names the asker, for the holder and the history: printable, of at most
	// [driver.MaxOwnerLen] bytes. If empty, it is the owner name of this client.
	By     string
	Reason string
	// To or ToLabel say to whom to hand over; both are empty in requests of another kind.
	To, ToLabel string
}

// Ask does what [Client.StepDown], admin.ReleaseDead or admin.Revoke does, by the
// kind, in the name of By. The error matches [ErrInvalid] if the request breaks a rule.
func (r *Remote) Ask(ctx context.Context, q RemoteRequest) error {
	op, handOver := askOps[q.Kind], q.Kind == RequestHandOver
	var err error
	switch {
	case op == "":
		op, err = "ask", invalid("kind %.40q of a request is not known", q.Kind)
	case !handOver && (q.To != "" || q.ToLabel != ""):
		err = invalid("a request to %s has no To and no ToLabel: they are for a hand-over", op)
	case handOver && q.To != "" && q.ToLabel != "":
		err = invalid("a hand-over is to an owner or to a label: leave To or ToLabel empty")
	case handOver && q.ToLabel != "":
		err = checkHeirs(q.ToLabel)
	case handOver:
		err = checkHeir(q.To)
	}
	if err == nil {
		err = checkText("name of the asker", q.By)
	}
	if err != nil {
		return wrap(op, q.Name, err)
	}
	return r.c.ask(ctx, op, q.Name, driver.Request{Kind: driver.RequestKind(q.Kind), By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel})
}

// askOps are the operations that errors name.
var askOps = map[RequestKind]string{
	RequestStepDown: "step down", RequestHandOver: "transfer", RequestReleaseDead: "release", RequestRevoke: "revoke",
}
