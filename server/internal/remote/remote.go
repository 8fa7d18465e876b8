// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package remote takes locks for holders that have no store of their own, and reach this
// process over a network. Such a holder makes each of its beats, and counts the lease by its
// own clock; this package carries out what it says. It keeps nothing that matters: a holder
// may send each call to another process, and send a call again that had no answer.
//
// A holder has the lock from its first confirmed [Client.Heartbeat] on: a grant is no lease, unless
// [Client.Counts] lets the holder count it. It may act until the instant before which it first sent
// the last confirmed call, plus what that answers, by a clock that counts suspends. A lease that
// has expired stays expired, whatever is answered later.
//
// Each call is one conditional write where the process knows the record already, or a read
// before it. See docs/reference/service.md.
package remote

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/text"
	"github.com/tenurelock/tenure/server/internal/wire"
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

// Acquire takes the lock for the owner that q names. With wait it waits until the lock is free,
// or ctx ends, and waiting, which may be nil, is called for each holder that it waits for, by
// the goroutine of the caller; without, the error is a [*tenure.HeldError]. Waiters in one
// process are served in their order, apart from an owner that the lock is handed over to. A
// grant that cannot be sent to its holder is given back with [Client.Discard]. Send its beat
// only to the holder: anyone who knows it can renew and release.
//
// The record carries a bound on the error of the holder's clock, which this process does not
// know: 9 %, unless q says that the holder counts by the raw clock, then 1 %; this process's own
// bound if that is higher. Contenders wait, and heartbeats answer, by the record, through any
// replica of any version. So the two may differ in version:
//
//   - A client that knows no clock field sends none, and gets a grant for any clock.
//   - A server that knows no clock field refuses it, as any unknown field, and grants nothing. The
//     same call without the field gets a grant for any clock.
//
// The errors are those of [tenure.Client.Acquire].
func (c *Client) Acquire(
	ctx context.Context, q wire.AcquireRequest, wait bool, waiting func(*tenure.HeldError),
) (wire.Grant, error) {
	rec, err := c.acquire(ctx, q, wait, waiting)
	if err != nil {
		return wire.Grant{}, err
	}
	return c.grantOf(rec), nil
}

func (c *Client) acquire(
	ctx context.Context, q wire.AcquireRequest, wait bool, waiting func(*tenure.HeldError),
) (driver.Record, error) {
	t := c.engine.Timing()
	op, patience := "acquire", t.Lease
	if !wait {
		op, patience = "try acquire", 3*t.RequestTimeout
	}
	if err := check(ctx, q); err != nil {
		return driver.Record{}, wrap(op, q.Name, err)
	}
	var held func(error)
	if waiting != nil {
		held = func(err error) { waiting(err.(*tenure.HeldError)) } //nolint:errorlint // package tenure made it
	}
	rec, err := c.engine.RemoteAcquire(ctx, protocol.Want{
		Key: q.Name, Owner: q.Owner, Host: q.Host, Label: q.Label, Data: slices.Clone(q.Data), Try: !wait, Patience: patience,
		Drift: driftOf(q.Clock),
	}, q.History, held)
	return rec, wrap(op, q.Name, err)
}

func (c *Client) grantOf(rec driver.Record) wire.Grant {
	t := c.engine.Timing()
	return wire.Grant{
		Name: rec.Key, Token: rec.Token, Beat: rec.Beat, Data: rec.Data, LeaseMs: t.Lease.Milliseconds(),
		HeartbeatMs: t.HeartbeatOf(rec).Milliseconds(), FreeAfterMs: t.FreeAfter().Milliseconds(),
	}
}

func check(ctx context.Context, q wire.AcquireRequest) error {
	err := checkName(q.Name)
	if err == nil && q.Owner == "" {
		err = text.Invalid("owner is empty: name the holder; status shows it")
	}
	err = cmp.Or(err, checkText("owner", q.Owner), checkText("host", q.Host), checkText("label", q.Label),
		checkClock(q.Clock), checkData(q.Data))
	if err == nil && ctx.Err() != nil {
		err = engine.Done(ctx)
	}
	return err
}

// Began returns the beginning of a call that has just arrived, for [Client.Counts].
func (c *Client) Began() time.Duration { return c.engine.Clock() }

// Counts is called just before a grant is sent to its holder, for a call that began then. Unless the
// acquire has waited for a holder, or has taken so long that the answer comes too late by any clock,
// it lets the holder count the grant, by its UsableMs: from before it sent that call, if the answer
// comes in less than a tenth of the lease after that. From then on only the holder can release the
// lock; without it the lease expires.
func (c *Client) Counts(g *wire.Grant, began time.Duration) {
	if g.UsableMs = c.engine.RemoteCounts(g.Name, g.Token, began).Milliseconds(); g.UsableMs > 0 {
		g.FreeAfterMs = g.LeaseMs
	}
}

// Discard releases a granted lock at once, if the grant cannot be sent to its holder, and the
// holder has shown no life through this process. It does not wait for the store, except for a gate
// of readers and writers, in which it leaves what the grant has as unwritten. It leaves a grant
// alone that its holder may count: although its sending failed, the holder may have it.
func (c *Client) Discard(g wire.Grant) {
	ctx, cancel := context.WithTimeout(context.Background(), c.engine.Timing().RequestTimeout)
	defer cancel()
	if g.UsableMs == 0 {
		_ = c.giveBack(ctx, g, g.Unwritten) // or the record expires by itself
	}
}

// Heartbeat renews a lease. The holder makes the next beat: After up to and with its dash, and
// 13 letters or digits, made at random; the same call again has the same one. The holder may
// act for as long as the renewal says, counted from before it first sent this heartbeat; clock
// drift and the grace are already subtracted. Each heartbeat returns what the holder was asked.
//
// The error matches [tenure.ErrLost] if the term is over: the holder must stop at once. It
// matches [tenure.ErrUncertain] if the store has not answered: the holder makes the same call
// again, and counts from before the first one. It matches [tenure.ErrInvalid] if an argument breaks
// a rule.
func (c *Client) Heartbeat(ctx context.Context, q wire.HeartbeatRequest) (wire.Renewal, error) {
	const op = "heartbeat"
	if err := cmp.Or(checkBeat(q.Name, q.Token, q.After), checkNext(q.After, q.Next)); err != nil {
		return wire.Renewal{}, wrap(op, q.Name, err)
	}
	rec, err := c.engine.RemoteWrite(ctx, protocol.RemoteHeartbeat{Key: q.Name, Token: q.Token, After: q.After, Next: q.Next})
	if err != nil {
		return wire.Renewal{}, wrap(op, q.Name, err)
	}
	t := c.engine.Timing()
	r := wire.Renewal{
		UsableMs: max(0, t.UsableOf(rec)).Milliseconds(), HeartbeatMs: t.HeartbeatOf(rec).Milliseconds(),
	}
	r.Asked = askedOf(rec)
	return r, nil
}

// askedOf returns what the record of a lock asks of its holder, or nil.
func askedOf(rec driver.Record) *wire.RequestInfo {
	q := protocol.AskedOf(rec)
	if q == nil {
		return nil
	}
	return &wire.RequestInfo{Kind: kindOf(*q), By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel}
}

// kindOf returns what a holder does about a request.
func kindOf(q driver.Request) string {
	if q.Kind == driver.HandOver {
		return "hand-over"
	}
	return "step-down" // what a holder does about all others
}

// Release ends a term after its work has ended. It completes what the holder was asked: the
// lock is free, or reserved for the target of the hand-over. If a heartbeat had no answer,
// the record may have its Next: then one of two releases ends the term, and the other has no
// effect. The same call again has no effect, and returns nil as well. The errors are those of
// [Client.Heartbeat].
//
// With vanishes it deletes the record and the history that the release leaves, if
// that can be done. The lock's tokens begin at 1 again, unless the store keeps them: see
// [driver.TokenRetainer]. So it is for a trial lock, whose token no fence
// sees: after it, two terms have one token, and a fence lets the writes of both pass. A lock
// that was taken meanwhile is left alone. A release that is sent again finds no lock, and
// gets an error that matches [tenure.ErrLost].
func (c *Client) Release(ctx context.Context, q wire.ReleaseRequest, vanishes bool) error {
	const op = "release"
	if err := cmp.Or(checkBeat(q.Name, q.Token, q.After), checkData(q.Data)); err != nil {
		return wrap(op, q.Name, err)
	}
	d := protocol.RemoteHeartbeat{Key: q.Name, Token: q.Token, After: q.After, Data: q.Data}
	if q.Failed != "" {
		d.Failed = &driver.Request{By: c.owner, Reason: text.Failure(q.Failed), At: time.Now()}
	}
	rec, err := c.engine.RemoteWrite(ctx, d)
	if err != nil {
		return wrap(op, q.Name, err)
	}
	if vanishes && rec.State == driver.Released {
		c.delete(ctx, rec)
	}
	c.engine.Released(q.Name)
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

// Request is a request to the holder of a lock, remote or not, through this process. By is
// printable, of at most [driver.MaxOwnerLen] bytes; if empty, it is the owner name of the
// client. To or ToLabel is the target of a hand-over; other requests leave both empty.
type Request struct {
	Name string
	tenure.Request
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
		checkText("owner to hand over to", q.To), checkText("label to hand over to", q.ToLabel), checkText("name of the requester", q.By),
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
		return text.Invalid("the previous beat is empty: give the beat of the grant, or of the last confirmed heartbeat")
	}
	return text.CheckForm("the previous beat", after, maxBeatLen)
}

func checkNext(after, next string) error {
	if protocol.FollowsBeat(after, next) {
		return nil
	}
	return text.Invalid("next beat %.80q does not follow %.80q: it must have the same part up to the dash, "+
		"and then 13 new letters or digits", next, after)
}

func checkName(name string) error { return text.CheckName("lock name", name, driver.MaxNameLen) }

// clockRaw is what a holder says that counts by a clock which no time service slews.
const clockRaw = "raw"

// checkClock refuses clocks that are not known: no bound would be right for them.
func checkClock(clock string) error {
	if clock != "" && clock != clockRaw {
		return text.Invalid("clock %.40q is not known: give %q if the holder counts by CLOCK_MONOTONIC_RAW and "+
			"suspends, and leave it out for any other clock", clock, clockRaw)
	}
	return nil
}

// driftOf returns the bound on the error of a clock that checkClock has let in.
func driftOf(clock string) float64 {
	if clock == clockRaw {
		return protocol.RawDrift
	}
	return protocol.DefaultDrift
}

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
