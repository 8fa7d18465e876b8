// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tenurelock/tenure"
)

// atOnce is how many scenes go on beside each other. Mostly they wait.
const atOnce = 12

// pool runs jobs beside each other.
type pool struct {
	t      *testing.T
	places chan struct{}
	jobs   sync.WaitGroup
	count  atomic.Int64
}

func newPool(t *testing.T) *pool { return &pool{t: t, places: make(chan struct{}, atOnce)} }

func (p *pool) run(name string, job func() error) { p.jobs.Go(func() { p.do(name, job) }) }

// do runs a job, and again if the machine was too slow for it.
func (p *pool) do(name string, job func() error) {
	p.places <- struct{}{}
	defer func() { <-p.places }()
	p.count.Add(1)
	if err := again(p.t, name, job); err != nil {
		p.t.Errorf("%s: %v", name, err)
	}
}

// again runs a job until the machine was not too slow for it, or five times.
func again(t *testing.T, name string, job func() error) error {
	err := job()
	for try := 1; errors.Is(err, errSlow) && try < 5; try++ {
		t.Logf("%s, again: %v", name, err)
		err = job()
	}
	return err
}

// base is how all scenes begin: a tenure that was released, and another one,
// which is released as well or of a holder that was killed.
func base(t *testing.T, dead bool) (s *scene) {
	t.Helper()
	err := again(t, "base", func() (err error) {
		if s, err = newScene(t); err != nil {
			return err
		}
		_, err = s.take(order{Owner: "first", Release: true})
		if err == nil {
			_, err = s.take(order{Owner: "second", Release: !dead})
		}
		return errors.Join(err, s.close())
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// everyPoint runs crash at one point after the other, until an acquisition is
// through before it comes, and then as a holder. It returns the points.
func everyPoint(p *pool, name string, crash func(point) (ended, error)) []point {
	const ahead = 4 // points that are tried beside each other
	var mu sync.Mutex
	var all []point
	for first, through := int64(1), false; !through; first += ahead {
		var wave sync.WaitGroup
		for call := first; call < first+ahead; call++ {
			for _, after := range []bool{false, true} {
				at := point{call, after}
				job := func() error {
					e, err := crash(at)
					mu.Lock()
					defer mu.Unlock()
					through = through || e.calls > 0 || err != nil
					if e.calls == 0 && err == nil {
						all = append(all, at)
					}
					return err
				}
				wave.Go(func() { p.do(fmt.Sprintf("%s, killed %v", name, at), job) })
			}
		}
		wave.Wait()
	}
	slices.SortFunc(all, func(a, b point) int {
		if a.Call != b.Call {
			return cmp.Compare(a.Call, b.Call)
		}
		return map[bool]int{false: -1, true: 1}[a.After]
	})
	return append(all, complete)
}

// A process that is killed at any point of its claim of a free lock leaves a
// history without a hole.
func TestKilledWhileClaiming(t *testing.T) {
	t.Parallel()
	p, free := newPool(t), base(t, false)
	points := everyPoint(p, "claim", func(at point) (e ended, err error) {
		return crashOnce(free, at)
	})
	p.jobs.Wait()
	t.Logf("%d crashes at %d points: %v", p.count.Load(), len(points), points)
}

func crashOnce(from *scene, at point) (e ended, err error) {
	s, err := from.branch()
	if err != nil {
		return e, err
	}
	if e, err = s.take(order{Owner: "crash-1", Point: at}); err == nil {
		err = s.recover(0)
	}
	return e, errors.Join(err, s.close())
}

// A process that is killed at any point of its takeover from a dead one, and
// the next one as well: one crash leaves no hole, and two in a row leave one at
// most.
func TestKilledTwiceWhileTakingOver(t *testing.T) {
	t.Parallel()
	p, dead := newPool(t), base(t, true)
	var mu sync.Mutex
	after := map[point]*scene{} // the first crash
	crash := func(at point) (e ended, err error) {
		s, err := dead.branch()
		if err != nil {
			return e, err
		}
		e, err = s.take(order{Owner: "crash-1", Point: at})
		if err = errors.Join(err, s.close()); err != nil {
			return e, err
		}
		mu.Lock()
		defer mu.Unlock()
		if e.calls > 0 {
			at = complete
		}
		after[at] = s
		return e, nil
	}
	points := everyPoint(p, "takeover", crash)

	var holes atomic.Int64
	for first, s := range after {
		p.run(fmt.Sprintf("takeover, killed %v", first), func() error { return recovered(s, 0) })
		for _, second := range points {
			if testing.Short() && first.After != second.After {
				continue
			}
			p.run(fmt.Sprintf("takeover, killed %v and %v", first, second), func() error {
				s, err := s.branch()
				if err != nil {
					return err
				}
				if _, err = s.take(order{Owner: "crash-2", Point: second}); err == nil {
					lost, _, lostErr := s.lost()
					holes.Add(int64(len(lost)))
					err = errors.Join(lostErr, s.recover(1))
				}
				return errors.Join(err, s.close())
			})
		}
	}
	p.jobs.Wait()
	t.Logf("%d crashes at %d points and pairs of them, %d holes: %v", p.count.Load(), len(points), holes.Load(), points)
	if holes.Load() == 0 {
		t.Error("no pair of crashes has left a hole: they do not fall between grant and history any more")
	}
}

func recovered(from *scene, holes int) error {
	s, err := from.branch()
	if err != nil {
		return err
	}
	return errors.Join(s.recover(holes), s.close())
}

// So does one for which the lock is reserved, while it waits and when it takes
// the reservation.
func TestKilledWhileTakingAReservation(t *testing.T) {
	t.Parallel()
	p, free := newPool(t), base(t, false)
	var taken atomic.Int64
	points := everyPoint(p, "reservation", func(at point) (e ended, err error) {
		s, err := free.branch()
		if err != nil {
			return e, err
		}
		e, err = s.handOver("crash-1", at)
		if err == nil {
			if e.held {
				taken.Add(1)
			}
			err = s.recover(0)
		}
		return e, errors.Join(err, s.close())
	})
	p.jobs.Wait()
	t.Logf("%d crashes at %d points, %d of them of who had the lock: %v", p.count.Load(), len(points), taken.Load(), points)
}

// handOver has the lock held, and handed over to a process that dies.
func (s *scene) handOver(to string, at point) (e ended, err error) {
	a, err := s.client("holder", 10*lease) // the reservation goes by it
	if err != nil {
		return e, err
	}
	defer a.Close(s.t.Context())
	ctx, stop := context.WithTimeout(s.t.Context(), patience)
	defer stop()
	held, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- a.Run(ctx, lockName, attentive, func(ctx context.Context, _ *tenure.Lease) error {
			close(held)
			<-ctx.Done()
			return nil
		})
	}()
	select {
	case <-held:
	case err := <-done:
		return e, err
	}
	o := order{Child: "taker", File: s.file, Owner: to, Point: at}
	c, err := start(s.t, o)
	if err != nil {
		return e, err
	}
	// When it waits; or when it is dead already.
	if _, err := c.line("waiting"); err != nil && !errors.Is(err, errEnded) {
		return e, err
	}
	boss, err := s.client("boss", 10*lease)
	if err != nil {
		return e, err
	}
	defer boss.Close(s.t.Context())
	err = errors.Join(boss.Transfer(ctx, lockName, to, "drill"), <-done)
	if errors.Is(err, tenure.ErrExpired) {
		err = fmt.Errorf("%w: %w", errSlow, err) // the holder's lease was over before it was asked
	}
	if err != nil {
		return e, err
	}
	return s.taken(c, o)
}

var attentive = func() *tenure.AcquireOptions {
	o := *recorded
	o.WatchRequests = true
	return &o
}()
