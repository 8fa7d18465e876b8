// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package remote takes locks for holders that have no store of their own, and reach this
// process over a network. Such a holder makes each of its beats, and counts the lease by its
// own clock; this package carries out what it says. It keeps nothing that matters: a holder
// may send each call to another process, and send a call again that had no answer.
//
// A holder has the lock from its first confirmed [Client.Heartbeat] on, and not before: a
// grant is no lease. It may act until the instant before which it first sent the last
// confirmed heartbeat, plus [Renewal.Usable], by a clock that counts suspends. A lease that
// has expired stays expired, whatever is answered later.
//
// Each call is one conditional write where the process knows the record already, or a read
// before it. See docs/reference/service.md.
package remote

import (
	"cmp"
	"context"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/text"
)

// Client carries out what remote holders say. All methods may be called concurrently.
type Client struct {
	engine *engine.Client
	owner  string
}

// New returns what carries out the calls of remote holders by a client.
func New(client *tenure.Client) *Client {
	return &Client{client.Engine(), client.Options().Owner}
}

// Options describe one holder.
type Options struct {
	// Owner, Host and Label are as in [tenure.Options], each for this holder. Owner is needed.
	Owner, Host, Label string
	// Data is as in [tenure.AcquireOptions].
	Data []byte
	// Waiting is called for each holder that the acquire waits for, with an error that
	// tells who it is, by the goroutine of the caller. It may be nil.
	Waiting func(*tenure.HeldError)
}

// Grant is a lock that was granted.
type Grant struct {
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

// Acquire takes the lock, waiting until it is free, or ctx ends. Those who wait in one process
// come in their order, but for one whom the lock is handed over to. A grant that nobody can
// be told of is given back by [Client.Discard].
//
// The errors are those of [tenure.Client.Acquire].
func (c *Client) Acquire(ctx context.Context, name string, options Options) (Grant, error) {
	return c.acquire(ctx, "acquire", name, options, false)
}

// TryAcquire is [Client.Acquire] without waiting for another holder: then the error is a
// [*tenure.HeldError].
func (c *Client) TryAcquire(ctx context.Context, name string, options Options) (Grant, error) {
	return c.acquire(ctx, "try acquire", name, options, true)
}

func (c *Client) acquire(ctx context.Context, op, name string, o Options, try bool) (Grant, error) {
	t := c.engine.Timing()
	patience := t.Lease
	if try {
		patience = 3 * t.RequestTimeout
	}
	if err := o.validate(ctx, name); err != nil {
		return Grant{}, wrap(op, name, err)
	}
	var waiting func(error)
	if o.Waiting != nil {
		waiting = func(held error) { o.Waiting(held.(*tenure.HeldError)) } //nolint:errorlint // package tenure made it
	}
	rec, err := c.engine.RemoteAcquire(ctx, protocol.Want{
		Key: name, Owner: o.Owner, Host: o.Host, Label: o.Label, Data: o.Data, Try: try, Patience: patience,
	}, waiting)
	if err != nil {
		return Grant{}, wrap(op, name, err)
	}
	return Grant{
		Token: rec.Token, Beat: rec.Beat, Data: rec.Data, Lease: t.Lease, Heartbeat: t.Heartbeat, FreeAfter: t.FreeAfter(),
	}, nil
}

func (o *Options) validate(ctx context.Context, name string) error {
	err := checkName(name)
	if err == nil && o.Owner == "" {
		err = text.Invalid("owner is empty: name the holder, for those who look who it is")
	}
	err = cmp.Or(err, checkText("owner", o.Owner), checkText("host", o.Host), checkText("label", o.Label), checkData(o.Data))
	if err == nil && ctx.Err() != nil {
		err = engine.Done(ctx)
	}
	if o.Data != nil {
		o.Data = append([]byte{}, o.Data...)
	}
	return err
}

// Discard releases a lock at once that was granted, if its holder cannot be told of it and
// has shown no life through this process. It does not wait for the store.
func (c *Client) Discard(name string, g Grant) { c.engine.RemoteDiscard(name, g.Token) }

// Beat is one heartbeat.
type Beat struct {
	Name  string
	Token uint64
	// After is the beat that was confirmed last, at first that of the grant.
	After string
	// Next is a new one. The holder makes it: After up to and with its dash, and 13 letters
	// or digits, made at random. The same call again has the same Next.
	Next string
}

// Renewal is a heartbeat that was confirmed.
type Renewal struct {
	// Usable is for how long the holder may act, counted from before it first sent this
	// heartbeat. It has the drift of clocks and the grace taken off.
	Usable time.Duration
	// Heartbeat is the period in which to renew.
	Heartbeat time.Duration
	// Asked is what the holder was asked: to step down, or to hand over. It is nil if there
	// is nothing. The holder stops its work then, and releases the lock. It is told with
	// each heartbeat until it does.
	Asked *driver.Request
}

// Heartbeat renews a lease. The error matches [tenure.ErrLost] if the tenure is over: the
// holder must stop at once. It matches [tenure.ErrUncertain] if the store has given no
// answer: the holder makes the same call again, and counts from before its first. It matches
// [tenure.ErrInvalid] if an argument breaks a rule.
func (c *Client) Heartbeat(ctx context.Context, b Beat) (Renewal, error) {
	const op = "heartbeat"
	err := checkBeat(b.Name, b.Token, b.After)
	if err == nil && !protocol.FollowsBeat(b.After, b.Next) {
		err = text.Invalid("next beat %.80q does not follow %.80q: it must begin as that does, up to the dash, "+
			"and end with 13 new letters or digits", b.Next, b.After)
	}
	if err != nil {
		return Renewal{}, wrap(op, b.Name, err)
	}
	rec, err := c.engine.RemoteWrite(ctx, protocol.Dispatch{Key: b.Name, Token: b.Token, After: b.After, Next: b.Next})
	if err != nil {
		return Renewal{}, wrap(op, b.Name, err)
	}
	t := c.engine.Timing()
	return Renewal{
		Usable: max(0, t.UsableOf(rec)), Heartbeat: min(t.Heartbeat, rec.Lease/5), Asked: protocol.AskedOf(rec),
	}, nil
}

// Release is the end of a tenure, as its holder says it.
type Release struct {
	Name  string
	Token uint64
	// After is the beat that was confirmed last. If a heartbeat had no answer, the record
	// may have its Next: then one of the two releases the lock, and the other has no effect.
	After string
	// Data are as in [tenure.ReleaseOptions], and so is Failed, which is empty if the work
	// has not failed.
	Data   []byte
	Failed string
	// Delete has the record and the history deleted that the release leaves, if that can be
	// done. The tokens of the lock begin at 1 again, unless the store keeps them: see
	// [driver.TokenKeeper]. So it is for a lock that tries something out, whose token no
	// fence sees: after it, two tenures have one token, and a fence lets the writes of both
	// pass. A lock that somebody takes meanwhile is left alone. A release that is sent again
	// finds no lock, and gets an error that matches [tenure.ErrLost].
	Delete bool
}

// Release ends a tenure, as its work has ended. What the holder was asked is done with it:
// the lock is free, or reserved for whom it is handed over to. The same call again has no
// effect, and returns nil as well. The errors are those of [Client.Heartbeat].
func (c *Client) Release(ctx context.Context, o Release) error {
	const op = "release"
	if err := cmp.Or(checkBeat(o.Name, o.Token, o.After), checkData(o.Data)); err != nil {
		return wrap(op, o.Name, err)
	}
	d := protocol.Dispatch{Key: o.Name, Token: o.Token, After: o.After, Data: o.Data}
	if o.Failed != "" {
		d.Failed = &driver.Request{By: c.owner, Reason: text.Failure(o.Failed), At: time.Now()}
	}
	rec, err := c.engine.RemoteWrite(ctx, d)
	if err != nil {
		return wrap(op, o.Name, err)
	}
	if o.Delete && rec.State == driver.Released {
		c.delete(ctx, rec)
	}
	c.engine.Released(o.Name)
	return nil
}

// delete deletes a released lock and the latest of its history. It is released, whatever is
// left of it.
func (c *Client) delete(ctx context.Context, rec driver.Record) {
	const latest = 25
	var keys []string
	for token := rec.Token - min(rec.Token, latest) + 1; token <= rec.Token; token++ {
		keys = append(keys, protocol.HistoryKey(rec.Key, token))
	}
	found, err := c.engine.ReadAll(ctx, keys, nil)
	if err != nil {
		return
	}
	var past []driver.Record
	for _, f := range found {
		if f.Err == nil && f.Record.State == driver.Past {
			past = append(past, f.Record)
		}
	}
	_, _ = c.engine.DeleteReleased(ctx, rec, past)
}

// Request is what somebody asks of the holder of a lock, remote or not, through this process.
type Request struct {
	Name string
	Kind tenure.RequestKind
	// By names the asker, for the holder and the history: printable, of at most
	// [driver.MaxOwnerLen] bytes. If empty, it is the owner name of the client.
	By     string
	Reason string
	// To or ToLabel say to whom to hand over; both are empty in requests of another kind.
	To, ToLabel string
}

// askOps are the operations that errors name.
var askOps = map[tenure.RequestKind]string{
	tenure.RequestStepDown: "step down", tenure.RequestHandOver: "transfer",
	tenure.RequestReleaseDead: "release", tenure.RequestRevoke: "revoke",
}

// Ask does what [tenure.Client.StepDown], admin.ReleaseDead or admin.Revoke does, by the
// kind, in the name of By. The error matches [tenure.ErrInvalid] if the request breaks a rule.
func (c *Client) Ask(ctx context.Context, q Request) error {
	op, known := askOps[q.Kind]
	err := q.validate()
	if !known {
		op, err = "ask", text.Invalid("kind %.40q of a request is not known", q.Kind)
	}
	if err == nil && ctx.Err() != nil {
		err = engine.Done(ctx)
	}
	if err == nil {
		err = c.engine.Ask(ctx, q.Name, driver.Request{
			Kind: driver.RequestKind(q.Kind), By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel,
		})
	}
	return wrap(op, q.Name, err)
}

func (q *Request) validate() error {
	handOver := q.Kind == tenure.RequestHandOver
	switch {
	case !handOver && (q.To != "" || q.ToLabel != ""):
		return text.Invalid("a request to %s has no To and no ToLabel: they are for a hand-over", askOps[q.Kind])
	case handOver && (q.To == "") == (q.ToLabel == ""):
		return text.Invalid("a hand-over is to an owner or to a label: set one of To and ToLabel")
	}
	return cmp.Or(
		checkText("owner to hand over to", q.To), checkText("label to hand over to", q.ToLabel), checkText("name of the asker", q.By),
		text.CheckKey("lock name", q.Name, driver.MaxNameLen), text.CheckReason(q.Reason),
	)
}

// maxBeatLen is how long a beat is at most, in bytes: as long as a version.
const maxBeatLen = 64

func checkBeat(name string, token uint64, after string) error {
	err := checkName(name)
	switch {
	case err != nil:
		return err
	case token == 0:
		return text.Invalid("token is 0: give the token of the grant")
	case after == "":
		return text.Invalid("the beat before is empty: give that of the grant, or of the heartbeat that was confirmed last")
	}
	return text.CheckForm("the beat before", after, maxBeatLen)
}

func checkName(name string) error { return text.CheckName("lock name", name, driver.MaxNameLen) }

func checkText(what, s string) error { return text.Check(what, s, driver.MaxOwnerLen) }

func checkData(data []byte) error {
	if len(data) > driver.MaxDataLen {
		return text.Invalid("data has %d bytes: at most %d are allowed", len(data), driver.MaxDataLen)
	}
	return nil
}

func wrap(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return &tenure.Error{Op: op, Key: key, Err: err}
}
