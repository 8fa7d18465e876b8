// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/chaos/replica"
)

// kind is a kind of fault.
type kind = string

// Faults of a process.
const (
	kill      kind = "kill"       // SIGKILL, and a new process after a while
	stop      kind = "stop"       // SIGSTOP, and SIGCONT after a while
	stopKill  kind = "stop-kill"  // SIGSTOP, and SIGKILL after a while
	suspend   kind = "suspend"    // stopped; the monotonic clock stood meanwhile, boot and wall clock went on
	pauseVM   kind = "pause"      // stopped; the monotonic and the boot clock stood, the wall clock is set right at once
	lateVM    kind = "late-pause" // the same, but the wall clock is set right a little later
	wallOn    kind = "wall-on"    // somebody sets the wall clock forward
	wallBack  kind = "wall-back"  // somebody sets the wall clock back
	namespace kind = "namespace"  // SIGKILL, and a new process in a time namespace of its own
	stepDown  kind = "step-down"  // no fault: somebody asks the holder to step down
)

// Faults of an engine, or of the way to it.
const (
	lockFile      kind = "lock-file"      // another program has the file locked
	blackHole     kind = "black-hole"     // bytes vanish between process and engine
	delay         kind = "delay"          // each piece of bytes waits
	loseReplies   kind = "lose-replies"   // the engine does what it is asked; its answers vanish
	stopEngine    kind = "stop-engine"    // SIGSTOP, and SIGCONT after a while
	restartEngine kind = "restart-engine" // SIGKILL, and a new process on the same data
	endEngine     kind = "end-engine"     // SIGTERM, and a new process on the same data
	replayAcquire kind = "replay-acquire" // attackers send acquires again, all the time
	replayCalls   kind = "replay"         // the same, of heartbeats and releases
)

// trait says what a kind of fault is.
type trait struct {
	meaning     string
	stops       bool // a process, for longer than a moment
	clock, wire bool // it is of a clock, or of the way to the engine: something has to show it
}

var traits = map[kind]trait{
	kill:          {meaning: "SIGKILL of a process; another one is started later"},
	namespace:     {meaning: "SIGKILL of a process; another one is started in a time namespace"},
	stop:          {meaning: "SIGSTOP of a process, SIGCONT later", stops: true},
	stopKill:      {meaning: "SIGSTOP of a process, SIGKILL later", stops: true},
	suspend:       {"suspend: stopped; its monotonic clock stands meanwhile", true, true, false},
	pauseVM:       {"paused machine: stopped; its monotonic and boot clocks stand", true, true, false},
	lateVM:        {"paused machine, whose wall clock is set right only later", true, true, false},
	wallOn:        {"wall clock of a process set forward", false, true, false},
	wallBack:      {"wall clock of a process set back", false, true, false},
	stepDown:      {meaning: "somebody asks the holder to step down (no fault)"},
	lockFile:      {meaning: "file locked by another program's transaction"},
	blackHole:     {"black hole between a process and the engine", false, false, true},
	delay:         {meaning: "each piece of bytes to and from the engine waits"},
	loseReplies:   {"the engine's replies are lost after it has done the work", false, false, true},
	stopEngine:    {meaning: "SIGSTOP of the engine, SIGCONT later"},
	restartEngine: {meaning: "SIGKILL of the engine, restart on the same data"},
	endEngine:     {meaning: "SIGTERM of the engine, restart on the same data"},
	replayAcquire: {meaning: "attackers send acquires again, all the time"},
	replayCalls:   {meaning: "attackers send heartbeats and releases again, all the time"},
}

// role says whom a fault is for.
type role string

const (
	leader    role = "leader" // who holds the lock
	anyone    role = "anyone"
	everybody role = "everybody"
	nobody    role = "nobody" // the engine
)

// fault is a card in the deck of the nemesis.
type fault struct {
	kind kind
	on   role
	// least and most bound how long it takes, in leases.
	least, most float64
}

// commonFaults are those of any process.
var commonFaults = []fault{
	{kill, leader, 0.1, 1},
	{kill, anyone, 0.1, 1},
	{stop, leader, 0.1, 0.6},
	{stop, leader, 1.2, 2.5},
	{stop, leader, 1.2, 1.6},
	{stop, anyone, 0.3, 3},
	{stopKill, leader, 0.1, 0.5},
}

// replicaFaults are those of a process whose clocks can be moved, and that takes orders.
var replicaFaults = []fault{
	{suspend, leader, 1.2, 2},
	{suspend, leader, 0.2, 0.8},
	{suspend, anyone, 0.3, 1.5},
	{pauseVM, leader, 1.2, 2},
	{pauseVM, anyone, 0.3, 1.5},
	{lateVM, leader, 1.2, 1.5},
	{wallOn, leader, 0.3, 5},
	{wallOn, anyone, 100, 5000},
	{wallBack, leader, 0.3, 5000},
	{wallBack, anyone, 0.3, 5000},
	{stepDown, anyone, 0, 0},
}

// event is a fault that happened.
type event struct {
	Kind     kind   `json:"kind"`
	On       string `json:"on"` // name of a process, "engine" or "everybody"
	From, To int64
	Text     string `json:"text"`
	// Change is the number that the fault's first change of the clocks has, and
	// Shift by how much these were moved.
	Change int64         `json:"change,omitempty"`
	Shift  replica.Shift `json:"shift"`
	// Blind is the time in which no clock of the replica shows the pause.
	Blind [2]int64 `json:"blind"`
}

// nemesis deals faults until ctx ends, each a while after the one before: the more seats, the
// shorter. It returns when they are over.
func (r *round) nemesis(ctx context.Context, random *rand.Rand) {
	deck := append(r.work.faults(), r.engine.faults()...)
	for _, f := range deck {
		r.possible[f.kind] = true
	}
	if len(r.Only) > 0 {
		deck = slices.DeleteFunc(deck, func(f fault) bool { return !slices.Contains(r.Only, f.kind) })
	}
	if len(deck) == 0 {
		r.trouble("%s has no faults like %v", r.Engine, r.Only)
		return
	}
	var under sync.WaitGroup
	defer under.Wait()
	under.Go(func() { r.work.beside(ctx) })
	for n := 0; ctx.Err() == nil; n++ {
		if n%len(deck) == 0 {
			random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		f := deck[n%len(deck)]
		length := r.leases(f.least + (f.most-f.least)*random.Float64())
		after := r.leases((1.2 + 3.6*random.Float64()) / float64(len(r.seats)))
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		// A fault that has begun ends in its own time.
		under.Go(func() { r.strike(context.WithoutCancel(ctx), f, length, own) })
		wait.Rest(ctx, after)
	}
}

// leases is a time of so many leases.
func (r *round) leases(n float64) time.Duration { return time.Duration(n * float64(r.Lease)) }

// errBusy is the error of a fault for what is under another one.
var errBusy = errors.New("under another fault")

// strike brings about one fault.
func (r *round) strike(ctx context.Context, f fault, length time.Duration, random *rand.Rand) {
	e := event{Kind: f.kind, From: r.now()}
	var err error
	switch f.on {
	case nobody, everybody:
		e.On = "engine"
		if f.on == everybody {
			e.On = "everybody"
		}
		err = r.engine.strike(ctx, f, length, -1)
	case leader, anyone:
		s := r.seatOf(f.on, random)
		if !s.busy.TryLock() {
			return
		}
		defer s.busy.Unlock()
		p := s.now()
		if !p.Alive() {
			err = r.fill(ctx, s, nil) // what it has ended of is told later
			break
		}
		e.On = p.name
		err = r.strikeSeat(ctx, s, f, length, random, &e)
	}
	if errors.Is(err, errBusy) || e.On == "" && err == nil {
		return
	}
	if e.To == 0 || e.Blind[0] > 0 {
		e.To = r.now()
	}
	if err != nil {
		r.trouble("%s of %s: %v", f.kind, e.On, err)
		return
	}
	if e.Text == "" {
		e.Text = fmt.Sprintf("%s of %s for %v", e.Kind, e.On, time.Duration(e.To-e.From).Round(time.Millisecond))
	}
	r.note(e)
}

func (r *round) strikeSeat(ctx context.Context, s *seat, f fault, length time.Duration, random *rand.Rand,
	e *event,
) error {
	p := s.now()
	switch f.kind {
	case kill, namespace:
		where := r.drawPlace(random, f.kind == namespace)
		p.kill(r.now)
		wait.Rest(ctx, length)
		return r.fill(ctx, s, where)
	case stopKill:
		if err := p.stop(); err != nil {
			return err
		}
		wait.Rest(ctx, length)
		p.kill(r.now)
		return r.fill(ctx, s, r.drawPlace(random, false))
	case stop:
		if err := p.stop(); err != nil {
			return err
		}
		wait.Rest(ctx, length)
		if err := p.Continue(); err != nil || p.settle == nil {
			return err
		}
		return p.settle(ctx)
	case stepDown:
		_ = p.SendLine(replica.OrderStepDown) // it may have ended
		e.Text = p.name + " asks the holder to step down"
		return nil
	case wallOn, wallBack:
		if f.kind == wallBack {
			length = -length
		}
		e.Text = fmt.Sprintf("%s sees its wall clock set by %+v", p.name, length.Round(time.Millisecond))
		return r.move(ctx, p, e, 0, func(time.Duration) replica.Shift { return replica.Shift{WallOn: length} })
	case suspend:
		return r.move(ctx, p, e, length,
			func(took time.Duration) replica.Shift { return replica.Shift{MonoBack: took} })
	case pauseVM:
		return r.move(ctx, p, e, length,
			func(took time.Duration) replica.Shift { return replica.Shift{MonoBack: took, BootBack: took} })
	case lateVM:
		err := r.move(ctx, p, e, length, func(took time.Duration) replica.Shift {
			return replica.Shift{MonoBack: took, BootBack: took, WallOn: -took}
		})
		if err != nil {
			return err
		}
		late := *e
		e.Blind[0] = e.To
		wait.Rest(ctx, r.leases(0.05+0.2*random.Float64()))
		err = r.move(ctx, p, &late, 0,
			func(time.Duration) replica.Shift { return replica.Shift{WallOn: -e.Shift.WallOn} })
		e.Blind[1] = late.To
		return err
	default:
		return r.engine.strike(ctx, f, length, s.index)
	}
}

// move stops a replica for a while, moves its clocks meanwhile, and gives it the
// time to say what it sees then. E.To is right before it runs again.
func (r *round) move(ctx context.Context, p *process, e *event, length time.Duration,
	by func(took time.Duration) replica.Shift,
) error {
	if !p.sees(ctx, 0, 10*time.Second) {
		return errBusy // with its start: nothing would show what has changed
	}
	if err := p.stop(); err != nil {
		return err
	}
	stands := r.now()
	wait.Rest(ctx, length)
	// What the process cannot have seen pass is what passed while it stood.
	e.Shift = by(time.Duration(r.now() - stands))
	p.page.Add(e.Shift)
	_, e.Change = p.page.Load()
	e.To = r.now()
	if err := p.Continue(); err != nil {
		return err
	}
	if p.sees(ctx, e.Change, 10*time.Second) || !p.Alive() {
		return nil
	}
	return fmt.Errorf("%s has not looked at its clocks since they were moved", p.name)
}
