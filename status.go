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
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/text"
)

// Status is what the record of a lock shows.
type Status struct {
	Name string
	// State is the state in the record: StateHeld, StateReserved or StateReleased; empty
	// without a record.
	State string
	// Held says that the record shows a holder that may be alive. If it is false and State is
	// held, the lease is over: a strong read, sent after the sign of life had been unchanged
	// for the lease, still showed it. The holder may have renewed it since. An acquire finds
	// that out by its write. A program that acts without an acquire must read again, by
	// [Client.Statuses].
	Held  bool
	Owner string // the holder, or the last one
	Token uint64 // 0: the lock was never taken
	Host  string
	Label string
	Since time.Time // when the holder took it, by its wall clock
	Until time.Time // when it was released, zero while it is held
	Data  []byte
	// Lease and Heartbeat are the holder's durations.
	Lease, Heartbeat time.Duration
	// Priority is the holder's; see [ElectionOptions.Priority].
	Priority int
	// ReservedFor is the owner that the lock is reserved for after a hand-over. That owner
	// may take the lock at once, while others wait for FreeIn. Owner is then the last
	// holder.
	ReservedFor string
	// ReservedForLabel is the label that the lock is reserved for, if ReservedFor is
	// empty: any process with that label may take the lock at once.
	ReservedForLabel string
	// Failover says that the lock is reserved for nobody because the store has failed over or
	// restarted, and may have lost who holds it: see [Options.LossyStore].
	Failover bool
	// Request is the request that the holder has not honoured yet.
	Request *Request
	// End says how the last term ended, as in [Term.End]; if the record shows a holder,
	// why the holder has stopped its heartbeats. EndedBy is the request that caused it, if
	// there was one.
	End     string
	EndedBy *Request
	// Unchanged is how long this client has observed no sign of life. FreeIn is how long
	// the lock stays held at most if none comes: 0 if only a read must still confirm that.
	Unchanged, FreeIn time.Duration
	// Previous is the previous term, or nil.
	Previous *Term
	// Session is the id of the session under which the lock is held, empty if it has its
	// own lease. Unchanged and FreeIn are then the session's.
	Session string
}

// States of a record, in [Status.State] and [SessionStatus.State].
const (
	StateHeld     = string(driver.Held)     // the lock has a holder, alive or not
	StateReserved = string(driver.Reserved) // the lock is reserved for ReservedFor, for ReservedForLabel, or for nobody
	StateReleased = string(driver.Released) // the lock is free
	StateAlive    = string(driver.Alive)    // the session keeps locks alive, if its owner lives
	StateClosed   = string(driver.Closed)   // the session has ended, and no lock is held under it
)

// How a term ended, in [Term.End] and [Status.End].
const (
	EndReleased     = string(driver.EndReleased)     // its holder released the lock
	EndExpired      = string(driver.EndExpired)      // it showed no life for its lease, and another holder took over
	EndSteppedDown  = string(driver.EndSteppedDown)  // it was asked to stop
	EndHandedOver   = string(driver.EndHandedOver)   // it was asked to hand over to another holder
	EndStalled      = string(driver.EndStalled)      // its work showed no progress
	EndStopTimeout  = string(driver.EndStopTimeout)  // its work did not stop in time
	EndAbandoned    = string(driver.EndAbandoned)    // its acquire was given up, and no work was done under it
	EndReleasedDead = string(driver.EndReleasedDead) // it was dead, and an operator released the lock
	EndRevoked      = string(driver.EndRevoked)      // an operator took the lock from it
	EndFailed       = string(driver.EndFailed)       // its holder released the lock because the work failed
	EndCrashed      = string(driver.EndCrashed)      // its process had certainly ended
	EndRaised       = string(driver.EndRaised)       // no holder: an operator raised the token after a loss of the store
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
		st.ReservedFor, st.FreeIn, st.Failover = r.Owner, s.FreeIn, protocol.InClosedLife(r)
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

// ReadOptions say how fresh an answer must be. Nil means strong reads.
type ReadOptions struct {
	// Eventual is for programs that poll: it allows reads that may be stale, and cost half as
	// much on DynamoDB, for records that are known and have no heartbeat due. If such a read
	// shows a change, the record is read again. So an answer may be as stale as such a read, but
	// never older than what this client has read before. An acquire of this client that acts on
	// such an answer reads again, or writes on the condition that the record is unchanged.
	Eventual bool

	// WithoutSessions leaves out the sessions under which locks are held. It is for programs
	// that know the sessions, or that read a lock rarely. Held, Unchanged and FreeIn of a
	// lock under a session then show what this client already knows of that session: until
	// it has read the session, Held is true and FreeIn is 0.
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
// in the order of the names: what [Client.Status] returns for each. The client
// remembers what it has read, for example for [Client.TryAcquire].
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
	// After is a name, which need not be the name of a lock. The list leaves out the locks
	// up to it, so that a program can continue after a part that it has read. On most
	// engines that costs only what is read; engines that list the names of all records for
	// each page (DynamoDB, Kubernetes, ZooKeeper, buckets) still do so.
	After string
}

// Locks reads the records of locks, in the order of their names. It may be slow. An
// unreadable record is yielded as an error, and the others follow.
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
			page, seen, err := c.engine.List(ctx, prefix, cursor) // note all of it before a slow caller continues
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

// checkAfter returns an error if some store cannot compare the name with others.
func checkAfter(name string) error {
	if strings.ContainsRune(name, 0) {
		return text.Invalid("name to list after %.200q contains U+0000, which no lock name contains", name)
	}
	return text.CheckForm("name to list after", name, len(name))
}

// inOrder returns the keys of a page in order, each with the index of its record, or -1
// if it is unreadable.
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
