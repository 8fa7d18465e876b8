// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
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
	// this client can know. If it is false and State is held, the lease is over, and
	// the holder may still have renewed it after the store had answered. An acquire finds
	// out by its write. A program that acts without one reads again, by
	// [Client.Statuses], and goes by that.
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
	// ReservedForLabel is, where ReservedFor is empty, the label that the lock is kept
	// for: whoever has it may take the lock at once.
	ReservedForLabel string
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
	StateReserved = string(driver.Reserved) // kept for ReservedFor, ReservedForLabel, or nobody
	StateReleased = string(driver.Released) // free
)

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

// look reads a record and remembers what it saw. It waits as get does.
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
	res, err := c.get(ctx, name, driver.Strong)
	if err != nil {
		return sighting{}, err
	}
	if res.Found && !protocol.Readable(res.Record) {
		return sighting{}, unreadable(res.Record)
	}
	s := k.saw(sent, driver.Strong, res.Record, res.Found)
	if id, open := k.openSession(); open {
		if err := c.seeSessions(ctx, []string{id}, false); err != nil {
			return sighting{}, err
		}
		s = k.seen()
	}
	return s, nil
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
		if st.ReservedFor == "" {
			st.ReservedForLabel = r.Label
		}
		st.Owner, st.Label, st.Since = "", "", time.Time{}
		if t := r.Prev; t != nil {
			st.Owner, st.Host, st.Label, st.Since, st.Until = t.Owner, t.Host, t.Label, t.Since, t.Until
			st.End, st.EndedBy = string(t.End), requestOf(t.Asked)
		}
	}
	return st
}
