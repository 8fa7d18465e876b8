// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/text"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// ErrLossy is the error of [Client.OpenSession] on a store that may lose writes which it has
// confirmed ([driver.Guarded]): a session outlives no failover of such a store, and no model shows
// yet that a remote holder's ends in time.
var ErrLossy = errors.New("this store may lose confirmed writes")

// OpenSession opens a session for the owner that q names: one heartbeat that keeps many locks alive.
// The holder has nothing before its first confirmed [Client.SessionHeartbeat], whose answer must come
// within its UsableMs of the sending of this call: later, a duplicate of the claim may have opened
// the session once more, after others have closed and deleted it. A session that nobody
// renews expires, and the sweep of sessions deletes its record: so an opening that is sent again, or
// whose answer is lost, costs a record. Send its beat only to the holder: anyone who knows it can
// renew and close the session, and attach locks to it.
//
// The clock of the holder counts for all locks under the session, as in [Client.Acquire]. The error
// matches [ErrLossy], [errors.ErrUnsupported] if the store cannot keep sessions,
// [tenure.ErrInvalid], or [tenure.ErrUncertain] if the store has not answered.
func (c *Client) OpenSession(ctx context.Context, q wire.SessionRequest) (wire.Session, error) {
	const op, what = "open", "session"
	t := c.engine.Timing()
	err := checkText("owner", q.Owner)
	if q.Owner == "" {
		err = text.Invalid("owner is empty: name the holder; status shows it")
	}
	err = cmp.Or(err, checkText("host", q.Host), checkText("label", q.Label), checkClock(q.Clock), checkSessionData(q.Data))
	if err == nil && t.Waits > 0 {
		err = ErrLossy
	}
	if err != nil {
		return wire.Session{}, wrap(op, what, err)
	}
	rec, err := c.engine.RemoteOpen(ctx, driver.Record{
		Owner: q.Owner, Host: q.Host, Label: q.Label, Data: slices.Clone(q.Data), Drift: driftOf(q.Clock),
	})
	if err != nil {
		return wire.Session{}, wrap(op, what, err)
	}
	return wire.Session{
		Session: driver.SessionID(rec.Key), Beat: rec.Beat, LeaseMs: t.Lease.Milliseconds(),
		HeartbeatMs: t.Heartbeat.Milliseconds(),
	}, nil
}

// SessionHeartbeat renews a session, by the rules of [Client.Heartbeat], and with its errors. The
// renewal has the requests to holders of locks under the session. They stay in its record until a
// heartbeat names their ids as answered: a holder names those whose locks it has released, or does not
// hold. The same call again has the same ids and data.
func (c *Client) SessionHeartbeat(ctx context.Context, q wire.SessionHeartbeatRequest) (wire.SessionRenewal, error) {
	const op = "heartbeat"
	what := "session " + q.Session
	err := checkSession(q.Session, q.After)
	if err == nil {
		err = cmp.Or(checkNext(q.After, q.Next), checkSessionData(q.Data))
	}
	if n := len(q.Answered); err == nil && n > driver.MaxRequests {
		err = text.Invalid("%d requests are answered: a session has at most %d", n, driver.MaxRequests)
	}
	if err != nil {
		return wire.SessionRenewal{}, wrap(op, what, err)
	}
	d := sessionsOwn(q.Session, q.After)
	d.Next, d.Data, d.Of = q.Next, q.Data, &protocol.OfSession{Answered: q.Answered}
	rec, err := c.engine.RemoteWrite(ctx, d)
	if err != nil {
		return wire.SessionRenewal{}, wrap(op, what, err)
	}
	t := c.engine.Timing()
	r := wire.SessionRenewal{
		UsableMs: max(0, t.UsableOf(rec)).Milliseconds(), HeartbeatMs: min(t.Heartbeat, rec.Lease/5).Milliseconds(),
		Requests: []wire.SessionAsked{},
	}
	for _, one := range protocol.SessionRequests(rec) {
		r.Requests = append(r.Requests, wire.SessionAsked{
			ID: one.ID, Name: one.Lock, Token: one.Token, Kind: kindOf(one), By: one.By, Reason: one.Reason,
			To: one.To, ToLabel: one.ToLabel, At: one.At,
		})
	}
	return r, nil
}

// sessionsOwn returns a call about a session's own record, whose token is always 1.
func sessionsOwn(id, after string) protocol.RemoteHeartbeat {
	return protocol.RemoteHeartbeat{Key: driver.SessionKey(id), Token: 1, After: after}
}

// CloseSession ends a session after all its work has ended: the locks under it are free. As for
// [Client.Release], one of two calls has the beat in the record, and the same call again returns nil
// as well. The errors are those of [Client.Heartbeat].
func (c *Client) CloseSession(ctx context.Context, q wire.SessionCloseRequest) error {
	err := checkSession(q.Session, q.After)
	if err == nil {
		_, err = c.engine.RemoteWrite(ctx, sessionsOwn(q.Session, q.After))
	}
	return wrap("close", "session "+q.Session, err)
}

// Attaching is a session that was open when [Client.Look] read it.
type Attaching struct {
	c         *Client
	id, owner string
}

// Look reads a session to which locks are to be attached; beat is any of its beats, which only its
// holder knows. The errors are those of [Client.Heartbeat].
func (c *Client) Look(ctx context.Context, session, beat string) (*Attaching, error) {
	err := checkSession(session, beat)
	var rec driver.Record
	if err == nil {
		rec, err = c.engine.RemoteLook(ctx, session, beat)
	}
	if err != nil {
		return nil, wrap("attach", "session "+session, err)
	}
	return &Attaching{c, session, rec.Owner}, nil
}

// Attach puts a granted lock of the session's owner under the session: After is its granted beat, or the
// last confirmed one, and Next the beat that it has under the session. Once that is confirmed, the
// holder has the lock as long as the deadline of the session has not passed; before, it has it only
// while neither that has passed nor the lock's own. It sends no heartbeats of the lock any more. It
// returns what the lock's own record asks of its holder, or nil. The same call again has no
// effect. The errors are those of [Client.Heartbeat].
func (a *Attaching) Attach(ctx context.Context, q wire.HeartbeatRequest) (*wire.RequestInfo, error) {
	const op = "attach"
	if err := cmp.Or(checkBeat(q.Name, q.Token, q.After), checkNext(q.After, q.Next)); err != nil {
		return nil, wrap(op, q.Name, err)
	}
	rec, err := a.c.engine.RemoteWrite(ctx, protocol.RemoteHeartbeat{
		Key: q.Name, Token: q.Token, After: q.After, Next: q.Next, Of: &protocol.OfSession{ID: a.id, Owner: a.owner},
	})
	if err != nil {
		return nil, wrap(op, q.Name, err)
	}
	return askedOf(rec), nil
}

// Requests reads the requests to holders of locks under a session, for [Client.Detach]. A session
// that has ended has none.
func (c *Client) Requests(ctx context.Context, session string) (driver.Record, error) {
	if err := checkSession(session, "-"); err != nil {
		return driver.Record{}, wrap("release", "session "+session, err)
	}
	res, err := c.engine.Read(ctx, driver.SessionKey(session), driver.Strong)
	if err != nil {
		return driver.Record{}, wrap("release", "session "+session, errors.Join(tenure.ErrUncertain, err))
	}
	return res.Record, nil
}

// Detach releases one lock under a session after its work has ended, as [Client.Release] does: After
// and Next are those with which it was attached, whether that was confirmed or not. of is the session's
// record, whose request for the lock it completes. The same call again has no effect, and returns nil
// as well. The errors are those of [Client.Heartbeat].
func (c *Client) Detach(ctx context.Context, session string, of driver.Record, q wire.SessionRelease) error {
	const op = "release"
	err := cmp.Or(checkBeat(q.Name, q.Token, q.After), checkNext(q.After, q.Next), checkData(q.Data))
	if err != nil {
		return wrap(op, q.Name, err)
	}
	d := protocol.RemoteHeartbeat{
		Key: q.Name, Token: q.Token, After: q.After, Next: q.Next, Data: q.Data,
		Of: &protocol.OfSession{ID: session, Detaches: true, Asked: protocol.SessionRequest(of, q.Name, q.Token)},
	}
	if q.Failed != "" {
		d.Failed = &driver.Request{By: c.owner, Reason: text.Failure(q.Failed), At: time.Now()}
	}
	if _, err := c.engine.RemoteWrite(ctx, d); err != nil {
		return wrap(op, q.Name, err)
	}
	c.engine.Released(q.Name)
	return nil
}

func checkSession(id, beat string) error {
	switch {
	case id == "":
		return text.Invalid("session is empty: give the id that the opening has answered")
	case beat == "":
		return text.Invalid("the beat of the session is empty: give that of the opening, or of the last confirmed heartbeat")
	}
	if len(id) > driver.MaxSessionLen || strings.ContainsFunc(id, notOfID) {
		return text.Invalid("session %.80q is not an id: it has letters, digits and dashes, at most %d", id, driver.MaxSessionLen)
	}
	return text.CheckForm("the beat of the session", beat, maxBeatLen)
}

func notOfID(c rune) bool {
	return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
}

func checkSessionData(data []byte) error {
	if len(data) > driver.MaxSessionDataLen {
		return text.Invalid("data of a session have %d bytes: at most %d are allowed", len(data), driver.MaxSessionDataLen)
	}
	return nil
}
