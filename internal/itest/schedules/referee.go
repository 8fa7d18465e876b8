// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/tenuretest"
)

// written is a write as the store has made it.
type written struct {
	at time.Time
	tenuretest.Write
}

// first reports whether the write created the record, deleted whether it deleted it.
func (w written) first() bool   { return w.Prev.Key == "" }
func (w written) deleted() bool { return w.Next.Key == "" }

// alive reports whether the write shows life of a holder, or a proper end: anything but a
// request, or another process's write to a dead holder's record.
func (w written) alive() bool {
	return w.first() || w.deleted() ||
		w.Next.Beat != w.Prev.Beat || w.Next.Token != w.Prev.Token || w.Next.State != w.Prev.State
}

// ledger has every write that the store has made, in order: the truth
// which the answers of clients are compared with.
type ledger struct {
	mu     sync.Mutex
	writes map[string][]written // by key
}

func (l *ledger) add(made tenuretest.Write) written {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := cmp.Or(made.Next.Key, made.Prev.Key)
	l.writes[key] = append(l.writes[key], written{time.Now(), made})
	return written{time.Now(), made}
}

// of returns the writes of a key.
func (l *ledger) of(key string) []written {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes[key]
}

// record returns the record of key, the zero one if it is absent.
func (l *ledger) record(key string) (rec driver.Record) {
	if all := l.of(key); len(all) > 0 {
		rec = all[len(all)-1].Next
	}
	return rec
}

// at returns the record of key at an instant, before the writes of that instant.
func (l *ledger) at(key string, at time.Time) (rec driver.Record) {
	for _, w := range l.of(key) {
		if !w.at.Before(at) {
			break
		}
		rec = w.Next
	}
	return rec
}

// since reports whether f is true of a write of key made since an instant.
func (l *ledger) since(from time.Time, key string, f func(written) bool) bool {
	return slices.ContainsFunc(l.of(key), func(w written) bool { return !w.at.Before(from) && f(w) })
}

// maxViolations is how many violations a report lists.
const maxViolations = 10

// holding is a lease that an act holds.
type holding struct {
	*tenure.Lease
	p     *process
	line  *line
	ended bool // Check has failed once
}

func (h *holding) String() string {
	return fmt.Sprintf("p%d's lease of %s under token %d", h.p.n, h.Name(), h.Token())
}

// referee knows all leases, and reports violations.
type referee struct {
	w  *world
	mu sync.Mutex
	// leases are, by lock, the leases whose Check has not failed yet, and that
	// belong to a live process.
	leases map[string][]*holding
	tokens map[string][]uint64 // granted, by lock
	wrongs []string
	fence  map[string]uint64 // what the resources behind the locks have seen
}

func newReferee(w *world) *referee {
	return &referee{w: w, leases: map[string][]*holding{}, tokens: map[string][]uint64{}, fence: map[string]uint64{}}
}

// wrong notes a violation.
func (r *referee) wrong(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.w.logf("WRONG: %s", text)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.wrongs) < maxViolations {
		r.wrongs = append(r.wrongs, fmt.Sprintf("at %v: %s", r.w.elapsed(), text))
	}
}

func (r *referee) violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.wrongs)
}

// granted notes a new lease, and judges what it means for the others.
func (r *referee) granted(ln *line, l *tenure.Lease) *holding {
	h := &holding{Lease: l, p: ln.p, line: ln}
	r.mu.Lock()
	again := slices.Contains(r.tokens[l.Name()], l.Token())
	r.tokens[l.Name()] = append(r.tokens[l.Name()], l.Token())
	r.leases[l.Name()] = append(r.leases[l.Name()], h)
	r.mu.Unlock()
	if again {
		r.wrong("token %d of %s is given twice", l.Token(), l.Name())
	}
	r.w.happened("grant")
	if l.Session() != nil {
		r.w.happened("grant under a session")
	}
	r.w.watchers.Go(func() { r.punctual(h) })
	r.look(l.Name())
	return h
}

// look checks all leases of a lock.
func (r *referee) look(lock string) {
	if good := r.good(lock); len(good) > 1 {
		r.wrong("two holders: %v and %v", good[0], good[1])
	}
}

// lookAll checks all leases.
func (r *referee) lookAll() {
	for _, lock := range r.w.plan.Locks {
		r.look(lock)
	}
}

// check checks a lease, and reports whether its holder may act. A paused process
// does not check.
func (r *referee) check(h *holding) bool {
	if h.p.isPaused() {
		return false
	}
	if h.Check() != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		h.ended = true
		return false
	}
	r.mu.Lock()
	ended := h.ended
	r.mu.Unlock()
	if ended {
		r.wrong("%v came back", h)
	}
	rec := r.w.ledger.record(h.Name())
	switch {
	case rec.Key == "":
		r.wrong("%v is good, and the record is gone", h)
	case rec.Token != h.Token():
		r.wrong("%v is good, and the store says %s under token %d", h, rec.State, rec.Token)
	}
	if s := h.Session(); s != nil {
		if rec := r.w.ledger.record(driver.SessionKey(s.ID())); rec.State != driver.Alive {
			r.wrong("%v is good, and its session is %q in the store", h, rec.State)
		}
	}
	r.checkDeadline(h)
	return true
}

// checkDeadline compares the deadline of a good lease with the last of its heartbeats
// that the store has applied: counted from before that heartbeat was sent, the deadline
// lies within the window.
func (r *referee) checkDeadline(h *holding) {
	key, of, drift := h.Name(), h.Timing(), h.line.client.Options().MaxClockDrift
	if s := h.Session(); s != nil {
		key = driver.SessionKey(s.ID())
	}
	var last time.Duration
	known := false
	for _, w := range slices.Backward(r.w.ledger.of(key)) {
		if known {
			break
		}
		beat := !w.deleted() && (w.first() || w.Next.Beat != w.Prev.Beat)
		if beat && (h.Session() != nil || w.Next.Token == h.Token()) {
			last, known = h.line.sentAt(w.Next.Version)
		}
	}
	deadline := h.line.client.Options().Clock.Holder() + h.Remaining()
	usable := time.Duration(float64(of.LeaseDuration)*(1-drift)/(1+drift)) - of.Grace
	switch {
	case !known:
		r.wrong("%v is good, and the store has seen no write of it", h)
	case deadline > last+usable+time.Microsecond:
		r.wrong("%v has its deadline %v later than the last heartbeat in the store allows", h, deadline-last-usable)
	}
}

// punctual checks that the context of a lease ends at its deadline.
func (r *referee) punctual(h *holding) {
	nap := max(min(time.Second, h.Timing().Grace/4), time.Millisecond)
	for {
		late := nap + time.Millisecond
		if h.p.isSteady() {
			late = time.Nanosecond
		}
		timer := time.NewTimer(h.Remaining() + late)
		select {
		case <-h.Context().Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		// What was known of the clock before the wait counts for it.
		if h.Remaining() == 0 && h.Context().Err() == nil && (late > time.Nanosecond || h.p.isSteady()) {
			r.wrong("the context of %v has not ended %v after its deadline", h, late)
			return
		}
	}
}

// act writes to the resource behind the lock as a holder that has just checked,
// unless it must not.
func (r *referee) act(h *holding) {
	if h.p.isPaused() || h.Check() != nil {
		return
	}
	r.look(h.Name())
	r.mu.Lock()
	highest := r.fence[h.Name()]
	r.fence[h.Name()] = max(highest, h.Token())
	r.mu.Unlock()
	if highest > h.Token() {
		r.wrong("%v has just checked, and the resource has seen token %d", h, highest)
	}
}

// forget drops the leases of a crashed client: no work acts on them.
func (r *referee) forget(ln *line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for lock, all := range r.leases {
		r.leases[lock] = slices.DeleteFunc(all, func(h *holding) bool { return h.line == ln })
	}
}

// write judges a write. The store calls it for each one.
func (r *referee) write(w written) {
	switch {
	case w.deleted():
		if w.Prev.State != driver.Past && w.Prev.State != driver.Closed {
			r.wrong("the record of %s is deleted as %s", r.w.name(w.Prev.Key), w.Prev.State)
		}
	case w.Next.State == driver.Closed:
		r.lookAll()
	case w.Next.State == driver.Past || w.Next.State.OfSession():
	default:
		if w.Next.Token < w.Prev.Token {
			r.wrong("the token of %s goes back from %d to %d", w.Next.Key, w.Prev.Token, w.Next.Token)
		}
		if w.Next.Token > w.Prev.Token && w.Prev.State == driver.Held {
			r.w.happened("takeover")
		}
		r.look(w.Next.Key)
	}
}
