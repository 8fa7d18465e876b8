// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shell_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

// referee asks all leases again and again, and knows what must never be.
type referee struct {
	t      *testing.T
	mu     sync.Mutex
	leases []*tenure.Lease
	ended  map[*tenure.Lease]bool
	tokens map[uint64]bool
	grants int
}

func (r *referee) granted(l *tenure.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tokens[l.Token()] {
		r.t.Errorf("token %d was granted twice", l.Token())
	}
	r.tokens[l.Token()] = true
	r.leases = append(r.leases, l)
	r.grants++
}

// look fails the test if two leases are good at once, or one is good again.
func (r *referee) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	good := []*tenure.Lease(nil)
	for _, l := range r.leases {
		switch err := l.Check(); {
		case err != nil:
			r.ended[l] = true
		case r.ended[l]:
			r.t.Errorf("%s under token %d came back", l.Owner(), l.Token())
		default:
			good = append(good, l)
		}
	}
	if len(good) > 1 {
		r.t.Errorf("two holders: %s under token %d, %s under token %d", good[0].Owner(), good[0].Token(), good[1].Owner(), good[1].Token())
	}
}

// Three machines contend for one lock under all faults at once, for a while;
// then the faults stop, and all goes on.
func TestManyFaultsAtOnce(t *testing.T) {
	seeds := 15
	if testing.Short() {
		seeds = 6
	}
	grants := 0
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				grants += manyFaults(t, uint64(seed))
			})
		})
	}
	t.Logf("%d grants", grants)
	if grants < 10*seeds {
		t.Errorf("only %d grants", grants)
	}
}

func manyFaults(t *testing.T, seed uint64) (grants int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	random := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	between := func(lo, hi time.Duration) time.Duration { return lo + time.Duration(random(int(hi-lo))) }

	records := memstore.New()
	r := &referee{t: t, ended: map[*tenure.Lease]bool{}, tokens: map[uint64]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	var calm []func()
	for i := range 3 {
		m := newMachine(t, records, fmt.Sprint("m", i), func(o *tenure.Options) {
			if i == 2 {
				o.StopTimeout = lease / 3
			}
		})
		calm = append(calm, m.faults.Inject(faultstore.Rule{
			Probability: 0.3,
			Decide: func(faultstore.Call) faultstore.Fault {
				d := between(0, lease/2)
				return []faultstore.Fault{
					faultstore.LoseReply(), faultstore.LoseReplyHang(), faultstore.LoseRequest(), faultstore.Refuse(), faultstore.BlackHole(),
					faultstore.Slow(d, 0), faultstore.Slow(0, d), faultstore.Late(d), faultstore.LateAfterError(4 * d), faultstore.Duplicate(4 * d),
				}[random(10)]
			},
		}))
		for range 2 {
			workers.Go(func() {
				for ctx.Err() == nil {
					worker(ctx, m, r, random, between)
				}
			})
		}
		workers.Go(func() { // now and then something happens to the whole machine
			for ctx.Err() == nil {
				sleep(ctx, between(lease, 6*lease))
				switch random(3) {
				case 0:
					m.faults.SetBlackHole(true)
					sleep(ctx, between(0, 2*lease))
					m.faults.SetBlackHole(false)
				case 1:
					m.step(between(0, 2*lease))
				case 2:
					m.step(-between(0, 2*lease))
				}
			}
		})
	}
	workers.Go(func() {
		for ctx.Err() == nil {
			r.look()
			sleep(ctx, 50*time.Millisecond)
		}
	})
	time.Sleep(30 * lease)
	for _, c := range calm {
		c()
	}
	time.Sleep(10 * lease)
	r.mu.Lock()
	before := r.grants
	r.mu.Unlock()
	time.Sleep(10 * lease)
	r.mu.Lock()
	after := r.grants
	r.mu.Unlock()
	if after == before {
		t.Errorf("seed %d: nobody got the lock after the faults", seed)
	}
	stop()
	workers.Wait()
	return after
}

// worker does one thing with the lock.
func worker(ctx context.Context, m *machine, r *referee, random func(int) int, between func(lo, hi time.Duration) time.Duration) {
	wait, stop := context.WithTimeout(ctx, between(0, 3*lease))
	defer stop()
	work := func(ctx context.Context, l *tenure.Lease) error {
		r.granted(l)
		switch random(4) {
		case 0:
			_ = l.SetData(ctx, []byte(l.Owner()))
		case 1:
			_ = l.Renew(ctx)
		}
		sleep(ctx, between(0, 2*lease))
		if random(3) == 0 {
			time.Sleep(between(0, 2*lease)) // it takes no notice of its context
		}
		return nil
	}
	switch random(4) {
	case 0:
		l, err := m.TryAcquire(wait, "x", nil)
		if err == nil {
			_ = work(wait, l)
			_ = l.Release(wait)
		} else if !errors.Is(err, tenure.ErrHeld) {
			sleep(ctx, time.Second)
		}
		sleep(ctx, between(0, lease))
	case 1:
		l, err := m.Acquire(wait, "x", nil)
		if err == nil {
			_ = work(l.Context(), l)
			_ = l.Release(ctx)
		}
	default:
		_ = m.Run(wait, "x", nil, work)
	}
	sleep(ctx, between(0, time.Second))
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
