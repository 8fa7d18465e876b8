// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/internal/testutil"
)

// TestSchedules has clients with slow and fast clocks take two locks, each alone or both under a session, while calls
// and answers are lost, late and doubled and clients are suspended. Never do the checks of two leases of a lock pass.
// TENURE_CLIENT_SEEDS is how many schedules are run.
func TestSchedules(t *testing.T) {
	seeds, err := strconv.Atoi(os.Getenv("TENURE_CLIENT_SEEDS"))
	if err != nil {
		seeds = 5
	}
	var terms uint64
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				s := &schedule{world: w, random: rand.New(rand.NewPCG(uint64(seed), 1)), leases: map[string][]*Lease{}}
				terms += s.play()
			})
		})
	}
	if terms < uint64(20*seeds) {
		t.Errorf("%d terms of locks in %d schedules", terms, seeds)
	}
}

type schedule struct {
	*world
	mu     sync.Mutex
	random *rand.Rand
	leases map[string][]*Lease // of a lock, that were not seen to end
	outage time.Time           // until when all answers are lost
}

// upTo returns a random time.
func (s *schedule) upTo(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.random.Int64N(int64(d)))
}

func (s *schedule) one(in int) bool { return s.upTo(time.Duration(in)) == 0 }

// faulty is a fault or none.
func (s *schedule) faulty(q *http.Request, carry func() (*http.Response, error)) (*http.Response, error) {
	if s.one(50) {
		length := s.upTo(leaseTime)
		s.mu.Lock()
		s.outage = time.Now().Add(length)
		s.mu.Unlock()
	}
	s.mu.Lock()
	out := time.Now().Before(s.outage)
	s.mu.Unlock()
	switch {
	case out:
		return answerLost(q, carry)
	case !s.one(3):
		return carry()
	}
	faults := []fault{dropped, answerLost, badGateway, doubled, hangs, problemOf("unknown", 503), late(s.upTo(3 * time.Second))}
	return faults[s.upTo(time.Duration(len(faults)))](q, carry)
}

func (s *schedule) play() (terms uint64) {
	for _, path := range []string{
		"/v1/acquire", "/v1/heartbeat", "/v1/release", "/v1/sessions/open", "/v1/sessions/heartbeat", "/v1/sessions/attach",
		"/v1/sessions/release", "/v1/sessions/close",
	} {
		s.both(path, s.faulty)
	}
	ctx, stop := context.WithTimeout(s.Context(), 10*time.Minute)
	defer stop()
	var clients sync.WaitGroup
	for i := range 3 {
		c, ahead := s.client(func(o *Options) { o.Owner = fmt.Sprintf("web-%d", i) })
		now, rate := c.now, 0.92+0.08*float64(i) // as wrong as time services make it
		c.now = func() time.Duration { return time.Duration(float64(now()) * rate) }
		suspends := func() {
			if s.one(3) {
				ahead.Add(int64(s.upTo(leaseTime)))
			}
		}
		clients.Go(func() {
			for ctx.Err() == nil {
				if s.one(2) {
					s.alone(ctx, c, suspends)
				} else {
					s.together(ctx, c, suspends)
				}
				sleep(ctx, s.upTo(time.Second))
			}
		})
	}
	clients.Go(func() {
		for ctx.Err() == nil {
			s.judge()
			sleep(ctx, 50*ms)
		}
	})
	clients.Wait()
	for _, path := range []string{"/v1/release", "/v1/sessions/release", "/v1/sessions/close"} {
		s.both(path, nil)
	}
	synctest.Wait()
	for _, name := range []string{"a", "b"} {
		st := testutil.Must(s.operator.Status(s.Context(), name))(s.T)
		terms += st.Token
	}
	return terms
}

func (s *schedule) alone(ctx context.Context, c *Client, suspends func()) {
	name := string("ab"[s.upTo(2)])
	l, err := c.Acquire(ctx, name, &AcquireOptions{Wait: time.Minute})
	if err == nil {
		s.works(l, suspends)
		_ = l.Release(context.WithoutCancel(ctx))
	}
}

func (s *schedule) together(ctx context.Context, c *Client, suspends func()) {
	session, err := c.OpenSession(ctx)
	if err != nil {
		return
	}
	if set, err := session.AcquireAll(ctx, []string{"b", "a"}, &AcquireOptions{Wait: time.Minute}); err == nil {
		s.works(set.Lease("a"), suspends)
		s.works(set.Lease("b"), suspends)
		if s.one(2) {
			_ = set.Release(context.WithoutCancel(ctx))
		}
	}
	_ = session.Close(context.WithoutCancel(ctx))
}

// works holds a lock for some time.
func (s *schedule) works(l *Lease, suspends func()) {
	s.mu.Lock()
	s.leases[l.Name()] = append(s.leases[l.Name()], l)
	s.mu.Unlock()
	s.judge()
	sleep(l.Context(), s.upTo(leaseTime))
	suspends()
	sleep(l.Context(), s.upTo(leaseTime))
}

// judge sees that the checks of two leases of a lock do not pass.
func (s *schedule) judge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, all := range s.leases {
		var holds []*Lease
		for _, l := range all {
			if l.Check() == nil {
				holds = append(holds, l)
			}
		}
		if s.leases[name] = holds; len(holds) > 1 {
			s.Errorf("%q holds %q under token %d, and %q under token %d", holds[0].Owner(), name, holds[0].Token(), holds[1].Owner(), holds[1].Token())
		}
	}
}
