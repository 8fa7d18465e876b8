// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package linearize

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tenurelock/tenure/driver"
)

// kind is a kind of call.
type kind string

const (
	get    kind = "get"
	claim  kind = "claim"
	swap   kind = "swap"
	remove kind = "delete"
	// settled is no call: from here on nothing that was under way arrives any
	// more. And over is the end of the history.
	settled kind = "settled"
	over    kind = "over"
)

// snapshot is what the model knows of a record. It can be compared with ==.
type snapshot struct {
	Found    bool
	Version  string
	Beat     string
	Token    uint64
	State    driver.State
	Owner    string
	Session  string
	Data     string
	Requests string // their ids, and what they mean
	Asked    string // the id of the request that ended the tenure
	End      driver.EndReason
	Prev     tenure // the tenure before
}

// tenure is what the model knows of a driver.Tenure.
type tenure struct {
	Token uint64
	End   driver.EndReason
	Asked string
}

func snap(r driver.Record) snapshot {
	s := snapshot{
		Found: r.Key != "", Version: r.Version, Beat: r.Beat, Token: r.Token, State: r.State, Owner: r.Owner,
		Session: r.Session, Data: string(r.Data), Asked: id(r.Asked), End: r.End,
	}
	for _, request := range r.Requests {
		s.Requests += fmt.Sprint(request.ID, "/", request.Lock, "/", request.Token, " ")
	}
	if p := r.Prev; p != nil {
		s.Prev = tenure{Token: p.Token, End: p.End, Asked: id(p.Asked)}
	}
	return s
}

func id(q *driver.Request) string {
	if q == nil {
		return ""
	}
	return q.ID
}

func (s snapshot) String() string {
	if !s.Found {
		return "absent"
	}
	return fmt.Sprintf("%s by %s under %q, token %d, version %s, beat %s, data %q, requests %q, asked %q, after %+v",
		s.State, s.Owner, s.Session, s.Token, s.Version, s.Beat, s.Data, s.Requests, s.Asked, s.Prev)
}

// outcome says how a call ended.
type outcome string

const (
	done       outcome = "done"
	conflicted outcome = "conflict"
	unknown    outcome = "unknown"
)

// input is what a client asked for.
type input struct {
	kind     kind
	key      string
	from     snapshot // of a swap or delete: what it replaces
	next     snapshot // of a claim or swap: what it writes
	keepData bool     // of a claim: the data stays
}

// output is what a client was told.
type output struct {
	outcome  outcome
	now      snapshot // the record after a write, or that a read or a conflict showed
	replaced snapshot // of a claim
}

// call is one call of a client and its place in time.
type call struct {
	client     int
	in         input
	out        output
	start, end int64
}

// history records the calls of a round. Its clock is a counter: calls that did
// not overlap have numbers in their order.
type history struct {
	conflictsReadLater bool
	claimsGiveUp       bool

	mu    sync.Mutex
	clock int64
	calls []call
	// foreign says that the store itself, and not a fault, left an outcome
	// unknown. Such a write may take effect at any later time.
	foreign bool
}

func (h *history) tick() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	return h.clock
}

func (h *history) add(c call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
}

func (h *history) unknown() int {
	n := 0
	for _, c := range h.calls {
		if c.out.outcome == unknown {
			n++
		}
	}
	return n
}

// mark records that a point in the history of each key has been reached.
func (h *history) mark(point kind, keys []string) {
	for _, key := range keys {
		at := h.tick()
		h.add(call{in: input{kind: point, key: key}, out: output{outcome: done}, start: at, end: at})
	}
}

// write records a write that began at start and ended in err. A write that was not
// applied is left out: a read that shows it fails the check.
func (h *history) write(client int, start int64, in input, now, prev driver.Record, err error) {
	c := call{client: client, in: in, start: start, end: h.tick()}
	var conflict *driver.ConflictError
	switch {
	case err == nil:
		c.out = output{outcome: done, now: snap(now), replaced: snap(prev)}
	case errors.As(err, &conflict):
		c.out = output{outcome: conflicted, now: snap(conflict.Current)}
	case errors.Is(err, driver.ErrNotApplied):
		return
	default:
		c.out = output{outcome: unknown}
	}
	h.add(c)
}

// copied records that a write which began at start may arrive once more.
func (h *history) copied(client int, start int64, in input) {
	h.add(call{client: client, in: in, start: start, out: output{outcome: unknown}})
}

// read records a strong read. One that failed says nothing and is left out.
func (h *history) read(client int, start int64, key string, rec driver.Record, err error) {
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return
	}
	h.add(call{
		client: client, in: input{kind: get, key: key}, out: output{outcome: done, now: snap(rec)},
		start: start, end: h.tick(),
	})
}
