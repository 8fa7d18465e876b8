// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/tenuretest"
)

// setSeeds names the variable that says how many random schedules TestSetSchedules runs;
// without it, they are few.
const setSeeds = "TENURE_SET_SEEDS"

// Four processes take several of four locks at once, named in any order, under random schedules
// of lost, late and repeated requests, pauses, partitions and requests to step down. They never
// deadlock, no two of them work under one lock, and each of them has all locks at once when the
// faults are over.
func TestSetSchedules(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	seeds := 200
	switch {
	case testing.Short() && os.Getenv(enginetest.Required) == "":
		seeds = 5 // make verify has more
	case testing.Short():
		seeds = 20
	}
	if v := os.Getenv(setSeeds); v != "" {
		var err error
		if seeds, err = strconv.Atoi(v); err != nil || seeds < 1 {
			t.Fatalf("%s is %q: it must be a whole number of at least 1", setSeeds, v)
		}
	}
	var sum setTally
	for seed := range uint64(seeds) {
		var s *setSchedule
		synctest.Test(t, func(t *testing.T) { s = playSets(t, seed) })
		if len(s.wrong) > 0 || t.Failed() {
			t.Fatalf("seed %d: %s", seed, strings.Join(s.wrong, "\n"))
		}
		sum.worked, sum.stopped = sum.worked+s.worked, sum.stopped+s.stopped
		sum.refused, sum.again = sum.refused+s.refused, sum.again+s.again
	}
	t.Logf("%d schedules: %d times at work, %d of them told to stop; %d sets refused; %d locks that ended while others were waited for",
		seeds, sum.worked, sum.stopped, sum.refused, sum.again)
	if sum.worked < 5*seeds || sum.stopped < seeds || sum.refused < seeds || sum.again < seeds {
		t.Error("too little has happened")
	}
}

// setTally counts the events of a schedule.
type setTally struct{ worked, stopped, refused, again int }

// setSchedule is one schedule, and what was found wrong in it.
type setSchedule struct {
	*tenuretest.World
	names     []string
	processes []*setProcess

	mu      sync.Mutex // guards all below, and what a process says that it guards
	random  *rand.Rand
	calm    bool                 // the faults are over
	circles map[string]time.Time // of processes that wait for each other: since when
	wrong   []string
	setTally
}

// setProcess is a process that takes sets of locks.
type setProcess struct {
	*setSchedule
	client  *tenuretest.Client
	session *tenure.Session

	// Guarded by mu:
	id     string           // of its session
	taking bool             // it takes a set
	waits  string           // for this lock, or for none
	works  *tenure.LeaseSet // under this set, or not
	paused bool
}

// playSets runs the schedule of a seed. Call it in a bubble.
func playSets(t *testing.T, seed uint64) *setSchedule {
	t.Helper()
	s := &setSchedule{
		World: tenuretest.New(t, func(o *tenure.Options) { o.Logger = slog.New(slog.DiscardHandler) }),
		names: []string{"a", "b", "c", "d"}, random: rand.New(rand.NewPCG(seed, 16)), circles: map[string]time.Time{},
	}
	operator := s.Client("operator")
	for i := range 4 {
		p := &setProcess{setSchedule: s}
		p.client = s.Client(fmt.Sprint("p", i), func(o *tenure.Options) { o.OnEvent = p.hears })
		p.client.Faults().Inject(faultstore.Rule{Decide: p.faults()})
		s.processes = append(s.processes, p)
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	var going sync.WaitGroup
	for _, p := range s.processes {
		going.Go(func() {
			for sleepFor(ctx, time.Millisecond+s.upTo(2*time.Second)) {
				p.takes(ctx)
			}
		})
		going.Go(func() { p.suffers(ctx) })
	}
	going.Go(func() {
		for sleepFor(ctx, s.upTo(lease/2)) {
			asking, end := context.WithTimeout(ctx, lease)
			_ = operator.StepDown(asking, s.names[s.intN(len(s.names))], because("a test")) // any holder
			end()
		}
	})
	judged, enough := context.WithCancel(t.Context())
	defer enough()
	var judge sync.WaitGroup
	judge.Go(func() {
		for sleepFor(judged, time.Second) {
			s.judgeCircles()
		}
	})
	going.Wait()
	s.locked(func() { s.calm = true })
	healed := time.Now()
	for _, p := range s.processes {
		going.Go(func() {
			p.client.Faults().Wait()
			ctx, end := context.WithTimeout(t.Context(), 10*lease)
			defer end()
			err := tenure.ErrSessionClosed
			for err != nil && sleepFor(ctx, time.Second) { // the faults may have ended its session, or do so yet
				if err = p.opened(ctx); err == nil {
					p.locked(func() { p.taking = true })
					err = p.session.RunAll(ctx, p.some(len(p.names)), nil, p.work)
				}
			}
			if err != nil {
				s.fails("%s has not had all locks %v after the faults: %v", p.name(), time.Since(healed), err)
			}
		})
	}
	going.Wait()
	enough()
	judge.Wait()
	return s
}

// sleepFor sleeps, and reports whether ctx goes on.
func sleepFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return ctx.Err() == nil
	}
}

func (s *setSchedule) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *setSchedule) intN(n int) (drawn int) {
	s.locked(func() { drawn = s.random.IntN(n) })
	return drawn
}

func (s *setSchedule) upTo(d time.Duration) time.Duration {
	return time.Duration(s.intN(int(d/time.Millisecond)+1)) * time.Millisecond
}

func (s *setSchedule) fails(format string, args ...any) {
	s.locked(func() { s.wrong = append(s.wrong, fmt.Sprintf(format, args...)) })
}

// some returns the names of n locks, in any order.
func (s *setSchedule) some(n int) []string {
	names := slices.Clone(s.names)
	s.locked(func() { s.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] }) })
	return names[:n]
}

func (p *setProcess) name() string { return p.client.Options().Owner }

// faults returns what happens to each of its calls. Half of the processes mostly get no reply
// to a release.
func (p *setProcess) faults() func(faultstore.Call) faultstore.Fault {
	unheard := p.intN(2) == 0
	return func(c faultstore.Call) faultstore.Fault {
		calm := false
		p.locked(func() { calm = p.calm })
		switch n := p.intN(24); {
		case calm:
			return faultstore.Fault{}
		case unheard && c.Op == faultstore.OpRelease && n < 18:
			return faultstore.LoseReplyHang()
		case n == 0:
			return faultstore.LoseReply()
		case n == 1:
			return faultstore.LoseRequest()
		case n == 2:
			return faultstore.Late(p.upTo(lease / 2))
		case n == 3:
			return faultstore.Duplicate(p.upTo(lease / 2))
		}
		slow := p.upTo(100 * time.Millisecond)
		return faultstore.Slow(slow/2, slow/2)
	}
}

// suffers pauses the process, or cuts it off from the store, now and then.
func (p *setProcess) suffers(ctx context.Context) {
	for sleepFor(ctx, p.upTo(6*lease)) {
		d := p.upTo(2 * lease)
		if p.intN(2) == 0 {
			p.client.Partition()
			sleepFor(ctx, d)
			p.client.Heal()
			continue
		}
		p.locked(func() { p.paused = true })
		p.client.Pause()
		sleepFor(ctx, d)
		p.client.Resume()
		p.locked(func() { p.paused = false })
	}
}

// opened makes sure that the process has a session.
func (p *setProcess) opened(ctx context.Context) (err error) {
	if p.session != nil && p.session.Context().Err() == nil {
		return nil
	}
	if p.session, err = p.client.OpenSession(ctx, nil); err == nil {
		p.locked(func() { p.id = p.session.ID() })
	}
	return err
}

// takes takes a set and works under it, unless it is refused.
func (p *setProcess) takes(ctx context.Context) {
	if p.opened(ctx) != nil {
		return
	}
	names, how := p.some(2+p.intN(3)), p.intN(8)
	if how < 2 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, p.upTo(2*lease))
		defer end()
	}
	p.locked(func() { p.taking, p.waits = true, "" })
	var err error
	if how == 7 {
		var set *tenure.LeaseSet
		if set, err = p.session.TryAcquireAll(ctx, names, nil); err == nil {
			_ = p.work(ctx, set)
			_ = set.Release(context.WithoutCancel(ctx))
		}
	} else {
		err = p.session.RunAll(ctx, names, nil, p.work)
	}
	p.locked(func() {
		p.taking, p.waits = false, ""
		if errors.Is(err, tenure.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
			p.refused++
		}
	})
}

// work works under a set until it is told to stop, or for a while.
func (p *setProcess) work(ctx context.Context, set *tenure.LeaseSet) error {
	defer p.locked(func() { p.works = nil })
	p.locked(func() {
		p.taking, p.waits, p.works = false, "", set
		p.worked++
		for _, q := range p.processes {
			if q == p || q.works == nil || q.paused || p.paused {
				continue
			}
			for _, l := range set.Leases() {
				if other := q.works.Lease(l.Name()); other != nil && other.Check() == nil && l.Check() == nil {
					p.wrong = append(p.wrong, fmt.Sprintf("%s works under %s beside %s", p.name(), l.Name(), q.name()))
				}
			}
		}
	})
	bound, end := context.WithTimeout(ctx, p.upTo(lease/2))
	defer end()
	<-bound.Done()
	if set.Context().Err() != nil {
		p.locked(func() { p.stopped++ })
	}
	return nil
}

// hears notes which lock the process waits for.
func (p *setProcess) hears(e tenure.Event) {
	p.locked(func() {
		switch {
		case !p.taking || e.Lock == "":
		case e.Kind == tenure.EventWaiting:
			p.waits = e.Lock
		case e.Kind == tenure.EventAcquired && p.waits == e.Lock:
			p.waits = ""
		case e.Kind == tenure.EventStopping:
			p.again++
		}
	})
}

// longestCircle is how long processes may wait for each other: until one has given up the release
// of a lock, which takes a lease, and the session has released that orphan at the request of a
// waiter.
const longestCircle = 3 * lease

// judgeCircles checks that no processes wait for each other.
func (s *setSchedule) judgeCircles() {
	s.mu.Lock()
	defer s.mu.Unlock()
	circles := map[string]time.Time{}
	for _, p := range s.processes {
		text, at := p.client.Options().Owner, p
		for range s.processes {
			waits := at.waits
			if at = s.holderOf(waits); at == nil {
				break
			}
			text += fmt.Sprintf(" waits for %s of %s, who", waits, at.name())
			if at != p {
				continue
			}
			since, known := s.circles[text]
			if !known {
				since = time.Now()
			}
			if circles[text] = since; time.Since(since) > longestCircle {
				s.wrong = append(s.wrong, fmt.Sprintf("a circle, since %v: %s", time.Since(since), text))
			}
			break
		}
	}
	s.circles = circles
}

// holderOf returns the process in whose name a lock is held while it takes a set, or nil.
func (s *setSchedule) holderOf(name string) *setProcess {
	if name == "" {
		return nil
	}
	rec, err := s.Store().Get(context.Background(), name, driver.Strong)
	if err != nil || rec.State != driver.Held {
		return nil
	}
	for _, p := range s.processes {
		if p.taking && rec.Session == p.id {
			return p
		}
	}
	return nil
}
