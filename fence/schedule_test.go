// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tenurelock/tenure/fence"
)

// The number of schedules of each guard, and the participants.
const (
	interleavings = 10_000 // a fifth of it under -short
	actorsEach    = 3
	writesEach    = 2
)

// world is one schedule: a lock that changes hands, actors that believe that
// they hold it, and a resource that notes its writers. An actor runs until it
// pauses; the schedule picks the next. Every world is a function of its seed
// and of the guard.
type world struct {
	lock   atomic.Uint64 // the token of its holder
	actors []*actor

	mu      sync.Mutex
	landed  []uint64
	refused int
	inside  int // actors that are writing now
	crowded int // times that there were several
	queued  int // times that an actor waited for another one's write
}

type actor struct {
	w      *world
	wake   chan struct{}
	paused bool
	ended  bool
	token  uint64
}

// An actor is the grant of its lock: its lease is good until another has the
// lock. No lease is better than that.
func (a *actor) Name() string  { return "ledger" }
func (a *actor) Token() uint64 { return a.token }
func (a *actor) Check() error {
	if a.w.lock.Load() != a.token {
		return errLost
	}
	return nil
}

var errLost = errors.New("lease lost")

func (a *actor) pause() {
	a.paused = true
	<-a.wake
	a.paused = false
}

// land is the write itself, which takes its time.
func (a *actor) land() {
	a.w.mu.Lock()
	a.w.inside++
	if a.w.inside > 1 {
		a.w.crowded++
	}
	a.w.mu.Unlock()
	a.pause()
	a.w.mu.Lock()
	a.w.inside--
	a.w.landed = append(a.w.landed, a.token)
	a.w.mu.Unlock()
}

// run is the life of a holder: take the token, and before each write check,
// with a pause wherever a process can be paused.
func (a *actor) run(write func(*actor) error) {
	defer func() { a.ended = true }()
	a.pause()
	a.token = a.w.lock.Add(1)
	for range writesEach {
		a.pause()
		if a.Check() != nil {
			return
		}
		a.pause()
		if err := write(a); errors.Is(err, fence.ErrStale) {
			a.w.mu.Lock()
			a.w.refused++
			a.w.mu.Unlock()
			return
		} else if err != nil && !errors.Is(err, errLost) {
			panic(err)
		}
	}
}

// schedule runs one world to its end, inside of a bubble.
func schedule(seed uint64, write func(*actor) error) *world {
	w := &world{}
	for range actorsEach {
		a := &actor{w: w, wake: make(chan struct{})}
		w.actors = append(w.actors, a)
		go a.run(write)
	}
	synctest.Wait()
	random := rand.New(rand.NewPCG(seed, 0))
	for {
		var able []*actor
		ended := 0
		for _, a := range w.actors {
			switch {
			case a.paused:
				able = append(able, a)
			case a.ended:
				ended++
			default:
				w.queued++ // at the gate: it goes on by itself
			}
		}
		if len(able) == 0 {
			if ended != actorsEach {
				panic("actors wait for each other for ever")
			}
			return w
		}
		able[random.IntN(len(able))].wake <- struct{}{}
		synctest.Wait()
	}
}

// stale counts the writes that landed after one under a higher token.
func stale(landed []uint64) (n int) {
	highest := uint64(0)
	for _, token := range landed {
		if token < highest {
			n++
		}
		highest = max(highest, token)
	}
	return n
}

// guarded is a way to write. With a sound one nothing stale lands, under any
// schedule; with each of the others something must, or the test says nothing.
type guarded struct {
	name  string
	sound bool
	way   func() func(*actor) error // for one world
}

func TestInterleavings(t *testing.T) {
	seeds := uint64(interleavings)
	if testing.Short() {
		seeds /= 5
	}
	for _, g := range []guarded{
		{"no guard", false, func() func(*actor) error {
			return func(a *actor) error {
				a.pause()
				a.land()
				return nil
			}
		}},
		{"memory, compared but not held", false, func() func(*actor) error {
			gate := fence.NewGate(nil)
			return func(a *actor) error {
				if err := gate.Admit(context.Background(), "ledger", a.token); err != nil { //nolint:usetesting // one bubble for many worlds
					return err
				}
				a.pause()
				a.land()
				return nil
			}
		}},
		{"memory", true, func() func(*actor) error {
			gate := fence.NewGate(nil)
			return func(a *actor) error {
				a.pause()
				return gate.Do(context.Background(), "ledger", a.token, func(context.Context) error { //nolint:usetesting // as above
					a.pause()
					a.land()
					return nil
				})
			}
		}},
		{"HTTP, transport alone", false, func() func(*actor) error {
			return overHTTP(resource())
		}},
		{"HTTP", true, func() func(*actor) error {
			return overHTTP(fence.Handler(fence.NewGate(nil), resource(), nil))
		}},
	} {
		t.Run(g.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad, landed, refused, crowded, queued := 0, 0, 0, 0, 0
				first := uint64(0)
				for seed := range seeds {
					w := schedule(seed, g.way())
					if seed%1000 == 0 && !slices.Equal(w.landed, schedule(seed, g.way()).landed) {
						t.Errorf("seed %d does not replay", seed)
					}
					if stale(w.landed) > 0 {
						bad++
						if bad == 1 {
							first = seed
						}
					}
					landed += len(w.landed)
					refused += w.refused
					crowded += w.crowded
					queued += w.queued
				}
				t.Logf("%d schedules: %d with a stale write; %d writes landed, %d were refused, %d began beside another, %d times one waited",
					seeds, bad, landed, refused, crowded, queued)
				switch {
				case g.sound && bad > 0:
					t.Errorf("stale writes landed in %d schedules, first with seed %d", bad, first)
				case g.sound && (refused == 0 || queued == 0):
					t.Errorf("%d refusals, %d waits: the schedules do not reach the guard", refused, queued)
				case g.sound && crowded > 0:
					t.Errorf("%d writes began beside another", crowded)
				case !g.sound && bad == 0:
					t.Error("no stale write landed: the schedules would not find a broken guard")
				}
			})
		})
	}
}

type actorKey struct{}

// resource is a server's handler that writes.
func resource() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := r.Context().Value(actorKey{}).(*actor)
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != fmt.Sprint(a.token) {
			panic(fmt.Sprintf("body %q, error %v", body, err))
		}
		a.pause()
		a.land()
		w.WriteHeader(http.StatusNoContent)
	})
}

// overHTTP writes through a transport to the handler. The request is paused on
// its way, behind the last check of the lease.
func overHTTP(h http.Handler) func(*actor) error {
	return func(a *actor) error {
		client := http.Client{Transport: fence.NewTransport(inProcess{h}, &fence.TransportOptions{Grant: a})}
		ctx := context.WithValue(context.Background(), actorKey{}, a)
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://ledger.test/", strings.NewReader(fmt.Sprint(a.token)))
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		return fence.Refusal(answer)
	}
}

type inProcess struct{ h http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if a, ok := r.Context().Value(actorKey{}).(*actor); ok {
		a.pause()
	}
	w := httptest.NewRecorder()
	p.h.ServeHTTP(w, r)
	return w.Result(), nil
}
