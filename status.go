// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/text"
)

// Status is what the record of a lock shows.
type Status struct {
	Name string
	// State is what the record says: StateHeld, StateReserved or StateReleased;
	// empty if there is none.
	State string
	// Held says that the record shows a holder that may be alive. If it is false and State
	// is held, the lease is over: a strong read that was sent when the sign of life had stood
	// for the lease has shown it still. The holder may have renewed it since. An acquire finds
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
	// End says how the last term ended, as in [Term.End]; in a record that
	// shows a holder, why it has stopped its heartbeats. EndedBy is the request
	// that caused it, if there was one.
	End     string
	EndedBy *Request
	// Unchanged is how long this client has seen no sign of life. FreeIn is after
	// how long at the latest the lock can be taken if none comes: 0 when only a read is
	// left to tell.
	Unchanged, FreeIn time.Duration
	// Previous is the term before, nil if there was none.
	Previous *Term
	// Session is the id of the session under which the lock is held, empty if it
	// is its own lease. Unchanged and FreeIn are those of the session then.
	Session string
}

// What a record says, in [Status.State] and [SessionStatus.State].
const (
	StateHeld     = string(driver.Held)     // the lock has a holder, alive or not
	StateReserved = string(driver.Reserved) // the lock is kept for ReservedFor, ReservedForLabel, or nobody
	StateReleased = string(driver.Released) // the lock is free
	StateAlive    = string(driver.Alive)    // the session keeps locks alive, if its owner lives
	StateClosed   = string(driver.Closed)   // the session has ended, and nobody holds a lock under it
)

// How a term ended, in [Term.End] and [Status.End].
const (
	EndReleased     = string(driver.EndReleased)     // its holder released the lock
	EndExpired      = string(driver.EndExpired)      // it showed no life for its lease; another one took over
	EndSteppedDown  = string(driver.EndSteppedDown)  // it was asked to stop
	EndHandedOver   = string(driver.EndHandedOver)   // it was asked to make way for another one
	EndStalled      = string(driver.EndStalled)      // its work showed no progress
	EndStopTimeout  = string(driver.EndStopTimeout)  // its work did not stop in time
	EndAbandoned    = string(driver.EndAbandoned)    // its acquire was given up; nothing was done under it
	EndReleasedDead = string(driver.EndReleasedDead) // dead, and released by an operator
	EndRevoked      = string(driver.EndRevoked)      // taken from it by an operator
	EndFailed       = string(driver.EndFailed)       // released by its holder, whose work had failed by itself
	EndCrashed      = string(driver.EndCrashed)      // its process had ended for certain
	EndRaised       = string(driver.EndRaised)       // no holder's: an operator raised the token, after a loss of the store
)

// Status reads the record of the lock. It waits for the store's answer for
// [Options.RequestTimeout].
func (c *Client) Status(ctx context.Context, name string) (Status, error) {
	if err := checkKey(name); err != nil {
		return Status{}, wrap("status", name, err)
	}
	s, err := c.engine.Status(ctx, name)
	if err != nil {
		return Status{}, wrap("status", name, err)
	}
	return statusOf(name, s), nil
}

func statusOf(name string, s engine.Snapshot) Status {
	r := s.Record
	st := Status{
		Name: name, State: string(r.State), Held: s.Alive, Owner: r.Owner, Token: r.Token, Host: r.Host, Label: r.Label,
		Since: r.Since, Until: r.Until, Data: bytes.Clone(r.Data), Lease: r.Lease, Heartbeat: r.Heartbeat,
		Session: r.Session,
	}
	if r.Prev != nil {
		previous := publicTerm(r.Prev)
		st.Previous = &previous
	}
	st.Priority, st.End, st.EndedBy = r.Priority, string(r.End), requestOf(r.Asked)
	switch r.State {
	case driver.Held:
		st.Unchanged, st.FreeIn = s.Since, s.FreeIn
		if len(r.Requests) > 0 {
			st.Request = requestOf(&r.Requests[0])
		}
	case driver.Reserved:
		st.ReservedFor, st.FreeIn = r.Owner, s.FreeIn
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

// ReadOptions say how fresh an answer must be. Nil asks for the freshest.
type ReadOptions struct {
	// Eventual is for programs that look again and again: it allows for reads that may be
	// behind, and cost half as much on DynamoDB, of records that are known and of which no
	// heartbeat is due. What such a read shows to have changed is read again. So answers may
	// be behind by as long as such a read is. They are never older than what this client has seen
	// before. An acquire of this client that acts on what they show reads anew, or writes on
	// conditions that say whether it is still so.
	Eventual bool

	// WithoutSessions leaves out the sessions under which locks are held. It is for programs
	// that know the sessions, or that look at a lock seldom. Held, Unchanged and FreeIn of a
	// lock under a session say what this client had seen of that session before: until it
	// has seen it, Held is true and FreeIn is 0.
	WithoutSessions bool
}

func (o *ReadOptions) orDefault() ReadOptions {
	if o == nil {
		return ReadOptions{}
	}
	return *o
}

// Statuses reads the records of many locks, in few requests where the store can
// do that, and the sessions under which they are held, each once. The answers are
// in the order of the names: what [Client.Status] returns for each. What was seen
// is remembered, for [Client.TryAcquire] say.
func (c *Client) Statuses(ctx context.Context, names []string, options *ReadOptions) ([]Status, []error) {
	o := options.orDefault()
	list, errs := make([]Status, len(names)), make([]error, len(names))
	var keys []string
	var at []int
	for i, name := range names {
		list[i].Name = name
		if err := checkKey(name); err != nil {
			errs[i] = wrap("status", name, err)
			continue
		}
		keys, at = append(keys, name), append(at, i)
	}
	seen, bad := c.engine.Statuses(ctx, keys, engine.StatusOptions{Eventual: o.Eventual, WithoutSessions: o.WithoutSessions})
	for j, i := range at {
		if bad[j] != nil {
			errs[i] = wrap("status", names[i], bad[j])
			continue
		}
		list[i] = statusOf(names[i], seen[j])
	}
	return list, errs
}

// ListOptions say which locks [Client.Locks] lists. Nil lists all.
type ListOptions struct {
	// Prefix begins the names of the locks.
	Prefix string
	// After is a name, which need not be that of a lock. The locks up to it are left out:
	// a program that has read a part of the list goes on where that ended. On most engines
	// that costs no more than what is read; on those that list the names of all records for
	// each page (DynamoDB, Kubernetes, ZooKeeper, buckets) it costs that as well.
	After string
}

// Locks reads the records of locks, in the order of their names. It may be slow. A record
// that cannot be read comes as an error, and the others follow.
func (c *Client) Locks(ctx context.Context, options *ListOptions) iter.Seq2[Status, error] {
	var prefix, after string
	if options != nil {
		prefix, after = options.Prefix, options.After
	}
	return func(yield func(Status, error) bool) {
		if c.engine.Closed() {
			yield(Status{}, wrap("list", prefix, ErrClosed))
			return
		}
		if err := checkAfter(after); err != nil {
			yield(Status{}, wrap("list", prefix, err))
			return
		}
		cursor := after
		for {
			page, seen, err := c.engine.List(ctx, prefix, cursor) // all of it is noted before the caller takes its time
			if err != nil {
				yield(Status{}, wrap("list", prefix, err))
				return
			}
			for key, i := range inOrder(page) {
				st, err := Status{Name: key}, error(nil)
				if i < 0 {
					err = wrap("list", key, page.Unreadable[key])
				} else {
					st = statusOf(key, seen[i])
				}
				if !yield(st, err) {
					return
				}
			}
			if cursor = page.Cursor; cursor == "" {
				return
			}
		}
	}
}

// checkAfter returns an error if no name can come before or after it on some store.
func checkAfter(name string) error {
	if strings.ContainsRune(name, 0) {
		return text.Invalid("name to list after %.200q has U+0000, which no name has", name)
	}
	return text.CheckForm("name to list after", name, len(name))
}

// inOrder returns the keys of a page in their order, each with the place of its record,
// or -1 if it is unreadable.
func inOrder(page driver.Page) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		bad := slices.Sorted(maps.Keys(page.Unreadable))
		for i, rec := range page.Records {
			for len(bad) > 0 && bad[0] < rec.Key {
				if !yield(bad[0], -1) {
					return
				}
				bad = bad[1:]
			}
			if !yield(rec.Key, i) {
				return
			}
		}
		for _, key := range bad {
			if !yield(key, -1) {
				return
			}
		}
	}
}
