// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/internal/remote"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// maxSessionBody is the longest body of a session's opening or heartbeat in bytes: 64 KiB of data as
// base64, names, and the ids of 64 requests.
const maxSessionBody = 128 << 10

// mayHold returns a problem if the principal may hold no lock. A session has no name: what binds a
// call to its holder is the beat, and each lock that is attached needs the right to its name.
func (c *call) mayHold() error {
	if len(c.principal.Prefixes(access.Hold, "")) > 0 {
		return nil
	}
	return c.refused("right", problemf(forbidden, "principal %q has no right hold to any name: an operator can grant it "+
		"with hold:PREFIX in the file of principals", c.principal.Name()))
}

// openSession is POST /v1/sessions/open.
func (c *call) openSession() error {
	var q wire.SessionRequest
	if err := c.mayHold(); err != nil {
		return err
	}
	if err := c.read(&q); err != nil {
		return err
	}
	q.Host = hostOf(c.principal, q.Host)
	r, err := c.s.remote.OpenSession(c.r.Context(), q)
	switch {
	case errors.Is(err, remote.ErrLossy):
		return problemf(noSessions, "the store of this server may lose writes that it has confirmed, and sessions over HTTP "+
			"are not supported there: send heartbeats for each lock, up to 100 in a call")
	case errors.Is(err, errors.ErrUnsupported):
		return problemf(noSessions, "the store of this server cannot keep sessions: send heartbeats for each lock, up to "+
			"100 in a call").of(err)
	case err != nil:
		return err
	}
	return c.answer(r)
}

// ofSession reads the body of a call about a session's own record, as one heartbeat of its holder.
func (c *call) ofSession(q any, do func() error) error {
	done, err := c.beats(1)
	if err != nil {
		return err
	}
	defer done()
	if err := c.mayHold(); err != nil {
		return err
	}
	if err := c.read(q); err != nil {
		return err
	}
	return do()
}

// heartbeatSession is POST /v1/sessions/heartbeat.
func (c *call) heartbeatSession() error {
	var q wire.SessionHeartbeatRequest
	return c.ofSession(&q, func() error {
		begun := time.Now()
		r, err := c.s.remote.SessionHeartbeat(c.r.Context(), q)
		c.s.meter.beat(err, time.Since(begun))
		if err != nil {
			return err
		}
		return c.answer(r)
	})
}

// closeSession is POST /v1/sessions/close.
func (c *call) closeSession() error {
	var q wire.SessionCloseRequest
	return c.ofSession(&q, func() error {
		if err := c.s.remote.CloseSession(c.r.Context(), q); err != nil {
			return err
		}
		return c.answer(wire.Empty{})
	})
}

// batch reads the body of a call about many locks, and counts each as a heartbeat, until done is
// called. A grant was counted as a call, and an attachment stands for the lock's first heartbeat.
func (c *call) batch(q any, locks func() int) (done func(), err error) {
	if err := c.mayHold(); err != nil {
		return nil, err
	}
	if err := c.read(q); err != nil {
		return nil, err
	}
	n := locks()
	if n < 1 || n > maxBatch {
		return nil, problemf(badRequest, "%d locks: one call has 1 to %d", n, maxBatch)
	}
	return c.beats(n)
}

// attach is POST /v1/sessions/attach.
func (c *call) attach() error {
	var q wire.AttachRequest
	done, err := c.batch(&q, func() int { return len(q.Locks) })
	if err != nil {
		return err
	}
	defer done()
	session, err := c.s.remote.Look(c.r.Context(), q.Session, q.Beat)
	if err != nil {
		return err
	}
	results := make([]wire.AttachResult, len(q.Locks))
	var all sync.WaitGroup
	for i, one := range q.Locks { // the client bounds how many of them are at the store
		all.Go(func() {
			asked, err := c.attachOne(session, one)
			results[i] = wire.AttachResult{Name: one.Name, Asked: asked}
			if err != nil {
				results[i].Problem = c.told(err).Problem
			}
		})
	}
	all.Wait()
	return c.answer(wire.AttachResponse{Results: results})
}

func (c *call) attachOne(session *remote.Attaching, q wire.HeartbeatRequest) (*wire.RequestInfo, error) {
	if err := c.may(access.Hold, q.Name); err != nil {
		return nil, err
	}
	asked, err := session.Attach(c.r.Context(), q)
	if err == nil {
		c.s.meter.used(q.Name, q.Token)
	}
	return asked, err
}

// releaseUnder is POST /v1/sessions/release.
func (c *call) releaseUnder() error {
	var q wire.SessionReleaseRequest
	done, err := c.batch(&q, func() int { return len(q.Locks) })
	if err != nil {
		return err
	}
	defer done()
	of, err := c.s.remote.Requests(c.r.Context(), q.Session)
	if err != nil {
		return err
	}
	results := make([]wire.SessionReleaseResult, len(q.Locks))
	var all sync.WaitGroup
	for i, one := range q.Locks {
		all.Go(func() {
			err := cmp.Or(c.may(access.Hold, one.Name), checkLeft(one.Name, one.Token, one.Data))
			if err == nil {
				err = c.s.remote.Detach(c.r.Context(), q.Session, of, one)
			}
			results[i].Name = one.Name
			if err != nil {
				results[i].Problem = c.told(err).Problem
				return
			}
			c.s.released(one.Name, one.Token)
		})
	}
	all.Wait()
	return c.answer(wire.SessionReleaseResponse{Results: results})
}
