// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/harness/gate"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/service"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// serviceLock is what the clients of the service contend for, and serviceSlots how many hold it at once in a
// round of slots.
const (
	serviceLock  = "jobs/nightly"
	serviceSlots = 3
)

// clients is the workload of programs in Go, Python, TypeScript and Java that hold one lock in turn, read and
// write, or hold slots, round by round. They do so by a lock service, whose replicas are the engine. A gate before
// each seat loses, delays, doubles, replays and cuts calls, and answers in the place of the service.
type clients struct {
	*round
	tenured  string           // the path of the program
	programs []*peers.Program // a seat for each
	service  *lockService
	log      string // what the clients' work writes
	holds    []trial.Hold
	terms    map[string][]service.Tenure // by the lock
	attacks  map[kind]int
}

func (w *clients) open(ctx context.Context) engine {
	w.now, w.log = proc.Monotonic, filepath.Join(w.dir, "work.log") // by the clock of what clients write
	must.Do(os.WriteFile(w.log, nil, 0o600))
	w.service = openService(ctx, w)
	return w.service
}

func (w *clients) seat(index int) string {
	return fmt.Sprintf("%s-%d", w.programs[index].Kind, index+1)
}

func (w *clients) faults() []fault { return commonFaults }

// mode is what a seat acquires.
func (w *clients) mode(seat int) wire.Mode {
	language, nth := seat/clientsEach, seat%clientsEach
	switch w.Seed % 3 {
	case 0:
		return ""
	case 1:
		return wire.Slot
	}
	return []wire.Mode{wire.Write, wire.Read}[(language+nth)%2] // of each language and kind, some are under a session
}

// held names each kind of hold in the counts.
var held = map[wire.Mode]string{
	"": "of the lock", wire.Read: "of readers", wire.Write: "of writers", wire.Slot: "of slots",
}

// locks are the locks that are held in this round, but those of readers.
func (w *clients) locks() (all []string) {
	switch w.mode(0) {
	case wire.Slot:
		for i := range serviceSlots {
			all = append(all, semaphore.LockName(serviceLock, i))
		}
		return all
	case wire.Read, wire.Write:
		return []string{rwlock.GateName(serviceLock)}
	}
	return []string{serviceLock}
}

// start starts a client, which repeatedly takes the lock and holds it for a while; most holds
// need heartbeats. One of the clients of each language holds it under a session. Half of that time is between a
// check and the effect that it allows: a process that is stopped there is late, and only a fence can detect that.
func (w *clients) start(ctx context.Context, s *seat, p *process) {
	p.member = w.programs[s.index].Open(ctx, wire.Request{
		Command: wire.Open, Endpoint: w.service.store(s.index), Owner: p.name, Secret: w.service.replicas.Worker,
		Session: s.index%clientsEach > 0,
	})
	p.Process = &p.member.Process.Process
	// A kill right away would leave it unknown when it stopped.
	p.settle = func(ctx context.Context) error {
		_, err := p.member.Do(ctx, p.member.Asking(wire.Ping, serviceLock))
		wait.Rest(ctx, w.Lease/5)
		return err
	}
	random := rand.New(rand.NewPCG(w.Seed, uint64(s.index)))
	longest, patience := 2.5, 2*time.Second
	if w.mode(s.index) == wire.Read {
		longest = 0.5 // or writers would have no turn
	}
	if w.mode(s.index) == wire.Write { // it waits for readers, dead ones as well
		patience += w.leases(10)
	}
	p.works = p.member.Begin(wire.Request{
		Command: wire.Work, Name: serviceLock, Mode: w.mode(s.index), Slots: serviceSlots,
		Log: w.log, Resource: w.resource.URL(), EffectMs: 10, HesitateMs: 10,
		HoldMs: w.leases(0.5 + longest*random.Float64()).Milliseconds(), PauseMs: 50,
		DurationMs: time.Hour.Milliseconds(), WaitMs: peers.Milliseconds(patience),
	})
}

// beside has attackers send calls again that they have seen, of any client. No client uses a grant
// to an attacker's acquire.
func (w *clients) beside(ctx context.Context) {
	all := len(w.service.fronts)
	var attackers sync.WaitGroup
	for _, front := range w.service.fronts {
		for kind, attack := range map[kind]struct {
			period time.Duration // of all fronts together
			paths  []string
		}{
			replayCalls:   {w.Lease / 20, []string{service.HeartbeatPath, service.ReleasePath, service.DrainPath}},
			replayAcquire: {w.Lease * 4, []string{service.AcquirePath}},
		} {
			attackers.Go(func() {
				n := front.Attack(ctx, time.Duration(all)*attack.period, math.MaxInt, service.IsCall(attack.paths...))
				w.mu.Lock()
				defer w.mu.Unlock()
				w.attacks[kind] += n
			})
		}
	}
	attackers.Wait()
}

func (w *clients) holder() holder {
	all, err := w.written()
	if err != nil || len(all) == 0 || !all[len(all)-1].Killed {
		return holder{}
	}
	last := all[len(all)-1]
	s := w.seats[w.seatIndex(last.Owner)]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.lives {
		if p.name == last.Owner {
			return holder{p, last.Begin}
		}
	}
	return holder{}
}

// written returns the holds of the log. One whose end is not written, yet or ever, is Killed.
func (w *clients) written() ([]trial.Hold, error) {
	text, err := os.ReadFile(w.log)
	if err != nil {
		return nil, err
	}
	var all []trial.Hold
	for line := range strings.Lines(string(text)) {
		l, err := wire.ParseLog(line)
		if err != nil {
			return all, err
		}
		i := len(all) - 1 // its hold
		for i >= 0 && all[i].Owner != l.Owner {
			i--
		}
		switch open := i >= 0 && all[i].Killed; {
		case l.What == wire.LogBegin && !open:
			all = append(all, trial.Hold{
				Lock: l.Name, Owner: l.Owner, Token: l.Token, Begin: l.At, Last: l.At, Killed: true,
			})
		case l.What == wire.LogEnd && open && l.At >= all[i].Begin:
			all[i].Last, all[i].Killed = l.At, false
		default:
			return all, fmt.Errorf("line %q is not in its place", line)
		}
	}
	return all, nil
}

// calm waits until late calls, repeated calls, and grants to clients that have gone are
// over, and kills the holder once more. The next one has a lease, with what
// clocks may differ by, and a poll of its replica.
func (w *clients) calm(ctx context.Context) {
	must.Do(wait.For(ctx, 4*w.Lease))
	w.lastBlow(ctx, w.Lease*3/2+2*time.Second)
}

// finish asks the client to end its work, and notes the result.
func (w *clients) finish(ctx context.Context, p *process) {
	must.Have(p.member.Do(ctx, p.member.Asking(wire.End, serviceLock)))
	a, err := p.works.Wait(ctx)
	if err != nil {
		must.Do(fmt.Errorf("%s does not end: %w", p.name, err))
	}
	if n := a.Counts; n != nil && n.Errors > 0 {
		// An acquire without an answer ends so after a long time, and so may a release.
		kind, _, _ := strings.Cut(n.LastError, ":")
		if !strings.Contains(kind, "Unavailable") && !strings.Contains(kind, "Uncertain") {
			w.trouble("a client's work came to an error: %s", n.LastError)
		}
	}
}

func (w *clients) collect(ctx context.Context) {
	w.holds = must.Have(w.written())
	w.terms = map[string][]service.Tenure{}
	for _, name := range w.locks() {
		w.terms[name] = w.service.replicas.History(ctx, 0, name)
	}
}

func (w *clients) read(v *verdict) {
	v.log.Holds = slices.Clone(w.holds)
	for i, h := range w.holds {
		seat := w.seatIndex(h.Owner)
		v.Counts.Of[string(w.programs[seat].Kind)]++
		v.log.Holds[i].Shared = w.mode(seat) == wire.Read
		v.Counts.Came[held[w.mode(seat)]]++
		for _, p := range w.seats[seat].lives {
			if h.Killed && p.name == h.Owner && !p.killed {
				v.sin(unexpected, "%s has not said when its last hold ended", p.name)
			}
		}
	}
	v.Counts.Operations = len(w.effects)
	v.Counts.Weather = w.service.weather()
	maps.Copy(v.Counts.Faults, w.attacks)
}

// gapBound is how long the lock may have no holder in a round: a dead holder's lease; one
// more that a late heartbeat can add; another because a waiter starts over when its replica
// is killed; two for grants whose answers are lost, and one for an attacker's acquire, a lease
// each; and a store that pauses.
func gapBound(lease time.Duration) time.Duration { return 7*lease + 2*time.Second }

// check compares the log with the service's history of the lock: each hold is a term of it,
// with the same owner.
func (w *clients) check(v *verdict) {
	if gap, before, after := v.log.Gap(w.filled, w.calmed); gap > gapBound(w.Lease) {
		v.sin(noLeader, "no process held the lock for %s, from %s to %s; at most %s are allowed",
			shown(gap), before, after, shown(gapBound(w.Lease)))
	}
	type term struct {
		lock  string
		token uint64
	}
	owners := map[term]string{}
	for name, terms := range w.terms {
		for _, t := range terms {
			owners[term{name, t.Token}] = t.Owner
		}
	}
	for _, t := range v.log.Holds {
		of := term{t.Lock, t.Token}
		if w.mode(w.seatIndex(t.Owner)) == wire.Write {
			of = term{rwlock.GateName(t.Lock), t.Token / 2}
		}
		switch owner, found := owners[of]; {
		case t.Shared: // any of many slots
		case !found:
			v.sin(history, "token %d of %s is in no tenure of the history", t.Token, t.Owner)
		case owner != "" && owner != t.Owner: // a crash can hide who it was
			v.sin(history, "token %d was held by %s, and the history says by %s", t.Token, t.Owner, owner)
		}
	}
}

// lockService is the engine of clients: replicas of the lock service on one file, and a gate
// before each seat.
type lockService struct {
	*sqlite
	replicas *service.Replicas
	locks    []string // whose holders are asked to step down
	fronts   []*gate.HTTP
	struck   atomic.Int64 // which replica was, last
	under    sync.Mutex   // held while a replica is under a fault
}

func openService(ctx context.Context, w *clients) *lockService {
	s := &lockService{sqlite: openSQLite(w.dir, &w.Scope), locks: w.locks()}
	s.replicas = service.Start(ctx, &w.Scope, service.Config{
		Program: w.tenured, Dir: w.dir, Stores: slices.Repeat([]string{s.sqlite.store(0)}, serviceReplicas),
		Lease: w.Lease, Drain: w.Lease / 4,
	})
	for i := range w.programs {
		front := service.NewFront(s.replicas.URLs(), gate.Storm(w.Lease), w.Seed<<16+uint64(i))
		w.After(front.Close)
		s.fronts = append(s.fronts, front)
	}
	return s
}

func (s *lockService) store(seat int) string { return s.fronts[seat].Address() }

func (s *lockService) faults() []fault {
	restart := s.replica(func(ctx context.Context, length time.Duration, i int) {
		s.replicas.Process(i).Kill()
		wait.Rest(ctx, length)
		s.replicas.Restart(ctx, i)
	})
	stop := s.replica(func(ctx context.Context, length time.Duration, i int) {
		p := s.replicas.Process(i)
		defer p.Continue()
		must.Do(p.Hang())
		wait.Rest(ctx, length)
	})
	end := s.replica(func(ctx context.Context, length time.Duration, i int) { // as a deployment does
		bound, cancel := context.WithTimeout(ctx, wait.Bound)
		defer cancel()
		s.replicas.Terminate(bound, i)
		wait.Rest(ctx, length)
		s.replicas.Restart(ctx, i)
	})
	return []fault{
		{blackHole, leader, 0.5, 2, s.cutOff},
		{blackHole, anyone, 0.5, 2, s.cutOff},
		{restartEngine, nobody, 0.1, 0.8, restart},
		{stopEngine, nobody, 0.3, 1.5, stop},
		{endEngine, nobody, 0, 0.1, end},
		{lockFile, nobody, 0.2, 0.7, exclusive(&s.busy, s.lock)},
		{stepDown, nobody, 0, 0, s.stepDown},
	}
}

// replica is a fault of one replica after the other, one at a time: the others must observe
// for a lease that a holder is dead.
func (s *lockService) replica(f strike) strike {
	return exclusive(&s.under, func(ctx context.Context, length time.Duration, _ int) {
		i := s.next()
		if p := s.replicas.Process(i); !p.Alive() {
			must.Do(fmt.Errorf("replica %d has ended by itself:\n%s", i+1, p.Stderr()))
		}
		f(ctx, length, i)
	})
}

func (s *lockService) next() int { return int(s.struck.Add(1)) % serviceReplicas }

func (s *lockService) cutOff(ctx context.Context, length time.Duration, seat int) {
	s.fronts[seat].BlackHole()
	wait.Rest(ctx, length)
	s.fronts[seat].Heal()
}

func (s *lockService) stepDown(ctx context.Context, _ time.Duration, _ int) {
	i := s.next()
	s.replicas.StepDown(ctx, i, s.locks[i%len(s.locks)], 0)
}

// heal ends all faults, and the weather.
func (s *lockService) heal() {
	for _, front := range s.fronts {
		front.Heal()
		front.Change(gate.Fair)
	}
}

// weather counts what the gates have done.
func (s *lockService) weather() map[string]int {
	all := map[string]int{}
	for _, front := range s.fronts {
		for fault, n := range front.Counts() {
			if fault != gate.None && fault != gate.Hole {
				all[string(fault)] += n
			}
		}
	}
	return all
}

// lost is how many calls a black hole has dropped.
func (s *lockService) lost() (n int) {
	for _, front := range s.fronts {
		n += front.Counts()[gate.Hole]
	}
	return n
}

// newClients returns the workload of clients of each language. It builds what it needs in a folder, and
// is for [must.Try].
func newClients(ctx context.Context, dir string) func(*round) workload {
	tenured := service.BuildCommand(ctx, dir, "tenured")
	var programs []*peers.Program
	for _, kind := range service.Kinds {
		programs = append(programs, slices.Repeat([]*peers.Program{service.Build(ctx, kind)}, clientsEach)...)
	}
	return func(r *round) workload {
		return &clients{round: r, tenured: tenured, programs: programs, attacks: map[kind]int{}}
	}
}
