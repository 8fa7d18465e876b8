// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package linearize

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

func TestMemstore(t *testing.T) {
	s := memstore.New()
	o := &Options{Rounds: 30}
	if testing.Short() {
		o.Rounds = 5
	}
	Check(t, func(*testing.T) driver.Store { return s.Open() }, o)
}

// brokenStores are the ways to break a store that the check must find.
var brokenStores = map[string]func(*memstore.Store) driver.Store{
	"stale reads":            func(s *memstore.Store) driver.Store { return &staleReads{Store: s} },
	"stale conflicts":        func(s *memstore.Store) driver.Store { return &staleConflicts{Store: s} },
	"lost updates":           func(s *memstore.Store) driver.Store { return lostUpdates{s} },
	"swap ignores token":     func(s *memstore.Store) driver.Store { return ignoresToken{s} },
	"claim overwrites held":  func(s *memstore.Store) driver.Store { return overwritesHeld{s} },
	"applied said to be not": func(s *memstore.Store) driver.Store { return &liar{Store: s} },
	"requests forced":        func(s *memstore.Store) driver.Store { return forcesRequests{s} },
	"claims reserved":        func(s *memstore.Store) driver.Store { return claimsMore{s, driver.Reserved} },
	"claims past":            func(s *memstore.Store) driver.Store { return claimsMore{s, driver.Past} },
	"claims closed":          func(s *memstore.Store) driver.Store { return claimsMore{s, driver.Closed} },
	"claims alive":           func(s *memstore.Store) driver.Store { return claimsMore{s, driver.Alive} },
	"keeps the session":      func(s *memstore.Store) driver.Store { return keepsSession{s} },
	"forgets who asked":      func(s *memstore.Store) driver.Store { return forgetsAsked{s} },
	"writes twice":           func(s *memstore.Store) driver.Store { return retries{s} },
}

// Each bug must make its schedule impossible to explain; if it did not, the check
// would not be worth much. A sound store's answers to the same calls are explained.
func TestBrokenStoresAreFound(t *testing.T) {
	for name, breakStore := range brokenStores {
		t.Run(name, func(t *testing.T) {
			made, ok := schedules[name]
			if !ok {
				t.Fatal("no schedule is made for it")
			}
			if result := play(t, made, breakStore); result != porcupine.Illegal {
				t.Errorf("the broken store: %s", result)
			}
			sound := func(s *memstore.Store) driver.Store { return s }
			if result := play(t, made, sound); result != porcupine.Ok {
				t.Errorf("a sound store: %s", result)
			}
		})
	}
}

// Calls that nobody has chosen find them as well. For the token that takes luck: a
// copy of a claim must come late, and a swap of the term before it later still.
func TestBrokenStoresAreFoundAtRandom(t *testing.T) {
	for name, breakStore := range brokenStores {
		if name == "swap ignores token" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			const most = 50
			s := memstore.New()
			open := func(*testing.T) driver.Store { return breakStore(s.Open()) }
			o := (&Options{Ops: 120}).withDefaults()
			for round := range most {
				// In a bubble, with calls that take their time, it is the seed that says
				// which calls meet, and not how busy the machine is.
				var h *history
				synctest.Test(t, func(t *testing.T) {
					n := uint64(0)
					h = record(t, func(t *testing.T) driver.Store {
						n++
						return &paced{Store: open(t), rng: rand.New(rand.NewPCG(uint64(round), n))}
					}, o, round)
				})
				result, _ := h.check(checkTimeout)
				switch result {
				case porcupine.Illegal:
					t.Logf("found in round %d", round)
					return
				case porcupine.Unknown:
					t.Logf("round %d is undecided", round)
				}
			}
			t.Errorf("%d rounds were explained", most)
		})
	}
}

// think is how long a broken store takes between what must be one step.
func think() { time.Sleep(time.Millisecond) }

// paced is a store whose calls take a random time, on the way and back.
type paced struct {
	driver.Store
	mu  sync.Mutex
	rng *rand.Rand
}

func (s *paced) pace() {
	s.mu.Lock()
	d := time.Duration(1 + s.rng.IntN(int(time.Millisecond)))
	s.mu.Unlock()
	time.Sleep(d)
}

func (s *paced) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	s.pace()
	defer s.pace()
	return s.Store.Get(ctx, key, c)
}

func (s *paced) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	s.pace()
	defer s.pace()
	return s.Store.Claim(ctx, next)
}

func (s *paced) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	s.pace()
	defer s.pace()
	return s.Store.Swap(ctx, prev, next)
}

func (s *paced) Delete(ctx context.Context, prev driver.Record) error {
	s.pace()
	defer s.pace()
	return s.Store.Delete(ctx, prev)
}
