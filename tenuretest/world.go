// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// World is a store, and the clients that share it.
//
// All methods may be called concurrently, except that those that wait, Client, Record,
// MustRecord and [Client.MustAcquire] end a test that fails: call them from the goroutine
// of the test. So do not share a World between tests, nor between bubbles of
// testing/synctest.
type World struct {
	t     testing.TB
	open  func() driver.Store
	store driver.Store // past all faults
	edit  []func(*tenure.Options)
	begun time.Time

	writing  sync.Mutex                                     // held while a write is made, and observed
	observer func(Write)                                    // of Observe; may be nil
	wrap     func(name string, s driver.Store) driver.Store // of Wrap
	maxReads int                                            // of BoundReads

	mu      sync.Mutex
	clients []*Client            // in the order in which they were made
	working map[string][]*Client // by the name of the lock
}

// New returns a world without clients, on a store in memory. It ends with the test: all
// clients are closed then, those that are partitioned or paused in good order.
//
// Each edit is called with the options of every client of the world.
func New(t testing.TB, edit ...func(*tenure.Options)) *World {
	memory := memstore.New()
	return On(t, func() driver.Store { return memory.Open() }, edit...)
}

// On is New for another store, such as the production engine of the program. open
// returns a further handle onto the same records: one for each client, and one for the
// world. They are closed with the test. In a bubble an engine does not work if it is
// reached by a network, or was opened outside.
func On(t testing.TB, open func() driver.Store, edit ...func(*tenure.Options)) *World {
	w := &World{t: t, open: open, store: open(), edit: edit, begun: time.Now(), working: map[string][]*Client{}}
	w.Wrap(func(_ string, s driver.Store) driver.Store { return s })
	t.Cleanup(w.close)
	return w
}

// Test runs a test in a bubble of testing/synctest, with a new world in it: see [New].
func Test(t *testing.T, test func(t *testing.T, w *World), edit ...func(*tenure.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, New(t, edit...)) })
}

// Two returns two clients of a new world, "a" and "b".
func Two(t testing.TB, edit ...func(*tenure.Options)) (a, b *Client) {
	t.Helper()
	w := New(t, edit...)
	return w.Client("a"), w.Client("b")
}

// Client returns a new client of the world: a replica, on a machine of its own. Its
// owner and its host have the name that is given. Each edit is called with its options
// after those of [New]; the defaults of the options are those of [tenure.Options], but
// that events are logged into the test's output.
//
// A name may be given again when its client was killed, as a process is started again.
// The owner of the further clients is the name with a number, such as "a-2".
//
// Options that are refused, and a name that another client has, fail the test.
func (w *World) Client(name string, edit ...func(*tenure.Options)) *Client {
	w.t.Helper()
	owner, err := w.owner(name)
	if err != nil {
		w.t.Fatalf("tenuretest: %v", err)
	}
	c, err := newClient(w, name, owner, slices.Concat(w.edit, edit))
	if err != nil {
		w.t.Fatalf("tenuretest: client %q: %v", name, err)
	}
	w.mu.Lock()
	w.clients = append(w.clients, c)
	w.mu.Unlock()
	return c
}

// owner returns the owner of a new client of that name.
func (w *World) owner(name string) (string, error) {
	taken := map[string]bool{}
	for _, c := range w.all() {
		if c.name == name && !c.killed() {
			return "", fmt.Errorf("there is a client %q: give this one another name, or kill that one first", name)
		}
		taken[c.Options().Owner] = true
	}
	owner := name
	for n := 2; taken[owner]; n++ {
		owner = fmt.Sprintf("%s-%d", name, n)
	}
	return owner, nil
}

// BoundReads makes the test fail at its end if a client made from now on has read a key
// more often than that within any second: such a client reads without a pause, and a
// store would charge for it. 0 is no bound. The count comes from the log of
// [Client.Faults].
func (w *World) BoundReads(perSecond int) { w.maxReads = perSecond }

// T returns the test of the world, for a helper that only has a world or a client.
func (w *World) T() testing.TB { return w.t }

// Records returns the store of the world, past all faults: to write a record that no
// client would write, say. [World.Record] reads one record.
func (w *World) Records() driver.Store { return w.store }

// Store returns the records of a world of [New], past all faults: for an operator's
// client, say, or to read what stands there. It is nil in a world on another store.
func (w *World) Store() *memstore.Store {
	memory, _ := w.store.(*memstore.Store)
	return memory
}

// Partition cuts all clients off the store, as an outage of the store does.
func (w *World) Partition() {
	for _, c := range w.all() {
		if !c.killed() {
			c.Partition()
		}
	}
}

// Heal heals all clients: see [Client.Heal].
func (w *World) Heal() {
	for _, c := range w.all() {
		if !c.killed() {
			c.Heal()
		}
	}
}

// all returns the clients, the killed ones as well.
func (w *World) all() []*Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.clients)
}

// close closes all clients.
func (w *World) close() {
	var closing sync.WaitGroup
	for _, c := range w.all() {
		closing.Go(c.end)
	}
	closing.Wait()
	if err := w.store.Close(); err != nil {
		w.t.Errorf("tenuretest: close of the store: %v", err)
	}
}
