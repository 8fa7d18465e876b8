// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// testSession opens, renews and closes sessions, and holds locks under them.
func testSession(t *testing.T, e *env) {
	if e.h.NoSessions {
		e.sessionsRefused(t)
		return
	}
	t.Run("Requests", e.sessionRequests)
	t.Run("Steps", e.sessionSteps)
	t.Run("Lock", e.sessionLock)
	t.Run("Late", e.sessionLate)
}

// sessionID returns the id of a session that was never opened.
func (e *env) sessionID() string { return e.fresh("Session") }

// opened returns a record for the Claim that opens a session.
func (e *env) opened() driver.Record { return e.openedAt(driver.SessionKey(e.sessionID())) }

func (e *env) openedAt(key string) driver.Record {
	next := e.held(key)
	next.State, next.Data = driver.Alive, []byte("member")
	return next
}

// closed returns the record that closes the session r.
func (e *env) closed(r driver.Record) driver.Record {
	next := e.released(r)
	next.Version, next.State, next.Requests = e.fresh("close"), driver.Closed, nil
	return next
}

// confirmed returns the record that asks session r whether it holds a lock,
// in addition to its earlier requests.
func (e *env) confirmed(r driver.Record) driver.Record {
	next := r.Clone()
	request := e.request(driver.Confirm)
	request.Lock, request.Token = e.fresh("lock"), driver.MaxToken
	next.Version, next.Requests = e.fresh("asked"), append(next.Requests, request)
	return next
}

// under returns a record for a claim of key under a session.
func (e *env) under(key, session string) driver.Record {
	next := e.held(key)
	next.Session = session
	return next
}

// sessionRequests fills the list of a session to its limit, with the longest data.
func (e *env) sessionRequests(t *testing.T) {
	holder, requester := e.clients[0], e.clients[1]
	rec := e.claim(t, holder, e.opened())
	next := e.beat(rec)
	next.Data = []byte(strings.Repeat("d", driver.MaxSessionDataLen))
	for range driver.MaxRequests {
		request := e.request(driver.HandOver)
		request.Lock, request.Token = strings.Repeat("ü", driver.MaxNameLen/2), driver.MaxToken
		request.By, request.To = strings.Repeat("b", driver.MaxOwnerLen), strings.Repeat("t", driver.MaxOwnerLen)
		request.Reason = strings.Repeat("r", driver.MaxReasonLen)
		next.Requests = append(next.Requests, request)
	}
	e.wantEqual(t, "record after Swap", e.swap(t, requester, rec, next), next)
	e.wantStored(t, next)
	e.wantListed(t, next)
	_, err := holder.Swap(t.Context(), rec, e.beat(rec))
	e.wantConflict(t, "heartbeat after requests", err, next)
	beat := e.beat(next)
	e.swap(t, holder, next, beat)
	e.wantStored(t, beat)
}

// sessionSteps tries what CheckClaim and CheckSwap refuse.
func (e *env) sessionSteps(t *testing.T) {
	store := e.clients[0].Store // past the retries
	t.Run("OpenedClosed", func(t *testing.T) {
		next := e.opened()
		next.State = driver.Closed
		now, _, err := store.Claim(t.Context(), next)
		wantRefused(t, "Claim", now, err)
		e.wantAbsent(t, next.Key)
	})
	alive := e.claim(t, e.clients[0], e.opened())
	closed := e.claim(t, e.clients[0], e.opened())
	closed = e.swap(t, e.clients[0], closed, e.closed(closed))
	lock := e.claim(t, e.clients[0], e.under(e.key(), e.sessionID()))
	free := e.released(lock)
	free.Session = lock.Session
	for what, step := range map[string]struct{ prev, next driver.Record }{
		"Revived":             {closed, e.openedAt(closed.Key)},
		"ClosedReleased":      {closed, e.released(closed)},
		"ClosedAgain":         {closed, e.closed(closed)},
		"AliveReleased":       {alive, e.released(alive)},
		"AliveTaken":          {alive, e.taken(alive)},
		"LockClosed":          {lock, e.closed(e.beat(lock))},
		"ReleasedWithSession": {lock, free},
	} {
		t.Run(what, func(t *testing.T) {
			next := step.next
			if next.State != driver.Held {
				next.Token = step.prev.Token
			}
			now, err := store.Swap(t.Context(), step.prev, next)
			wantRefused(t, "Swap", now, err)
			e.wantStored(t, step.prev)
		})
	}
}

// sessionLock takes locks under sessions. How they go on shows Late.
func (e *env) sessionLock(t *testing.T) {
	for _, id := range []string{"s", "0123456789", "-a-", "Session-" + strings.Repeat("Z", driver.MaxSessionLen-8)} {
		e.wantListed(t, e.wantClaimed(t, e.clients[0], e.under(e.key(), id), driver.Record{}))
	}
	rec := e.claim(t, e.clients[0], e.held(e.key()))
	attached := e.beat(rec) // in the middle of its term
	attached.Session, attached.Heartbeat = e.sessionID(), 0
	e.wantEqual(t, "record after Swap", e.swap(t, e.clients[1], rec, attached), attached)
	e.wantStored(t, attached)
}

// sessionLife is the writes of a session's life, like life for a lock.
var sessionLife = []step{
	{"opening", opClaim, openingOf},
	{"heartbeat", opSwap, (*env).beat},
	{"data", opSwap, dataOf},
	{"request", opSwap, (*env).confirmed},
	{"second request", opSwap, (*env).confirmed},
	{"heartbeat after the requests", opSwap, (*env).beat},
	{"closing", opSwap, (*env).closed},
	{"delete", opDelete, (*env).beat},
	{"opening after the delete", opClaim, openingOf},
	{"closing after that", opSwap, (*env).closed},
}

func openingOf(e *env, now driver.Record) driver.Record { return e.openedAt(now.Key) }

func (e *env) sessionLate(t *testing.T) {
	e.everyLate(t, sessionLife, func() string { return driver.SessionKey(e.sessionID()) })
}

// sessionsRefused checks that a store that declares NoSessions refuses them.
func (e *env) sessionsRefused(t *testing.T) {
	c := e.clients[0]
	store := c.Store // past the retries
	want := func(what string, now driver.Record, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) {
			t.Errorf("%s: %s, %v; want a permanent refusal", what, brief(now), err)
		}
	}
	next := e.opened()
	now, _, err := store.Claim(t.Context(), next)
	want("opening a session", now, err)
	e.wantAbsent(t, next.Key)

	next = e.under(e.key(), e.sessionID())
	now, _, err = store.Claim(t.Context(), next)
	want("claiming a lock under a session", now, err)
	e.wantAbsent(t, next.Key)

	rec := e.claim(t, c, e.held(e.key()))
	next = e.taken(rec)
	next.Session = e.sessionID()
	now, err = store.Swap(t.Context(), rec, next)
	want("taking over under a session", now, err)
	e.wantStored(t, rec)
}
