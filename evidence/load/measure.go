// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/wait"
)

// The steps, as the figures name them.
const (
	handOver   = "hand-over, median, ms"
	handOver99 = "hand-over, 99th of 100, ms"
	contended  = "pairs a second, 16 callers, 4 locks"
	beats      = "heartbeats a second"
	memory     = "memory a lock, bytes"
	processor  = "processor, s a minute"
	beatCalls  = "heartbeat calls a second, while they are held"
)

const (
	contenders    = 16
	contendedFor  = 4
	beatCallers   = 64
	holdCallers   = 32
	batchCallers  = 4 // of 100 heartbeats each: a principal may have 500 under way
	warmUp        = 200 * time.Millisecond
	waitsForSure  = 20 * time.Millisecond
	heartbeatPart = 5 // a heartbeat each fifth of the lease, as the service asks for
)

func pairsStep(callers int) string {
	if callers == 1 {
		return "pairs a second, 1 caller"
	}
	return fmt.Sprintf("pairs a second, %d callers", callers)
}

// measure takes each step with all peers before the next one, in rounds; the peers take
// turns at the beginning.
func measure(ctx context.Context, peers []*peer, of size, r *report, out io.Writer) error {
	type step struct {
		name string
		take func(ctx context.Context, p *peer) error
	}
	var steps []step
	for _, n := range of.callers {
		name := pairsStep(n)
		steps = append(steps, step{name, func(ctx context.Context, p *peer) error {
			rate, err := pairs(ctx, p, n, n, of.Length, r)
			r.put(name, p.name, rate)
			return err
		}})
	}
	steps = append(steps,
		step{contended, func(ctx context.Context, p *peer) error {
			rate, err := pairs(ctx, p, contenders, contendedFor, of.Length, r)
			r.put(contended, p.name, rate)
			return err
		}},
		step{handOver, func(ctx context.Context, p *peer) error { return handOvers(ctx, p, of.HandOvers, r) }},
		step{beats, func(ctx context.Context, p *peer) error { return beating(ctx, p, of, r) }},
	)
	for _, p := range peers { // first of all, while the servers' memory is that of a start
		fmt.Fprintf(out, "load: %d locks held, %s\n", of.Held, p.name)
		if err := crowd(ctx, p, of, r); err != nil {
			return fmt.Errorf("%d locks, %s: %w", of.Held, p.name, err)
		}
	}
	for _, s := range steps {
		for _, p := range peers { // connections are made, pages are mapped
			if _, err := pairs(ctx, p, 4, 4, warmUp, r); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		for round := range of.Rounds {
			fmt.Fprintf(out, "load: %s, %d of %d\n", s.name, round+1, of.Rounds)
			for i := range peers {
				p := peers[(i+round)%len(peers)]
				if err := s.take(ctx, p); err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, p.name, err)
				}
			}
		}
	}
	return nil
}

// callers opens n of a peer's.
func callers(ctx context.Context, open func(context.Context) (holder, error), n int) ([]holder, error) {
	all := make([]holder, n)
	err := wait.AtOnce(ctx, n, 8, func(ctx context.Context, i int) (err error) {
		all[i], err = open(ctx)
		return err
	})
	return all, err
}

// names makes names that no run before has used.
var names atomic.Int64

func fresh(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("load/%07d", names.Add(1))
	}
	return all
}

// account is what is known of a lock by those who take it.
type account struct {
	held atomic.Bool
	last atomic.Uint64 // the number of the latest tenure
}

// pairs has callers acquire and release locks, each the next one of those that there are, for
// a while. It returns how often that was done a second, and counts what is wrong.
func pairs(ctx context.Context, p *peer, n, locks int, length time.Duration, r *report) (float64, error) {
	all, err := callers(ctx, p.open, n)
	if err != nil {
		return 0, err
	}
	accounts, of := make([]account, locks), fresh(locks)
	var made atomic.Int64
	begun := time.Now()
	err = wait.AtOnce(ctx, n, n, func(ctx context.Context, i int) error {
		for turn := i; time.Since(begun) < length; turn++ {
			at := turn % locks
			if locks == n {
				at = i // a lock of its own
			}
			h, number, err := all[i].acquire(ctx, of[at])
			if err != nil {
				return err
			}
			a := &accounts[at]
			if a.held.Swap(true) {
				r.wrong() // granted, and somebody else has not released it
			}
			if before := a.last.Swap(number); number != 0 && number <= before {
				r.wrong() // the numbers of tenures must rise
			}
			a.held.Store(false) // the release may be carried out from here on
			if err := all[i].release(ctx, h); err != nil {
				return err
			}
			made.Add(1)
		}
		return nil
	})
	return float64(made.Load()) / time.Since(begun).Seconds(), err
}

// handOvers measures the time from a release to the end of the acquire of another caller,
// which waits for it.
func handOvers(ctx context.Context, p *peer, n int, r *report) error {
	two, err := callers(ctx, p.open, 2)
	if err != nil {
		return err
	}
	name := fresh(1)[0]
	h, _, err := two[0].acquire(ctx, name)
	if err != nil {
		return err
	}
	type granting struct {
		held
		at  time.Time
		err error
	}
	var took []float64
	for turn := range n {
		granted := make(chan granting, 1)
		var released atomic.Bool
		go func() {
			h, _, err := two[(turn+1)%2].acquire(ctx, name)
			at := time.Now()
			if err == nil && !released.Load() {
				r.wrong() // the other one has it
			}
			granted <- granting{h, at, err}
		}()
		wait.Rest(ctx, waitsForSure)
		released.Store(true)
		begun := time.Now()
		err := two[turn%2].release(ctx, h)
		g := <-granted
		if err := errors.Join(err, g.err); err != nil {
			return err
		}
		h = g.held
		took = append(took, float64(g.at.Sub(begun).Microseconds())/1000)
	}
	slices.Sort(took)
	r.put(handOver, p.name, took[len(took)/2])
	r.put(handOver99, p.name, took[len(took)*99/100])
	return two[n%2].release(ctx, h)
}

// hold has callers take locks, and returns what each of them holds.
func hold(ctx context.Context, all []holder, locks int) ([][]held, error) {
	of := fresh(locks)
	has := make([][]held, len(all))
	err := wait.AtOnce(ctx, len(all), len(all), func(ctx context.Context, i int) error {
		for at := i; at < locks; at += len(all) {
			h, _, err := all[i].acquire(ctx, of[at])
			if err != nil {
				return err
			}
			has[i] = append(has[i], h)
		}
		return nil
	})
	return has, err
}

// letGo releases what is held.
func letGo(ctx context.Context, all []holder, has [][]held) error {
	return wait.AtOnce(ctx, len(all), len(all), func(ctx context.Context, i int) error {
		for _, h := range has[i] {
			if err := all[i].release(ctx, h); err != nil {
				return err
			}
		}
		return nil
	})
}

// beating sends heartbeats of some locks as fast as it goes.
func beating(ctx context.Context, p *peer, of size, r *report) error {
	if err := beat(ctx, p.open, p.name, min(of.Beating, beatCallers), of, r); err != nil || p.batch == nil {
		return err
	}
	return beat(ctx, p.batch, p.name+inBatches, batchCallers, of, r)
}

// beat is beating in one way, by n callers. One whose call is for all of its locks has one
// lock: a call of it is one heartbeat, however many locks that is for.
func beat(ctx context.Context, open func(context.Context) (holder, error), name string, n int, of size, r *report) error {
	all, err := callers(ctx, open, n)
	if err != nil {
		return err
	}
	locks := of.Beating
	if all[0].beatsForAll() {
		locks = n
	}
	has, err := hold(ctx, all, locks)
	if err != nil {
		return err
	}
	var sent atomic.Int64
	begun := time.Now()
	err = wait.AtOnce(ctx, n, n, func(ctx context.Context, i int) error {
		for from := 0; time.Since(begun) < of.Length; {
			if from >= len(has[i]) {
				from = 0
			}
			done, err := all[i].beat(ctx, has[i][from:])
			if errors.Is(err, errLost) {
				r.wrong()
			}
			if err != nil {
				return err
			}
			from += done
			sent.Add(int64(done))
		}
		return nil
	})
	r.put(beats, name, float64(sent.Load())/time.Since(begun).Seconds())
	return errors.Join(err, letGo(ctx, all, has))
}

// crowd holds many locks at once, with the heartbeats that they need, and looks at what that
// takes of the servers.
func crowd(ctx context.Context, p *peer, of size, r *report) error {
	open, name, n := p.open, p.name, holdCallers
	if p.batch != nil {
		open, name, n = p.batch, name+inBatches, batchCallers
	}
	all, err := callers(ctx, open, n)
	if err != nil {
		return err
	}
	before, err := usageOf(p.pids)
	if err != nil {
		return err
	}
	has, err := hold(ctx, all, of.Held)
	if err != nil {
		return err
	}
	taken, err := usageOf(p.pids)
	if err != nil {
		return err
	}
	r.put(memory, p.name, float64(taken.memory-before.memory)/float64(of.Held))
	begun := time.Now()
	calls, err := keep(ctx, all, has, of, r)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	after, err := usageOf(p.pids)
	if err != nil {
		return err
	}
	r.put(processor, name, (after.cpu-taken.cpu).Seconds()*60/took.Seconds())
	r.put(beatCalls, name, float64(calls)/took.Seconds())
	return letGo(ctx, all, has)
}

// keep sends the heartbeats that the locks need for a while, and returns how many calls that
// took. They are spread over the period, as those of clients that do not know of each other.
func keep(ctx context.Context, all []holder, has [][]held, of size, r *report) (int64, error) {
	period := of.Lease / heartbeatPart
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var calls atomic.Int64
	var wg sync.WaitGroup
	begun := time.Now()
	for i := range all {
		wg.Go(func() {
			for {
				turn := time.Now()
				for from := 0; from < len(has[i]); {
					done, err := all[i].beat(ctx, has[i][from:])
					if errors.Is(err, errLost) {
						r.wrong()
					}
					if err != nil {
						cancel(err)
						return
					}
					calls.Add(1)
					from += done
					pace := turn.Add(time.Duration(float64(period) * float64(from) / float64(len(has[i]))))
					wait.Rest(ctx, min(time.Until(pace), of.Hold-time.Since(begun)))
					if time.Since(begun) >= of.Hold {
						return
					}
				}
			}
		})
	}
	wg.Wait()
	return calls.Load(), context.Cause(ctx)
}
