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

	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/wait"
)

// kind is a kind of fault.
type kind = string

// The kinds.
const (
	kill          kind = "kill"           // SIGKILL of a process; another one is started later
	namespace     kind = "namespace"      // the same; another one is started in a time namespace
	stop          kind = "stop"           // SIGSTOP of a process, SIGCONT later
	stopKill      kind = "stop-kill"      // SIGSTOP of a process, SIGKILL later
	suspend       kind = "suspend"        // a process is stopped; its monotonic clock stands meanwhile
	pauseVM       kind = "pause"          // a paused machine: stopped; its monotonic and boot clocks stand
	lateVM        kind = "late-pause"     // a paused machine, whose wall clock is set right only later
	wallOn        kind = "wall-on"        // the wall clock of a process is set forward
	wallBack      kind = "wall-back"      // the wall clock of a process is set back
	stepDown      kind = "step-down"      // the nemesis asks the holder to step down (no fault)
	lockFile      kind = "lock-file"      // the file is locked by another program's transaction
	blackHole     kind = "black-hole"     // between a process and the engine
	delay         kind = "delay"          // each piece of bytes to and from the engine waits
	loseReplies   kind = "lose-replies"   // the engine's replies are lost after it has done the work
	stopEngine    kind = "stop-engine"    // SIGSTOP of the engine, SIGCONT later
	restartEngine kind = "restart-engine" // SIGKILL of the engine, restart on the same data
	endEngine     kind = "end-engine"     // SIGTERM of the engine, restart on the same data
	failOver      kind = "fail-over"      // SIGKILL of the engine; a replica takes its place that had lagged
	isolate       kind = "isolate"        // the engine is cut off, and goes on; a replica takes its place
	powerCut      kind = "power-cut"      // SIGKILL of the engine, restart on what was on the disk
	empty         kind = "empty"          // SIGKILL of the engine, restart without data
	replayAcquire kind = "replay-acquire" // attackers send acquires again, all the time
	replayCalls   kind = "replay"         // attackers send heartbeats and releases again, all the time
)

// trait describes a kind of fault. The log must show a fault of a clock, or of the network to the
// engine.
type trait struct {
	stops, kills bool // a process: for longer than a moment, for good
	wire         bool // it is of the way to the engine
	// moves says how far the clocks of a process are moved: 1 is the length of its stop or, if it is
	// not stopped, of the fault.
	moves shift
}

type shift = replica.Shift

func (t trait) clock() bool { return t.moves != shift{} }

var traits = map[kind]trait{
	kill:        {kills: true},
	namespace:   {kills: true},
	stop:        {stops: true},
	stopKill:    {stops: true, kills: true},
	suspend:     {stops: true, moves: shift{MonoBack: 1}},
	pauseVM:     {stops: true, moves: shift{MonoBack: 1, BootBack: 1}},
	lateVM:      {stops: true, moves: shift{MonoBack: 1, BootBack: 1, WallOn: -1}},
	wallOn:      {moves: shift{WallOn: 1}},
	wallBack:    {moves: shift{WallOn: -1}},
	blackHole:   {wire: true},
	loseReplies: {wire: true},
}

// role is the target of a fault.
type role string

const (
	leader    role = "leader" // the holder of the lock
	anyone    role = "anyone"
	everybody role = "everybody"
	nobody    role = "nobody" // the engine
)

// fault is a card in the deck of the nemesis.
type fault struct {
	kind kind
	on   role
	// least and most bound its length, in leases.
	least, most float64
	// strike causes the fault, if it is not of a process.
	strike strike
}

// strike causes a fault of an engine: for one seat, or for all if that is negative. It is for
// [must.Try]; the error is errBusy if there is another.
type strike func(ctx context.Context, length time.Duration, seat int)

// commonFaults are the faults of any process.
var commonFaults = []fault{
	{kill, leader, 0.1, 1, nil},
	{kill, anyone, 0.1, 1, nil},
	{stop, leader, 0.1, 0.6, nil},
	{stop, leader, 1.2, 2.5, nil},
	{stop, leader, 1.2, 1.6, nil},
	{stop, anyone, 0.3, 3, nil},
	{stopKill, leader, 0.1, 0.5, nil},
}

// replicaFaults are the faults of a process whose clocks can be moved, and that takes orders.
var replicaFaults = []fault{
	{suspend, leader, 1.2, 2, nil},
	{suspend, leader, 0.2, 0.8, nil},
	{suspend, anyone, 0.3, 1.5, nil},
	{pauseVM, leader, 1.2, 2, nil},
	{pauseVM, anyone, 0.3, 1.5, nil},
	{lateVM, leader, 1.2, 1.5, nil},
	{wallOn, leader, 0.3, 5, nil},
	{wallOn, anyone, 100, 5000, nil},
	{wallBack, leader, 0.3, 5000, nil},
	{wallBack, anyone, 0.3, 5000, nil},
	{stepDown, anyone, 0, 0, nil},
}

// event is a fault that happened.
type event struct {
	Kind     kind   `json:"kind"`
	On       string `json:"on"` // name of a process, "engine" or "everybody"
	From, To int64
	Text     string `json:"text"`
	// Change is the number that the fault's first change of the clocks has, and
	// Shift by how much these were moved.
	Change int64 `json:"change,omitempty"`
	Shift  shift `json:"shift"`
	// Blind is how long no clock of the replica shows the pause.
	Blind [2]int64 `json:"blind"`
}

// nemesis causes faults until ctx ends, one after another: the more seats, the shorter the
// pauses. It returns when all faults are over.
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

// errBusy is the error of a fault whose target is under another fault.
var errBusy = errors.New("under another fault")

// strike causes one fault.
func (r *round) strike(ctx context.Context, f fault, length time.Duration, random *rand.Rand) {
	e := event{Kind: f.kind, On: "engine", From: r.now()}
	err := must.Try(func() {
		switch f.on {
		case nobody, everybody:
			if f.on == everybody {
				e.On = "everybody"
			}
			f.strike(ctx, length, -1)
		case leader, anyone:
			s := r.seatOf(f.on, random)
			if !s.busy.TryLock() {
				must.Do(errBusy)
			}
			defer s.busy.Unlock()
			p := s.now()
			e.On = p.name
			if !p.Alive() { // what it has ended of is told later
				r.fill(ctx, s, nil)
				must.Do(errBusy)
			}
			r.strikeSeat(ctx, s, f, length, random, &e)
		}
	})
	if errors.Is(err, errBusy) {
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

func (r *round) strikeSeat(ctx context.Context, s *seat, f fault, length time.Duration, random *rand.Rand, e *event) {
	p, t := s.now(), traits[f.kind]
	switch {
	case f.kind == stepDown:
		_ = p.SendLine(replica.OrderStepDown) // it may have ended
		e.Text = p.name + " asks the holder to step down"
		return
	case t.clock():
		r.moveClocks(ctx, p, t, length, random, e)
		return
	case t.stops:
		must.Do(p.Hang())
		wait.Rest(ctx, length)
		if !t.kills {
			if p.Continue(); p.settle != nil {
				must.Do(p.settle(ctx))
			}
			return
		}
		p.kill(r.now)
	case t.kills:
		p.kill(r.now)
		wait.Rest(ctx, length)
	default:
		f.strike(ctx, length, s.index)
		return
	}
	var where *timespace
	if f.kind == namespace || r.namespaces && random.IntN(2) == 0 {
		where = drawNamespace(random)
	}
	r.fill(ctx, s, where)
}

// moveClocks moves the clocks of a replica, and later corrects its wall clock if that was late.
func (r *round) moveClocks(
	ctx context.Context, p *process, t trait, length time.Duration, random *rand.Rand, e *event,
) {
	stands := length
	if !t.stops {
		stands = 0
		e.Text = fmt.Sprintf("%s sees its wall clock set by %+v", p.name, (length * t.moves.WallOn).Round(time.Millisecond))
	}
	if r.move(ctx, p, e, stands, length, t.moves); e.Kind != lateVM {
		return
	}
	late := *e
	e.Blind[0] = e.To
	wait.Rest(ctx, r.leases(0.05+0.2*random.Float64()))
	defer func() { e.Blind[1] = late.To }()
	r.move(ctx, p, &late, 0, -e.Shift.WallOn, shift{WallOn: 1})
}

// move stops a replica for a while, moves its clocks meanwhile, and gives it the
// time to report what it then sees. E.To is right before it runs again. Without a stop, the
// clocks are moved by a length.
func (r *round) move(ctx context.Context, p *process, e *event, stands, length time.Duration, by shift) {
	if !p.sees(ctx, 0, 10*time.Second) {
		must.Do(errBusy) // with its start: nothing would show what has changed
	}
	must.Do(p.Hang())
	stopped := r.now()
	wait.Rest(ctx, stands)
	if stands > 0 { // what the process cannot have seen pass is what passed while it stood
		length = time.Duration(r.now() - stopped)
	}
	e.Shift = shift{MonoBack: by.MonoBack * length, BootBack: by.BootBack * length, WallOn: by.WallOn * length}
	p.page.Add(e.Shift)
	_, e.Change = p.page.Load()
	e.To = r.now()
	p.Continue()
	if !p.sees(ctx, e.Change, 10*time.Second) && p.Alive() {
		must.Do(fmt.Errorf("%s has not looked at its clocks since they were moved", p.name))
	}
}
