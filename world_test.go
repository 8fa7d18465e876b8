// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

// The timing of a client with the defaults, and what follows from it: the
// deadline lies window - grace after the instant at which the last confirmed
// write was sent.
const (
	lease          = 15 * time.Second
	heartbeat      = lease / 5
	refresh        = time.Second
	requestTimeout = lease / 10
	stopTimeout    = lease
)

// usable returns how long after a confirmed write its holder may act.
func usable(t *testing.T) time.Duration {
	t.Helper()
	drift, whole := 0.09, float64(lease)
	return time.Duration(whole*(1-drift)/(1+drift)) - lease/8
}

// world is one set of records, and the machines that share it. Make it inside
// a synctest bubble.
type world struct {
	t       *testing.T
	records driver.Store
	open    func() driver.Store // a further handle onto the records
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newPagedWorld(t, 0)
}

// inWorld runs the test in a bubble, with a world.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

// inWorldRun runs a subtest in a bubble, with a world.
func inWorldRun(t *testing.T, name string, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inWorld(t, test) })
}

// engine returns how a test opens its records on another store than package memstore. The root
// module cannot import one: internal/itest/testdata/engine_test.go does, and scripts/nightly
// adds that file to these. Tests that bring a store of their own do without it.
var engine func(t *testing.T) (open func() driver.Store)

// notOnEngines skips a test that only package memstore can pass.
func notOnEngines(t *testing.T, why string) {
	t.Helper()
	if engine != nil {
		t.Skip("not on this engine: " + why)
	}
}

const (
	noStaleReads = "its reads are not behind when they are told to be"
	tooManyCalls = "it makes thousands of calls, for what is no matter of the store"
)

// newPagedWorld returns a world whose lists have pages of the given size, 0 for
// the store's own.
func newPagedWorld(t *testing.T, pageSize int) *world {
	t.Helper()
	if engine != nil {
		open := engine(t)
		return &world{t: t, records: open(), open: open}
	}
	records := memstore.New()
	records.PageSize = pageSize
	return &world{t: t, records: records, open: func() driver.Store { return records.Open() }}
}

// machine is one client, with faults of its own on its way to the records.
type machine struct {
	*tenure.Client
	t      *testing.T
	faults *faultstore.Store
	events *recorder
	reads  int // of one key in a second, at most: see boundReads
}

// readsPerSecond bounds how often a client reads a key in a second, whatever
// happens. Looks are a refresh period apart; the rest is for what was asked for.
const readsPerSecond = 12

// boundReads fails the test if the client has read a key more often than that in
// any second: something reads without a pause then. A test that itself asks more
// often says so.
func (m *machine) boundReads() {
	m.t.Helper()
	if engine != nil {
		return // there a second is one of the machine's
	}
	recent := map[string][]time.Time{}
	for _, call := range m.faults.Log() {
		if call.Op != faultstore.OpGet {
			continue
		}
		at := append(recent[call.Key], call.Begin)
		for call.Begin.Sub(at[0]) >= time.Second {
			at = at[1:]
		}
		if recent[call.Key] = at; len(at) > m.reads {
			m.t.Errorf("%s read %q %d times within %v, from %v on: at most %d a second are allowed",
				m.Options().Owner, call.Key, len(at), call.Begin.Sub(at[0]), at[0].Format("15:04:05.000"), m.reads)
			return
		}
	}
}

// machine returns a client of the given owner. It is closed with the test.
func (w *world) machine(owner string, edit ...func(*tenure.Options)) *machine {
	w.t.Helper()
	m := &machine{t: w.t, faults: faultstore.New(w.open(), nil), events: &recorder{}, reads: readsPerSecond}
	o := tenure.Options{Owner: owner, Host: "host-of-" + owner, Clock: tenure.MonotonicClock(), OnEvent: m.events.add}
	for _, e := range edit {
		e(&o)
	}
	c := mustNew(w.t, m.faults.Driver(), &o)
	m.Client = c
	w.t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(w.t.Context()), time.Hour)
		defer stop()
		if err := c.Close(ctx); errors.Is(err, context.DeadlineExceeded) {
			w.t.Errorf("close of %s: %v", owner, err)
		}
		m.boundReads()
		m.faults.Close()
	})
	return m
}

// mustNew returns a client.
func mustNew(tb testing.TB, store driver.Store, o *tenure.Options) *tenure.Client {
	tb.Helper()
	c, err := tenure.New(store, o)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// record returns the record of the lock as it stands.
func (w *world) record(name string) driver.Record {
	w.t.Helper()
	rec, err := w.records.Get(w.t.Context(), name, driver.Strong)
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// mustAcquire acquires the lock.
func (m *machine) mustAcquire(name string, o *tenure.AcquireOptions) *tenure.Lease {
	m.t.Helper()
	l, err := m.Acquire(m.t.Context(), name, o)
	if err != nil {
		m.t.Fatal(err)
	}
	return l
}

// mustTry acquires the lock, which must be free.
func (m *machine) mustTry(name string, o *tenure.AcquireOptions) *tenure.Lease {
	m.t.Helper()
	l, err := m.TryAcquire(m.t.Context(), name, o)
	if err != nil {
		m.t.Fatal(err)
	}
	return l
}

// takes acquires the lock, under a session of its own or not.
func (m *machine) takes(name string, underSession bool) *tenure.Lease {
	m.t.Helper()
	if underSession {
		return m.mustTake(m.mustOpen(nil), name)
	}
	return m.mustAcquire(name, nil)
}

func (m *machine) mustRelease(l *tenure.Lease) {
	m.t.Helper()
	if err := l.Release(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

// fault has the next calls of a kind fail; count 0: all of them.
func (m *machine) fault(op faultstore.Op, skip, count int, f faultstore.Fault) (remove func()) {
	return m.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{op}, Skip: skip, Count: count, Fault: f})
}

// calls counts the calls of a machine by their kinds while f runs, those of the history
// left out.
func (m *machine) calls(f func()) string {
	m.faults.ResetLog()
	f()
	var all []string
	for _, c := range m.faults.Log() {
		if !strings.HasPrefix(c.Key, driver.OwnPrefix) && c.Op != faultstore.OpWatch && c.Op != faultstore.OpHint {
			all = append(all, string(c.Op))
		}
	}
	return strings.Join(all, " ")
}

// crash cuts the machine off the records, for good.
func (m *machine) crash() { m.faults.SetBlackHole(true) }

// recorder keeps the events of a client.
type recorder struct {
	mu     sync.Mutex
	events []tenure.Event
}

func (r *recorder) add(e tenure.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// all returns the events until now.
func (r *recorder) all() []tenure.Event {
	synctest.Wait() // they are handed over by a goroutine of their own
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// kinds returns the kinds of the events in their order, renewals left out.
func (r *recorder) kinds() string {
	var kinds []string
	for _, e := range r.all() {
		if e.Kind != tenure.EventRenewed {
			kinds = append(kinds, string(e.Kind))
		}
	}
	return strings.Join(kinds, " ")
}

// of returns the events of one kind.
func (r *recorder) of(kind tenure.EventKind) []tenure.Event {
	return slices.DeleteFunc(r.all(), func(e tenure.Event) bool { return e.Kind != kind })
}

// within returns what f returns, and fails the test unless f took from least
// to most.
func within(t *testing.T, least, most time.Duration, f func() error) error {
	t.Helper()
	start := time.Now()
	err := f()
	if took := time.Since(start); took < least || took > most {
		t.Errorf("took %v, want %v to %v", took, least, most)
	}
	return err
}

// want fails the test if err does not match target; nil wants no error.
func want(t *testing.T, err, target error) {
	t.Helper()
	if target == nil && err != nil {
		t.Errorf("got error %q, want none", err)
	}
	if target != nil && !errors.Is(err, target) {
		t.Errorf("got error %v, want one that matches %q", err, target)
	}
}

// started runs f in a goroutine and returns a channel with its error.
func started(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// pending fails the test if done has a value already.
func pending(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s returned already: %v", what, err)
	default:
	}
}

// names returns n names of locks.
func names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("lock-%05d", i)
	}
	return names
}

// crowd is how many locks are many: fewer where each request goes to an engine.
func crowd() int {
	switch {
	case engine != nil:
		return 100
	case testing.Short():
		return 300
	}
	return 1000
}

// noWork is for a campaign that is not won.
func noWork(context.Context, *tenure.Lease) error { panic("work without a lease") }

// observes watches an election until its context ends, whatever comes.
func (m *machine) observes(ctx context.Context, name string) {
	for _, err := range m.Election(name, nil).Observe(ctx) {
		_ = err // it goes on
	}
}

// because asks a holder to step down for a reason, and for nobody.
func because(why string) *tenure.StepDownOptions { return &tenure.StepDownOptions{Reason: why} }

// What operators do, by this client.

func (m *machine) Revoke(ctx context.Context, name, reason string) error {
	return admin.Revoke(ctx, m.Client, name, reason)
}

func (m *machine) ReleaseDead(ctx context.Context, name, reason string) error {
	return admin.ReleaseDead(ctx, m.Client, name, reason)
}

func (m *machine) Sweep(ctx context.Context) (int, error) { return admin.Sweep(ctx, m.Client) }
