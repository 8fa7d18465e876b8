// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package admin_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/tenuretest"
)

// The timing of a client with the defaults.
const (
	lease          = 15 * time.Second
	heartbeat      = lease / 5
	refresh        = time.Second
	requestTimeout = lease / 10
)

type world struct {
	*tenuretest.World
	t *testing.T
}

// inWorld runs the test in a bubble, with a world.
func inWorld(t *testing.T, test func(t *testing.T, w world)) { t.Helper(); inPages(t, 0, test) }

// inPages is inWorld where a list has pages of the given size, 0 for the store's own.
func inPages(t *testing.T, size int, test func(t *testing.T, w world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		records := memstore.New()
		records.PageSize = size
		test(t, world{tenuretest.On(t, func() driver.Store { return records.Open() }), t})
	})
}

// machine is a client that reads no key without a pause.
type machine struct {
	*tenure.Client
	t      *testing.T
	faults *faultstore.Store
	crash  func() // cuts it off the records, for good
}

func (w world) machine(name string, edit ...func(*tenure.Options)) *machine {
	w.t.Helper()
	c := w.Client(name, edit...)
	w.t.Cleanup(func() {
		reads := map[string]int{}
		for _, call := range c.Faults().Log() {
			if in := fmt.Sprint(call.Key, call.Begin.Unix()); call.Op == faultstore.OpGet {
				if reads[in]++; reads[in] > 12 {
					w.t.Fatalf("%s read %q more than 12 times in a second", name, call.Key)
				}
			}
		}
	})
	return &machine{c.Client, w.t, c.Faults(), c.Partition}
}

func (m *machine) fault(op faultstore.Op, skip, count int, f faultstore.Fault) (remove func()) {
	return m.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{op}, Skip: skip, Count: count, Fault: f})
}

// must ends the test unless err is nil.
func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (m *machine) mustAcquire(name string, o *tenure.AcquireOptions) *tenure.Lease {
	m.t.Helper()
	return must[*tenure.Lease](m.t)(m.Acquire(m.t.Context(), name, o))
}

func (m *machine) mustRelease(l *tenure.Lease) {
	m.t.Helper()
	want(m.t, l.Release(m.t.Context()), nil)
}

func (m *machine) mustOpen() *tenure.Session {
	m.t.Helper()
	return must[*tenure.Session](m.t)(m.OpenSession(m.t.Context(), nil))
}

func (w world) record(name string) driver.Record {
	w.t.Helper()
	return must[driver.Record](w.t)(w.Store().Get(w.t.Context(), name, driver.Strong))
}

// want fails the test if err does not match target; nil wants no error.
func want(t *testing.T, err, target error) {
	t.Helper()
	if target == nil && err != nil || target != nil && !errors.Is(err, target) {
		t.Errorf("got error %v, want %v", err, target)
	}
}

// within returns what f returns, and fails the test unless f took from least to most.
func within(t *testing.T, least, most time.Duration, f func() error) error {
	t.Helper()
	start := time.Now()
	err := f()
	if took := time.Since(start); took < least || took > most {
		t.Errorf("took %v, want %v to %v", took, least, most)
	}
	return err
}

// started runs f in a goroutine and returns a channel with its error.
func started(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}
