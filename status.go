// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Status is what the record of a lock shows.
type Status struct {
	Name string
	// State is what the record says: StateHeld, StateReserved or StateReleased;
	// empty if there is none.
	State string
	// Held says that the record shows a holder that may be alive, as far as
	// this client can know.
	Held  bool
	Owner string // the holder, or the last one
	Token uint64 // 0: the lock was never taken
	Host  string
	Label string
	Since time.Time // when the holder took it, by its wall clock
	Until time.Time // when it was released, zero while it is held
	Data  []byte
	// Lease and Heartbeat are the durations that the holder keeps.
	Lease, Heartbeat time.Duration
	// Priority is the holder's; see [ElectionOptions.Priority].
	Priority int
	// ReservedFor is the owner that the lock is kept for after a hand-over. It may
	// take the lock at once, while others wait for FreeIn. Owner is the last holder
	// then.
	ReservedFor string
	// Request is what the holder was asked and has not done yet.
	Request *Request
	// End says how the last tenure ended, as in [Tenure.End]; in a record that
	// shows a holder, why it has stopped its heartbeats. EndedBy is the request
	// that caused it, if there was one.
	End     string
	EndedBy *Request
	// Unchanged is how long this client has seen no sign of life. FreeIn is after
	// how long at the latest the lock can be taken if none comes.
	Unchanged, FreeIn time.Duration
	// Previous is the tenure before, nil if there was none.
	Previous *Previous
	// Session is the id of the session under which the lock is held, empty if it
	// is its own lease. Unchanged and FreeIn are those of the session then.
	Session string
}

// What a record says, in [Status.State].
const (
	StateHeld     = string(driver.Held)     // it has a holder, alive or not
	StateReserved = string(driver.Reserved) // kept for ReservedFor, or for nobody
	StateReleased = string(driver.Released) // free
)

// Previous is the tenure before another one, and what it left.
type Previous struct {
	Tenure
	// Data is what it left, in [Lease.Previous] alone. It is nil if the new holder
	// wrote data of its own and the reply that showed the old data was lost.
	Data []byte
}

// Previous returns how the tenure before this one ended, and the data that it left,
// so that unfinished work can be repeated. It returns false if there was none.
func (l *Lease) Previous() (Previous, bool) {
	if l.former == nil {
		return Previous{}, false
	}
	return *l.former, true
}

func previous(g protocol.Grant, replaced bool) *Previous {
	p := previousOf(g.Record.Prev)
	switch {
	case p == nil:
	case g.Former.Key != "":
		p.Data = g.Former.Data
	case !replaced:
		p.Data = g.Record.Data
	}
	return p
}

func previousOf(t *driver.Tenure) *Previous {
	if t == nil {
		return nil
	}
	return &Previous{Tenure: tenureOf(t)}
}

// Status reads the record of the lock. It waits for the store's answer for
// [Options.RequestTimeout].
func (c *Client) Status(ctx context.Context, name string) (Status, error) {
	if err := checkKey(name); err != nil {
		return Status{}, wrap("status", name, err)
	}
	s, err := c.look(ctx, name)
	if err != nil {
		return Status{}, wrap("status", name, err)
	}
	return s.status(name), nil
}

// Locks reads the records of all locks whose names begin with prefix, in the order
// of their names. It may be slow. A record that cannot be read comes as an error,
// and the others follow.
func (c *Client) Locks(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if c.isClosed() {
			yield(Status{}, wrap("list", prefix, ErrClosed))
			return
		}
		cursor := ""
		for {
			sent := c.clock.Contender()
			page, err := c.store.List(ctx, prefix, cursor)
			if err != nil {
				yield(Status{}, wrap("list", prefix, err))
				return
			}
			// All of the page is noted before the caller takes its time with it.
			page.Records = slices.DeleteFunc(page.Records, func(r driver.Record) bool { return strings.HasPrefix(r.Key, driver.OwnPrefix) })
			maps.DeleteFunc(page.Unreadable, func(key string, _ error) bool { return strings.HasPrefix(key, driver.OwnPrefix) })
			seen, err := c.sawAll(ctx, sent, driver.Eventual, page.Records)
			if err != nil {
				yield(Status{}, wrap("list", prefix, err))
				return
			}
			for i, rec := range page.Records {
				if !protocol.Readable(rec) {
					if !yield(Status{Name: rec.Key}, wrap("list", rec.Key, unreadable(rec))) {
						return
					}
					continue
				}
				if !yield(seen[i].status(rec.Key), nil) {
					return
				}
			}
			for _, key := range slices.Sorted(maps.Keys(page.Unreadable)) {
				if !yield(Status{Name: key}, wrap("list", key, page.Unreadable[key])) {
					return
				}
			}
			if cursor = page.Cursor; cursor == "" {
				return
			}
		}
	}
}

// look reads a record and remembers what it saw. It waits for one request timeout,
// or two if the store ignores it.
func (c *Client) look(ctx context.Context, name string) (sighting, error) {
	if err := ctx.Err(); err != nil {
		return sighting{}, err
	}
	k, err := c.tracker(name)
	if err != nil {
		return sighting{}, err
	}
	defer k.leave()
	sent := c.clock.Contender()
	answer := make(chan protocol.Result, 1)
	c.get(name, driver.Strong, func(res protocol.Result) { answer <- res })
	res, err := c.answered(ctx, answer)
	if err != nil {
		return sighting{}, err
	}
	if res.Found && !protocol.Readable(res.Record) {
		return sighting{}, unreadable(res.Record)
	}
	s := k.saw(sent, driver.Strong, res.Record, res.Found)
	if id, open := k.openSession(); open {
		if err := c.seeSessions(ctx, []string{id}); err != nil {
			return sighting{}, err
		}
		s = k.seen()
	}
	return s, nil
}

// answered waits for the result of a read: until ctx ends, or the client does.
func (c *Client) answered(ctx context.Context, answer <-chan protocol.Result) (protocol.Result, error) {
	select {
	case res := <-answer:
		return res, res.Err
	case <-ctx.Done():
		return protocol.Result{}, done(ctx)
	case <-c.gone:
		return protocol.Result{}, ErrClosed
	}
}

// unreadable is the error of a record that a store could read, but that this client
// does not understand.
func unreadable(rec driver.Record) error {
	return refused("%w: lease %v, state %q, written by %q", ErrUnreadable, rec.Lease, rec.State, rec.Owner)
}

// sighting is a snapshot of what a client saw of a record.
type sighting struct {
	rec    driver.Record
	found  bool
	known  bool
	looked time.Duration // on the contender's clock: when the latest reply came
	alive  bool          // it shows a holder that may be alive
	closed bool          // it shows one whose session has been closed by itself
	since  time.Duration
	freeIn time.Duration
}

func (s sighting) status(name string) Status {
	r := s.rec
	st := Status{
		Name: name, State: string(r.State), Held: s.alive, Owner: r.Owner, Token: r.Token, Host: r.Host, Label: r.Label,
		Since: r.Since, Until: r.Until, Data: r.Data, Lease: r.Lease, Heartbeat: r.Heartbeat,
		Previous: previousOf(r.Prev), Session: r.Session,
	}
	st.Priority, st.End, st.EndedBy = r.Priority, string(r.End), requestOf(r.Asked)
	switch r.State {
	case driver.Held:
		st.Unchanged, st.FreeIn = s.since, s.freeIn
		if len(r.Requests) > 0 {
			st.Request = requestOf(&r.Requests[0])
		}
	case driver.Reserved:
		st.ReservedFor, st.FreeIn = r.Owner, s.freeIn
		st.Owner, st.Since = "", time.Time{}
		if t := r.Prev; t != nil {
			st.Owner, st.Host, st.Label, st.Since, st.Until = t.Owner, t.Host, t.Label, t.Since, t.Until
			st.End, st.EndedBy = string(t.End), requestOf(t.Asked)
		}
	}
	return st
}
