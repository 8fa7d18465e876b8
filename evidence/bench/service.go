// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/wait"
)

// The rows, as the page names them.
const (
	contended = "pairs a second, 16 callers, 4 locks"
	handOver  = "hand-over, median, ms"
	beats     = "heartbeats a second"
	batches   = beats + ", 100 a call"
	memory    = "memory a lock, bytes"
	processor = "processor, s a minute"
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

func pairsRow(callers int) string {
	if callers == 1 {
		return "pairs a second, 1 caller"
	}
	return fmt.Sprintf("pairs a second, %d callers", callers)
}

// Peers returns those that were there, in the order of the page.
func (p *part) Peers() []string {
	return slices.DeleteFunc([]string{gateway, oneLease, consulName, onEtcd, onSQLite}, func(name string) bool {
		return p.row(contended).Values[name].Spread == nil
	})
}

// load is a run on all peers of the service.
type load struct {
	*part
	serviceSize
	last atomic.Int64 // name of a lock

	figures map[string]map[string][]float64 // of each round, by row and peer
}

func newLoad(p *part, s serviceSize) *load {
	return &load{part: p, serviceSize: s, figures: map[string]map[string][]float64{}}
}

func (l *load) found(row string, p *peer, figure float64) {
	if l.figures[row] == nil {
		l.figures[row] = map[string][]float64{}
	}
	l.figures[row][p.name] = append(l.figures[row][p.name], figure)
}

// measureService puts the same load on the lock service and its peers: pairs of acquire and
// release, hand-overs, heartbeats, and many locks held at once. The callers are goroutines of
// this process.
func measureService(ctx context.Context, o *options, p *part) (err error) {
	l := newLoad(p, o.size.service)
	p.Setting = fmt.Sprintf("Medians of %d rounds, leases of %v, %d locks held for %v", l.rounds, l.lease, l.held, l.hold)
	if p.Programs, err = serverVersions(ctx, o.consul); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tenure-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	peers, err := startPeers(ctx, dir, o.consul, l.lease)
	defer func() {
		for _, p := range peers {
			p.close()
		}
	}()
	if err != nil {
		return err
	}
	var rows []string
	for _, n := range l.callers {
		rows = append(rows, pairsRow(n))
	}
	p.add(served, "", append(rows, contended, handOver, beats, batches, memory, processor)...)
	if err := l.measure(ctx, peers, o.say); err != nil {
		return err
	}
	for row, by := range l.figures {
		for name, figures := range by {
			p.put(row, name, spreadOf(figures))
		}
	}
	return nil
}

// measure takes each step with all peers before the next one, in rounds; the peers take
// turns at the beginning.
func (l *load) measure(ctx context.Context, peers []*peer, say func(string, ...any)) error {
	for _, p := range peers { // first of all, while the servers' memory is that of a start
		say("%d locks held, %s", l.held, p.name)
		if err := l.crowd(ctx, p); err != nil {
			return fmt.Errorf("%d locks, %s: %w", l.held, p.name, err)
		}
	}
	var steps []func(ctx context.Context, p *peer) error
	for _, n := range l.callers {
		steps = append(steps, func(ctx context.Context, p *peer) error {
			return l.pairs(ctx, pairsRow(n), p, n, n, l.length)
		})
	}
	steps = append(steps,
		func(ctx context.Context, p *peer) error {
			return l.pairs(ctx, contended, p, contenders, contendedFor, l.length)
		},
		l.handOver,
		func(ctx context.Context, p *peer) error {
			return l.beating(ctx, beats, p, p.open, min(l.serviceSize.beating, beatCallers))
		},
		func(ctx context.Context, p *peer) error {
			if p.batch == nil {
				return nil
			}
			return l.beating(ctx, batches, p, p.batch, batchCallers)
		},
	)
	for i, take := range steps {
		for _, p := range peers { // connections are made, pages are mapped
			if err := l.pairs(ctx, "", p, 4, 4, warmUp); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		for round := range l.rounds {
			say("step %d of %d, round %d of %d", i+1, len(steps), round+1, l.rounds)
			for i := range peers {
				p := peers[(i+round)%len(peers)]
				if err := take(ctx, p); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
			}
		}
	}
	return nil
}

// open opens n callers.
func open(ctx context.Context, one func(context.Context) (caller, error), n int) ([]caller, error) {
	all := make([]caller, n)
	err := wait.AtOnce(ctx, n, 8, func(ctx context.Context, i int) (err error) {
		all[i], err = one(ctx)
		return err
	})
	return all, err
}

// fresh returns names that no step before has used.
func (l *load) fresh(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("bench/%07d", l.last.Add(1))
	}
	return all
}

// account is what is known of a lock by those who take it.
type account struct {
	held atomic.Bool
	last atomic.Uint64 // the number of the latest tenure
}

// pairs has callers acquire and release locks, each the next one of those that there are, for
// a while. It finds how often that was done a second, if for a row, and takes down what is
// wrong.
func (l *load) pairs(ctx context.Context, row string, p *peer, n, locks int, length time.Duration) error {
	all, err := open(ctx, p.open, n)
	if err != nil {
		return err
	}
	accounts, of := make([]account, locks), l.fresh(locks)
	var made atomic.Int64
	begun := time.Now()
	err = wait.AtOnce(ctx, n, n, func(ctx context.Context, i int) error {
		for turn := i; time.Since(begun) < length; turn++ {
			at := turn % locks
			if locks == n {
				at = i // a lock of its own
			}
			held, err := all[i].acquire(ctx, of[at])
			if err != nil {
				return err
			}
			a := &accounts[at]
			if a.held.Swap(true) {
				l.wrong(p.name + ": granted, and somebody else has not released it")
			}
			if before := a.last.Swap(held.number); held.number != 0 && held.number <= before {
				l.wrong(p.name + ": the number of a tenure has not risen")
			}
			a.held.Store(false) // the release may be carried out from here on
			if err := all[i].release(ctx, held); err != nil {
				return err
			}
			made.Add(1)
		}
		return nil
	})
	if row != "" {
		l.found(row, p, float64(made.Load())/time.Since(begun).Seconds())
	}
	return err
}

// handOver measures the time from a release to the end of the acquire of another caller,
// which waits for it.
func (l *load) handOver(ctx context.Context, p *peer) error {
	two, err := open(ctx, p.open, 2)
	if err != nil {
		return err
	}
	name := l.fresh(1)[0]
	held, err := two[0].acquire(ctx, name)
	if err != nil {
		return err
	}
	var took []float64
	for turn := range l.handOvers {
		var (
			next     *heldLock
			at       time.Time
			failed   error
			released atomic.Bool
			granted  = make(chan struct{})
		)
		go func() {
			defer close(granted)
			next, failed = two[(turn+1)%2].acquire(ctx, name)
			at = time.Now()
			if failed == nil && !released.Load() {
				l.wrong(p.name + ": granted before it was released")
			}
		}()
		wait.Rest(ctx, waitsForSure)
		released.Store(true)
		begun := time.Now()
		err := two[turn%2].release(ctx, held)
		<-granted
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		held = next
		took = append(took, float64(at.Sub(begun).Microseconds())/1000)
	}
	l.found(handOver, p, spreadOf(took).Spread.Median)
	return two[l.handOvers%2].release(ctx, held)
}

// take has callers take locks, and returns what each of them holds.
func (l *load) take(ctx context.Context, all []caller, locks int) ([][]*heldLock, error) {
	of := l.fresh(locks)
	has := make([][]*heldLock, len(all))
	return has, wait.AtOnce(ctx, len(all), len(all), func(ctx context.Context, i int) error {
		for at := i; at < locks; at += len(all) {
			held, err := all[i].acquire(ctx, of[at])
			if err != nil {
				return err
			}
			has[i] = append(has[i], held)
		}
		return nil
	})
}

// letGo releases what is held.
func letGo(ctx context.Context, all []caller, has [][]*heldLock) error {
	return wait.AtOnce(ctx, len(all), len(all), func(ctx context.Context, i int) error {
		for _, held := range has[i] {
			if err := all[i].release(ctx, held); err != nil {
				return err
			}
		}
		return nil
	})
}

// beat sends a heartbeat, and takes down that a lock was lost.
func (l *load) beat(ctx context.Context, p *peer, c caller, has []*heldLock) (int, error) {
	done, err := c.beat(ctx, has)
	if errors.Is(err, errLost) {
		l.wrong(p.name + ": a heartbeat of a lock that is held was refused")
	}
	return done, err
}

// beating has n callers send heartbeats of locks as fast as it goes. One whose call is for all
// of its locks has one lock: a call of it is one heartbeat, however many locks that is for.
func (l *load) beating(
	ctx context.Context, row string, p *peer, one func(context.Context) (caller, error), n int,
) error {
	all, err := open(ctx, one, n)
	if err != nil {
		return err
	}
	locks := l.serviceSize.beating
	if p.forAll {
		locks = n
	}
	has, err := l.take(ctx, all, locks)
	if err != nil {
		return err
	}
	var sent atomic.Int64
	begun := time.Now()
	err = wait.AtOnce(ctx, n, n, func(ctx context.Context, i int) error {
		for from := 0; time.Since(begun) < l.length; {
			done, err := l.beat(ctx, p, all[i], has[i][from:])
			if err != nil {
				return err
			}
			from = (from + done) % len(has[i])
			sent.Add(int64(done))
		}
		return nil
	})
	l.found(row, p, float64(sent.Load())/time.Since(begun).Seconds())
	return errors.Join(err, letGo(ctx, all, has))
}

// crowd holds many locks at once, with the heartbeats that they need, and looks at what that
// takes of the servers.
func (l *load) crowd(ctx context.Context, p *peer) error {
	one, n := p.open, holdCallers
	if p.batch != nil {
		one, n = p.batch, batchCallers
	}
	all, err := open(ctx, one, n)
	if err != nil {
		return err
	}
	before, err := usageOf(p.pids)
	if err != nil {
		return err
	}
	has, err := l.take(ctx, all, l.held)
	if err != nil {
		return err
	}
	taken, err := usageOf(p.pids)
	if err != nil {
		return err
	}
	l.found(memory, p, float64(taken.memory-before.memory)/float64(l.held))
	begun := time.Now()
	if err := l.keep(ctx, p, all, has); err != nil {
		return err
	}
	took := time.Since(begun)
	after, err := usageOf(p.pids)
	if err != nil {
		return err
	}
	l.found(processor, p, (after.cpu-taken.cpu).Seconds()*60/took.Seconds())
	return letGo(ctx, all, has)
}

// keep sends the heartbeats that the locks need for a while. They are spread over the period,
// as those of clients that do not know of each other.
func (l *load) keep(ctx context.Context, p *peer, all []caller, has [][]*heldLock) error {
	period, begun := l.lease/heartbeatPart, time.Now()
	return wait.AtOnce(ctx, len(all), len(all), func(ctx context.Context, i int) error {
		for {
			turn := time.Now()
			for from := 0; from < len(has[i]); {
				done, err := l.beat(ctx, p, all[i], has[i][from:])
				if err != nil {
					return err
				}
				from += done
				pace := turn.Add(time.Duration(float64(period) * float64(from) / float64(len(has[i]))))
				wait.Rest(ctx, min(time.Until(pace), l.hold-time.Since(begun)))
				if time.Since(begun) >= l.hold {
					return nil
				}
			}
		}
	})
}

// usage is what processes use together.
type usage struct {
	memory int64 // bytes resident that are no file's
	cpu    time.Duration
}

// usageOf sums up what processes use.
func usageOf(pids []int) (all usage, err error) {
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return all, err
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return all, err
		}
		var kilobytes, user, system int64
		_, rest, _ := strings.Cut(string(status), "RssAnon:")
		_, noMemory := fmt.Sscan(rest, &kilobytes)
		// After the name, which may have spaces: utime and stime are the 12th and the 13th.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		_, noTime := fmt.Sscan(strings.Join(fields[11:13], " "), &user, &system)
		if err := errors.Join(noMemory, noTime); err != nil {
			return all, fmt.Errorf("process %d: %w", pid, err)
		}
		all.memory += kilobytes << 10
		all.cpu += time.Duration(user+system) * tick
	}
	return all, nil
}

// tick is the unit of these times: what sysconf(_SC_CLK_TCK) is on Linux for all programs.
const tick = time.Second / 100
