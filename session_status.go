// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// SessionStatus is what the record of a session shows.
type SessionStatus struct {
	ID string
	// State is what the record says: StateAlive or StateClosed; empty if there is
	// none.
	State string
	// Alive says that the session may be alive, as far as this client can know.
	Alive              bool
	Owner, Host, Label string
	Data               []byte
	Since              time.Time // when it was opened, by its owner's wall clock
	Until              time.Time // when it was closed by its owner, zero before
	// Lease and Heartbeat are the durations that its owner keeps.
	Lease, Heartbeat time.Duration
	// End says how it was closed, as in [Tenure.End]: EndReleased by its owner,
	// EndExpired by another client that had seen no sign of its life.
	End string
	// Requests is how many requests to its locks lie in the record.
	Requests int
	// Unchanged is how long this client has seen no sign of life. FreeIn is after
	// how long at the latest its locks can be taken if none comes.
	Unchanged, FreeIn time.Duration
}

// What a session's record says, in [SessionStatus.State].
const (
	StateAlive  = string(driver.Alive)  // it keeps locks alive, if its owner lives
	StateClosed = string(driver.Closed) // it has ended, and nobody holds a lock under it
)

// SessionStatus reads the record of a session. It waits as [Client.Status] does.
// A session that is not there, because it was closed long ago, has an empty State.
func (c *Client) SessionStatus(ctx context.Context, id string) (SessionStatus, error) {
	if err := checkSessionID(id); err != nil {
		return SessionStatus{}, wrap("status", "session", err)
	}
	err := ctx.Err()
	if err == nil && c.isClosed() {
		err = ErrClosed
	}
	if err == nil {
		err = c.seeSessions(ctx, []string{id}, false)
	}
	if err != nil {
		return SessionStatus{}, wrap("status", "session "+id, err)
	}
	return c.sessionStatus(id), nil
}

// EventualSessionStatuses is [Client.SessionStatus] of many sessions, for programs that look
// again and again: by reads that may be behind, and only of those that have a heartbeat due.
// The answers are in the order of the ids. They may be behind by as long as such a read is,
// and the end of a session by a heartbeat period.
func (c *Client) EventualSessionStatuses(ctx context.Context, ids []string) ([]SessionStatus, []error) {
	list, errs := make([]SessionStatus, len(ids)), make([]error, len(ids))
	err := ctx.Err()
	if err == nil && c.isClosed() {
		err = ErrClosed
	}
	good := map[string]struct{}{}
	for i, id := range ids {
		if errs[i] = checkSessionID(id); errs[i] == nil {
			good[id] = struct{}{}
		}
	}
	if err == nil {
		err = c.seeSessions(ctx, slices.Sorted(maps.Keys(good)), true)
	}
	for i, id := range ids {
		switch {
		case errs[i] != nil:
			errs[i] = wrap("status", "session", errs[i])
		case err != nil:
			errs[i] = wrap("status", "session "+id, err)
		default:
			list[i] = c.sessionStatus(id)
		}
	}
	return list, errs
}

// Sessions reads the records of all sessions, in the order of their ids. It may be
// slow. A record that cannot be read comes as an error, and the others follow.
func (c *Client) Sessions(ctx context.Context) iter.Seq2[SessionStatus, error] {
	return func(yield func(SessionStatus, error) bool) {
		const op, what = "list", "sessions"
		for cursor := ""; ; {
			if c.isClosed() {
				yield(SessionStatus{}, wrap(op, what, ErrClosed))
				return
			}
			sent := c.clock.Contender()
			page, err := c.store.List(ctx, driver.SessionPrefix, cursor)
			if err != nil {
				yield(SessionStatus{}, wrap(op, what, err))
				return
			}
			c.seeing.Lock()
			now := c.clock.Contender()
			for _, rec := range page.Records {
				c.sessions.Of(driver.SessionID(rec.Key)).Saw(sent, now, driver.Eventual, rec, true)
			}
			c.seeing.Unlock()
			for _, rec := range page.Records {
				if !yield(c.sessionStatus(driver.SessionID(rec.Key)), nil) {
					return
				}
			}
			for key, err := range page.Unreadable {
				if !yield(SessionStatus{ID: driver.SessionID(key)}, wrap(op, key, err)) {
					return
				}
			}
			if cursor = page.Cursor; cursor == "" {
				return
			}
		}
	}
}

// sessionStatus says what was seen of a session last.
func (c *Client) sessionStatus(id string) SessionStatus {
	c.seeing.Lock()
	defer c.seeing.Unlock()
	st := SessionStatus{ID: id}
	u := c.sessions.Of(id)
	rec, found := u.Record()
	if !found {
		return st
	}
	st.State, st.Owner, st.Host, st.Label, st.Data = string(rec.State), rec.Owner, rec.Host, rec.Label, rec.Data
	st.Since, st.Until, st.Lease, st.Heartbeat = rec.Since, rec.Until, rec.Lease, rec.Heartbeat
	st.End, st.Requests = string(rec.End), len(rec.Requests)
	now := c.clock.Contender()
	if dead, alive := u.DeadAt(); alive {
		st.Unchanged, st.FreeIn = now-u.Since(), max(0, dead-now)
		st.Alive = st.FreeIn > 0
	}
	return st
}

func checkSessionID(id string) error {
	if id == "" {
		return invalid("the id of the session is empty")
	}
	return checkForm("session id", id, driver.MaxSessionLen)
}
