// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/slots"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// Taker returns what takes locks for the remote holder that q names, for a caller that looks at other
// records before the holder learns of a grant. The locks are [*Lock]. The error matches
// [tenure.ErrInvalid] if q breaks a rule.
func (c *Client) Taker(ctx context.Context, q wire.AcquireRequest) (slots.Taker, error) {
	if err := check(ctx, q); err != nil {
		return nil, wrap("acquire", q.Name, err)
	}
	return func(ctx context.Context, name string) (slots.Lock, error) {
		q := q
		q.Name = name
		rec, err := c.acquire(ctx, q, false, nil)
		if err != nil {
			return nil, err
		}
		return &Lock{c: c, rec: rec, granted: c.engine.Clock()}, nil
	}, nil
}

// Lock is a lock that was granted to a remote holder, as long as the holder does not know that. A
// grant without a heartbeat is freed after a while, so the looks end before that.
type Lock struct {
	c       *Client
	rec     driver.Record
	granted time.Duration // about when, by the engine's clock
}

// errOld says that the grant is about to be freed. It does not match [tenure.ErrLost]: the caller
// has never had the lock.
var errOld = errors.New("the store took too long to show whether the grant counts, which was given back")

// left returns how much longer the looks may take: the holder's first heartbeat needs the rest.
func (l *Lock) left() time.Duration {
	return l.granted + l.c.engine.Timing().FreeAfter()/2 - l.c.engine.Clock()
}

// Check fails if the grant is too old to be sent to its holder.
func (l *Lock) Check() error {
	if l.left() <= 0 {
		return errOld
	}
	return nil
}

// Bind returns a context that ends when the grant is too old.
func (l *Lock) Bind(ctx context.Context) (bound context.Context, stop context.CancelFunc) {
	bound, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(l.left(), func() { cancel(errOld) })
	return bound, func() {
		timer.Stop()
		cancel(nil)
	}
}

// Owner returns the name of the remote holder.
func (l *Lock) Owner() string { return l.rec.Owner }

// Token returns the fencing token of the grant.
func (l *Lock) Token() uint64 { return l.rec.Token }

// Previous is as [tenure.Lease.Previous], for a holder that has sent no data.
func (l *Lock) Previous() (tenure.Term, bool) {
	p := l.rec.Prev
	if p == nil {
		return tenure.Term{}, false
	}
	t := tenure.Term{
		Owner: p.Owner, Token: p.Token, Host: p.Host, Label: p.Label, Since: p.Since, Until: p.Until, End: string(p.End),
		Data: bytes.Clone(l.rec.Data),
	}
	if q := p.Asked; q != nil {
		t.Request = &tenure.Request{
			Kind: tenure.RequestKind(q.Kind), By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel, At: q.At,
		}
	}
	return t, true
}

// ReleaseWith gives the lock back, which nobody else can use. With data it is a release of the
// holder, or none if the store does not answer in time; without, it does not wait for the store.
func (l *Lock) ReleaseWith(ctx context.Context, o *tenure.ReleaseOptions) error {
	var data []byte
	if o != nil {
		data = o.Data
	}
	return l.c.giveBack(ctx, l.Grant(), data)
}

func (c *Client) giveBack(ctx context.Context, g wire.Grant, data []byte) (err error) {
	if data != nil {
		_, err = c.engine.RemoteWrite(ctx, protocol.RemoteHeartbeat{Key: g.Name, Token: g.Token, After: g.Beat, Data: data})
		c.engine.Released(g.Name)
	}
	c.engine.RemoteDiscard(g.Name, g.Token)
	return err
}

// Grant returns the grant, to be sent to its holder. From then on nothing else is to be called.
func (l *Lock) Grant() wire.Grant { return l.c.grantOf(l.rec) }
