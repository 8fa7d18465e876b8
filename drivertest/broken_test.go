// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// database is a store written only from package driver, independent of
// memstore, with one possible bug.
type database struct {
	bug string

	mu      sync.Mutex
	records map[string]driver.Record
	nodes   map[string]int    // how many writes the life of each key has had
	kept    map[string]uint64 // the tokens of deleted keys, where they are kept
	hang    chan struct{}     // closed when the engine answers again; nil if it does
	watches map[int]watch
	serial  int
	aside   chan struct{}
	calls   atomic.Int64 // of a kind that a bug counts
}

type watch struct {
	key   string
	owner *handle
	armed time.Time
	hint  func()
}

func newDatabase(bug string) *database {
	return &database{bug: bug, records: map[string]driver.Record{}, nodes: map[string]int{}, kept: map[string]uint64{}, watches: map[int]watch{}, aside: make(chan struct{})}
}

// stepAside gives up db.mu until another call has given it up in the same place, so
// that calls which race meet there on any machine; a call that is alone goes on.
func (db *database) stepAside() {
	db.mu.Unlock()
	defer db.mu.Lock()
	select {
	case db.aside <- struct{}{}:
	case <-db.aside:
	case <-time.After(100 * time.Millisecond):
	}
}

func (db *database) is(bug string) bool { return db.bug == bug }

// open returns a handle. All have a Watch and a Raise, but for one bug each.
func (db *database) open() driver.Store {
	h := &handle{db: db, cache: map[string]driver.Record{}, nodes: map[string]node{}}
	switch {
	case db.is("no Watch"):
		return struct{ driver.Store }{h}
	case db.is("no Raise"):
		return struct {
			driver.Store
			driver.Watcher
		}{h, h}
	case db.keeping() && !db.is("keeping, not listed"):
		return retainer{h}
	}
	return h
}

type handle struct {
	db     *database
	mu     sync.Mutex
	closed bool
	dialed bool // its connection for changes is open
	cache  map[string]driver.Record
	nodes  map[string]node // the last record that it saw, by key
	wrote  sync.Map        // the last record that it wrote, by key
	reads  sync.Map        // those under way, by key
}

func (h *handle) fail(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed && !h.db.is("usable after Close") {
		return driver.ErrClosed
	}
	if h.db.is("context ignored") {
		return nil
	}
	h.dialed = true
	h.mu.Unlock()
	defer h.mu.Lock()
	return h.db.answer(ctx, false)
}

func (h *handle) id(key string) string {
	switch {
	case h.db.is("keys in lower case"):
		return strings.ToLower(key)
	case h.db.is("keys trimmed"):
		return strings.TrimRight(key, " ")
	}
	return key
}

func (h *handle) Get(ctx context.Context, key string, _ driver.Consistency) (driver.Record, error) {
	switch h.db.bug {
	case "reads joined":
		return h.join(ctx, key)
	case "third read lags":
		if rec, ok := h.wrote.Load(key); ok && h.db.calls.Add(1)%3 == 0 {
			return rec.(driver.Record).Clone(), nil
		}
	}
	return h.get(ctx, key)
}

// join gives a read the answer of the read that is under way, which may be older
// than a write that the caller knows of.
func (h *handle) join(ctx context.Context, key string) (driver.Record, error) {
	read := sync.OnceValues(func() (driver.Record, error) {
		defer h.reads.Delete(key)
		rec, err := h.get(ctx, key)
		<-time.After(time.Millisecond)
		return rec, err
	})
	first, _ := h.reads.LoadOrStore(key, read)
	rec, err := first.(func() (driver.Record, error))()
	return rec.Clone(), err
}

func (h *handle) get(ctx context.Context, key string) (driver.Record, error) {
	if h.db.is("read hangs past its context") {
		_ = h.db.answer(ctx, true)
	}
	if err := h.fail(ctx); err != nil {
		return driver.Record{}, err
	}
	h.db.mu.Lock()
	defer h.db.mu.Unlock()
	r, found := h.db.records[h.id(key)]
	if cached, ok := h.cache[key]; ok && h.db.is("reads cached") {
		return cached.Clone(), nil
	}
	if !found {
		return driver.Record{}, fmt.Errorf("get: %w", driver.ErrNotFound)
	}
	if r.State == unreadable {
		if h.db.is("unreadable read as it is") {
			return r.Clone(), nil
		}
		return driver.Record{}, driver.ErrUnreadable
	}
	h.cache[key] = r
	h.saw(r)
	c := h.copy(r)
	if h.db.is("memory of a read shared") {
		h.cache[key] = c
	}
	return c, nil
}

// unreadable is the state of a record that simulates another format.
const unreadable driver.State = "unreadable"

func (h *handle) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := h.fail(ctx); err != nil {
		return now, prev, driver.NotApplied(err)
	}
	if err := driver.CheckClaim(next); err != nil && !h.db.is("writes unchecked") && !h.textOnly(err) {
		return now, prev, err
	}
	if err := h.refuse(next); err != nil {
		return now, prev, err
	}
	h.db.mu.Lock()
	defer h.db.mu.Unlock()
	prev, found := h.db.records[h.id(next.Key)]
	if h.db.is("claim not atomic") {
		h.db.stepAside()
	}
	if seen, ok := h.cache[next.Key]; ok && h.db.is("memory of a read shared") && seen.Version == prev.Version && seen.Token == prev.Token {
		prev = seen // the guess is right
	}
	if seen, ok := h.cache[next.Key]; ok && h.db.is("memory without long data") && seen.Version == prev.Version && len(prev.Data) > 4<<10 {
		prev.Data = nil
	}
	free := !found || prev.State == driver.Released || h.claimsMore(prev, next)
	switch {
	case found && prev.State == unreadable && !h.db.is("unreadable claimed"):
		return driver.Record{}, driver.Record{}, driver.ErrUnreadable
	case !free && prev.State != unreadable:
		return driver.Record{}, driver.Record{}, h.conflict(prev, found, next.Key)
	case prev.Token == driver.MaxToken && !h.db.is("token wraps"):
		return driver.Record{}, driver.Record{}, errors.New("no more tokens")
	}
	now = driver.Claimed(next, prev, found)
	if !found {
		now.Token += h.db.kept[next.Key]
		delete(h.db.kept, next.Key)
	}
	switch h.db.bug {
	case "token not raised":
		now.Token = max(prev.Token, 1)
	case "token of the caller":
		now.Token = max(next.Token, 1)
	case "token wraps":
		now.Token &= driver.MaxToken
	case "claim loses data":
		now.Data = next.Data
	case "claim forgets Prev":
		now.Prev = nil
	case "claim forgets who asked":
		if now.Prev != nil {
			now.Prev.Asked = nil
		}
	case "claim keeps who asked":
		now.Asked = prev.Asked
	case "memory of a claim shared":
		if now.Prev != nil && prev.Asked != nil {
			now.Prev.Asked = prev.Asked
			h.put(h.keep(now))
			return now, prev, nil
		}
	case "Prev always released":
		if now.Prev != nil {
			now.Prev.End = driver.EndReleased
		}
	}
	now = h.keep(now)
	h.put(now)
	if h.db.is("claim sent twice") {
		return driver.Record{}, driver.Record{}, h.conflict(now, true, next.Key)
	}
	if h.db.is("claim returns no prev") {
		prev = driver.Record{}
	}
	return h.copy(now), h.copy(prev), nil
}

// refuse returns an error for what a bug does not let in.
func (h *handle) refuse(next driver.Record) error {
	switch {
	case h.db.is("past refused") && next.State == driver.Past,
		h.db.is("keys of ours refused") && strings.HasPrefix(next.Key, driver.OwnPrefix),
		h.db.is("long keys refused") && len(next.Key) > driver.MaxNameLen,
		h.db.is("claim under a session refused") && next.Session != "",
		h.db.is("sessions refused") && next.State.OfSession(),
		h.db.is("reserved for nobody refused") && next.Owner == "":
		return driver.NotApplied(driver.Permanent(errors.New("not allowed")))
	}
	return nil
}

// claimsMore reports whether a bug lets a claim take a lock that is not free.
func (h *handle) claimsMore(prev, next driver.Record) bool {
	switch h.db.bug {
	case "claim overwrites held":
		return true
	case "claim takes unknown states":
		return prev.State != driver.Held && prev.State != driver.Reserved && prev.State != driver.Past
	case "claim takes reserved":
		return prev.State == driver.Reserved
	case "claim takes what is reserved for it":
		return prev.State == driver.Reserved && prev.Owner == next.Owner
	case "claim takes past":
		return prev.State == driver.Past
	case "claim takes alive":
		return prev.State == driver.Alive
	case "claim takes closed":
		return prev.State == driver.Closed
	case "opening takes closed":
		return prev.State == driver.Closed && next.State == driver.Alive
	case "claim takes held with an end":
		return prev.State == driver.Held && prev.End != ""
	case "past overwrites past":
		return prev.State == driver.Past && next.State == driver.Past
	}
	return false
}

func (h *handle) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	if err := h.fail(ctx); err != nil {
		return driver.Record{}, driver.NotApplied(err)
	}
	if err := driver.CheckSwap(prev, next); err != nil && !h.db.is("writes unchecked") && !h.textOnly(err) &&
		!(h.db.is("sessions unchecked") && prev.State == driver.Closed) {
		return driver.Record{}, err
	}
	if err := h.refuse(next); err != nil {
		return driver.Record{}, err
	}
	h.db.mu.Lock()
	stored, found := h.db.records[h.id(next.Key)]
	if h.db.is("swap not atomic") || h.db.is("takeover not atomic") && next.Token != stored.Token {
		h.db.stepAside()
	}
	if same, known := h.byNode(prev); known && found && same {
		// This store asks no more.
	} else if !found && !h.db.is("swap creates") && !(h.db.is("closed by anybody") && next.State == driver.Closed) ||
		found && stored.Version != prev.Version && !h.db.is("swap ignores version") &&
			!(h.db.is("requests ignore version") && stored.State == driver.Held && driver.AddsRequest(prev, next)) &&
			!(h.db.is("closed renewed") && stored.State == driver.Closed) &&
			!(h.db.is("swap takes what differs in its version alone") && differInVersion(stored, prev)) &&
			!(h.db.is("reservations ignore version") && next.State == driver.Reserved) &&
			!(h.db.is("releases ignore version") && next.State == driver.Released) ||
		found && stored.Token != prev.Token && !h.db.is("swap ignores token") && !(h.db.is("releases ignore version") && next.State == driver.Released) ||
		found && stored.Owner != prev.Owner && h.db.is("swap compares owner") {
		defer h.db.mu.Unlock()
		if rec, ok := h.wrote.Load(next.Key); ok && h.db.is("conflicts lag") {
			stored = rec.(driver.Record)
		}
		return driver.Record{}, h.conflict(stored, found, next.Key)
	}
	switch {
	case h.db.is("swap merges") && next.Data == nil:
		next.Data = stored.Data
	case h.db.is("session stays at the release") && next.State == driver.Released,
		h.db.is("session stays at a takeover") && next.Session == "" && next.Token != stored.Token,
		h.db.is("session stays in a term") && next.Token == stored.Token && next.State == driver.Held:
		next.Session = stored.Session
	case h.db.is("release keeps version") && next.State == driver.Released:
		next.Version = stored.Version
	case h.db.is("takeover keeps token"),
		h.db.is("taking what is reserved keeps token") && stored.State == driver.Reserved:
		next.Token = stored.Token
	case h.db.is("reservation raises token") && next.State == driver.Reserved && stored.State == driver.Held:
		next.Token++
	case h.db.is("requests add up") && len(next.Requests) > 0:
		next.Requests = append(slices.Clone(stored.Requests), next.Requests...)
	}
	next = h.keep(next)
	h.put(next)
	h.wrote.Store(next.Key, next)
	if h.db.is("tenth swap said to be not applied") && h.db.calls.Add(1)%10 == 0 {
		defer h.db.mu.Unlock()
		return driver.Record{}, driver.NotApplied(errors.New("timeout"))
	}
	if h.db.is("memory without long data") {
		h.cache[next.Key] = next
	}
	if h.db.is("release deletes") && next.State == driver.Released {
		delete(h.db.records, h.id(next.Key))
	}
	h.db.mu.Unlock()
	if driver.Wakes(stored, next) &&
		!(h.db.is("no hint of a reservation") && next.State == driver.Reserved) &&
		!(h.db.is("no hint of a closing") && next.State == driver.Closed) &&
		!(h.db.is("no hint of a request") && next.State == driver.Held) &&
		!(h.db.is("hint of the first request alone") && len(stored.Requests) > 0) {
		h.hint(next.Key)
	}
	if h.db.is("applied said to be not at Close") {
		<-time.After(200 * time.Microsecond)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.closed {
			return driver.Record{}, driver.NotApplied(driver.ErrClosed)
		}
	}
	if h.db.is("applied said to be not") {
		runtime.Gosched()
		if err := ctx.Err(); err != nil {
			return driver.Record{}, driver.NotApplied(err)
		}
	}
	return h.copy(next), nil
}

// differInVersion reports whether two records are the same but for their versions.
func differInVersion(a, b driver.Record) bool {
	a, b = a.Detach(), b.Detach()
	a.Version = b.Version
	return reflect.DeepEqual(a, b)
}

func (h *handle) Delete(ctx context.Context, prev driver.Record) error {
	if err := h.fail(ctx); err != nil {
		return driver.NotApplied(err)
	}
	h.db.mu.Lock()
	stored, found := h.db.records[h.id(prev.Key)]
	if !found {
		h.db.mu.Unlock()
		if h.db.is("delete of absent fails") {
			return driver.ErrNotFound
		}
		return nil
	}
	if h.db.is("past not deleted") && stored.State == driver.Past || h.db.is("closed not deleted") && stored.State == driver.Closed {
		h.db.mu.Unlock()
		return driver.NotApplied(driver.Permanent(errors.New("history is for ever")))
	}
	if same, known := h.byNode(prev); known && same {
		// As at Swap.
	} else if stored.Token != prev.Token && !h.db.is("delete ignores token") ||
		stored.Owner != prev.Owner && h.db.is("delete compares owner") ||
		stored.Version != prev.Version && !h.db.is("delete ignores version") {
		defer h.db.mu.Unlock()
		return h.conflict(stored, found, prev.Key)
	}
	if h.db.is("delete not atomic") {
		h.db.mu.Unlock()
		<-time.After(time.Millisecond)
		h.db.mu.Lock()
	}
	delete(h.db.records, h.id(prev.Key))
	delete(h.db.nodes, h.id(prev.Key))
	if h.db.keeping() {
		h.db.kept[prev.Key] = stored.Token
	}
	if h.db.is("delete takes the prefix") {
		for key := range h.db.records {
			if strings.HasPrefix(key, prev.Key) {
				delete(h.db.records, key)
			}
		}
	}
	h.db.mu.Unlock()
	if !h.db.is("no hint of delete") {
		h.hint(prev.Key)
	}
	return nil
}
