// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
)

// plan describes a round.
type plan struct {
	Engine string
	Seed   uint64
	Seats  int // processes at a time
	Lease  time.Duration
	Length time.Duration // of the nemesis
	Drift  float64       // by what part of it the rate of a replica's clocks may differ
	// Open is a deliberate mistake: the fence accepts every token.
	Open bool `json:",omitempty"`
	// Only limits the nemesis to these faults, if it is not empty.
	Only []kind `json:",omitempty"`

	workload   func(*round) workload
	namespaces bool // processes may be started in time namespaces
}

// workload is what the processes of a round do. Its steps are for [must.Try].
type workload interface {
	// open makes a fresh engine, with its data below the round's folder, and sets the clock.
	open(ctx context.Context) engine
	// seat names a seat.
	seat(index int) string
	// start starts a process in a seat.
	start(ctx context.Context, s *seat, p *process)
	// faults are the faults of its processes.
	faults() []fault
	// beside runs during the faults, until ctx ends.
	beside(ctx context.Context)
	// holder returns the last process granted the lock, unless it reported the end.
	holder() holder
	// calm runs when the faults are over.
	calm(ctx context.Context)
	// finish asks a process to end, within a time.
	finish(ctx context.Context, p *process)
	// collect reads the final state of the engine.
	collect(ctx context.Context)
	// read adds to the verdict all holds and answers of the processes.
	read(v *verdict)
	// check judges what only this workload knows.
	check(v *verdict)
}

// holder is the process that holds the lock, since an instant; nil without a holder.
type holder struct {
	*process
	since int64
}

// round is one run of a few processes on a fresh engine, under one nemesis.
type round struct {
	plan
	peers.Scope
	work     workload
	dir      string
	now      func() int64 // the clock of all time stamps
	resource *trial.Resource
	engine   engine
	seats    []*seat
	possible map[kind]bool // faults that could be dealt

	mu       sync.Mutex // guards the fields below
	events   []event
	problems []string

	filled, calmed int64

	recovery time.Duration // from the last kill to the next grant
	bound    time.Duration // of that; 0 if nobody was killed
	late     time.Duration // by how much this machine is late at most
	lost     int           // pieces of bytes that vanished in gates
	effects  []trial.Effect
}

// play runs a round. The error is of this program, or of the machine; the
// results are in the round.
func (p plan) play(ctx context.Context) (*round, error) {
	r := &round{plan: p, possible: map[kind]bool{}}
	return r, must.Try(func() { r.Run(func() { r.play(ctx) }) })
}

func (r *round) play(ctx context.Context) {
	r.dir = must.Have(os.MkdirTemp("", "tenure-chaos-"))
	r.After(func() { _ = os.RemoveAll(r.dir) }) // it is the system's to clean, then
	r.work = r.workload(r)
	r.engine = r.work.open(ctx)
	r.resource = trial.OpenResource(r.now, r.Open)
	r.After(r.resource.Close)
	random := rand.New(rand.NewPCG(r.Seed, 0))
	for i := range r.Seats {
		r.seats = append(r.seats, &seat{index: i, name: r.work.seat(i)})
	}
	r.each(ctx, func(s *seat) {
		var where *timespace
		if r.namespaces && s.index%2 == 1 {
			where = drawNamespace(rand.New(rand.NewPCG(r.Seed, uint64(s.index))))
		}
		r.fill(ctx, s, where)
	})
	r.filled = r.now()
	lateness := wait.Lateness()
	defer lateness()
	err := wait.Until(ctx, "somebody holds the lock", func() bool { return r.work.holder().process != nil })
	if err != nil {
		must.Do(fmt.Errorf("%w: %q", err, r.problems))
	}

	striking, stop := context.WithTimeout(ctx, r.Length)
	r.nemesis(striking, random)
	stop()
	must.Do(ctx.Err())
	r.engine.heal()
	for _, s := range r.seats {
		if !s.now().Alive() {
			r.fill(ctx, s, nil)
		}
	}
	r.late = lateness()
	r.work.calm(ctx)
	r.calmed = r.now()
	wait.Rest(ctx, r.Lease/2)
	r.each(ctx, func(s *seat) {
		if p := s.now(); p.Alive() { // a process that does not end is killed at the end
			soon, cancel := context.WithTimeout(ctx, 10*time.Second+5*r.Lease)
			defer cancel()
			r.work.finish(soon, p)
		}
	})
	for _, s := range r.seats {
		for _, p := range s.lives {
			if p.Alive() {
				p.kill(r.now)
			}
			if text := p.outcome(); text != "" {
				r.problems = append(r.problems, text)
			}
		}
	}
	var bad []string
	r.effects, bad = r.resource.Seen()
	r.lost = r.engine.lost()
	r.problems = append(r.problems, bad...)
	r.work.collect(ctx)
}

// each calls a function for all seats at once.
func (r *round) each(ctx context.Context, do func(*seat)) {
	must.AtOnce(ctx, len(r.seats), len(r.seats), func(_ context.Context, i int) { do(r.seats[i]) })
}

// fill starts a process in a seat that is empty. It ends with the round.
func (r *round) fill(ctx context.Context, s *seat, where *timespace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &process{name: fmt.Sprintf("%s.%d", s.name, len(s.lives)+1), where: where, began: r.now()}
	r.work.start(ctx, s, p)
	s.lives = append(s.lives, p)
	r.After(p.Kill)
}

// lastBlow waits for a holder, kills it, and measures how long it takes until another one holds
// the lock: the killed process is not replaced. It may take the
// time allowed, and ten times the delay of the machine's timers.
func (r *round) lastBlow(ctx context.Context, allowed time.Duration) {
	r.bound, r.recovery = allowed+10*r.late, -1
	var last holder
	wait.Within(ctx, r.bound+r.Lease, func() bool { // who has just been told to stop may hold it for so long
		last = r.work.holder()
		return last.process != nil && last.Alive()
	})
	if last.process == nil || !last.Alive() {
		return
	}
	at := r.now()
	last.kill(r.now)
	r.note(event{
		Kind: kill, On: last.name, From: at, To: at,
		Text: last.name + ", which holds the lock, is killed, and not replaced",
	})
	wait.Within(ctx, r.bound+5*time.Second, func() bool {
		next := r.work.holder()
		if next.process == nil || next.process == last.process || next.since < at {
			return false
		}
		r.recovery = time.Duration(next.since - at)
		return true
	})
}

// seatOf returns the seat that a fault is for.
func (r *round) seatOf(on role, random *rand.Rand) *seat {
	if h := r.work.holder(); on == leader && h.process != nil {
		if s := r.seats[r.seatIndex(h.name)]; s.now() == h.process {
			return s
		}
	}
	return r.seats[random.IntN(len(r.seats))]
}

func (r *round) note(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// trouble notes an event that no fault explains.
func (r *round) trouble(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// save writes all logs of a round, to analyse a violation: a seed does not
// replay the same round, because the machine's timing differs.
func (r *round) save(path string) error {
	lines := map[string][]replica.Line{}
	for _, s := range r.seats {
		for _, p := range s.lives {
			lines[p.name] = p.lines
		}
	}
	text, err := json.MarshalIndent(map[string]any{"events": r.events, "lines": lines, "effects": r.effects}, "", " ")
	return errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644))
}

// seat is a place that one process after another takes.
type seat struct {
	index int
	name  string
	busy  sync.Mutex // held by the fault that it is under

	mu    sync.Mutex // guards the fields below
	lives []*process
}

// now returns the process in the seat.
func (s *seat) now() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lives[len(s.lives)-1]
}

// process is one life of a seat: a replica, or a client of the lock service.
type process struct {
	*proc.Process
	name  string // of its seat, and which life it is
	began int64
	// settle gives the process time to see that it was stopped. It may be nil.
	settle func(context.Context) error

	// Of a replica: its time namespace, the rate of its clocks, and what moves them.
	where *timespace
	rate  float64
	page  *replica.Page

	// Of a client of the service.
	member *peers.Member
	works  *peers.Call

	mu     sync.Mutex // guards the fields below
	lines  []replica.Line
	killed bool  // by this program
	seen   int64 // the last change of the clocks that it has reported; -1 before it has looked
	end    int64 // when it had ended
}

// startReplica starts a replica as a process, by a command that may have arguments. Its lines are
// kept until it ends, and each is passed on.
func (p *process) startReplica(c replica.Config, command proc.Command, heard func(replica.Line)) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	command.Role, command.Env = replica.RoleName, []string{replica.Variable + "=" + string(text)}
	command.Line = func(line []byte) {
		var l replica.Line
		if err := json.Unmarshal(line, &l); err != nil { // a kill can cut the last line off
			l = replica.Line{Kind: replica.Trouble, Text: fmt.Sprintf("says %.200q: %v", line, err)}
		}
		p.mu.Lock()
		p.lines = append(p.lines, l)
		if l.Clocks != nil {
			p.seen = l.Clocks.Change
		}
		p.mu.Unlock()
		heard(l)
	}
	p.Process, p.seen = &proc.Process{}, -1
	return p.Start(command)
}

// read adds to the verdict the holds of a replica, and the answers that it got. In a blind span
// of time no clock of the replica showed the pause that it had just been through.
func (p *process) read(v *verdict, blind func(owner string, from, to int64) bool) {
	var holds []*trial.Hold
	of, good := map[trial.Term]*trial.Hold{}, map[trial.Term]*trial.Hold{} // all; those whose Check passes
	passed := func(from int64, holds ...*trial.Hold) {
		v.Counts.Checks++
		if blind(p.name, from, from) {
			v.Counts.Blind++
			return
		}
		for _, h := range holds {
			h.Last = max(h.Last, from)
		}
	}
	for _, l := range p.lines {
		key := l.Term()
		h := of[key]
		switch l.Kind {
		case replica.Trouble:
			v.sin(unexpected, "%s says: %s", p.name, l.Text)
		case replica.Torn:
			if !blind(p.name, l.From, l.At) {
				v.sin(torn, "%s read %s", p.name, l.Text)
			}
		case replica.Granted:
			hold := l.Hold
			h, hold.Begin, hold.Last, hold.Killed = &hold, l.To, 0, true // until it says that it has ended
			of[key], good[key], holds = h, h, append(holds, h)
			if l.Rule != "" {
				v.Counts.Of[string(l.Rule)]++
			}
			passed(l.From, h)
		case replica.Held:
			if h == nil { // of all
				passed(l.From, slices.Collect(maps.Values(good))...)
			}
		case replica.Told:
			v.log.Answers = append(v.log.Answers, trial.Answer{
				Lock: l.Lock, Owner: l.Owner, Occasion: l.Occasion, Token: l.Token, At: l.At,
				Ended: l.Text == string(once.StateDone) || l.Text == string(once.StateFailed),
			})
		case replica.End:
			v.told[l.ID] = l.Told
		case replica.Begin:
			v.Counts.Operations++
		}
		if h == nil {
			continue
		}
		switch l.Kind {
		case replica.Held, replica.Begin:
			passed(l.From, h)
		case replica.Failed:
			delete(good, key)
			passed(l.From, h)
		case replica.Ended:
			delete(good, key)
			h.Killed = false
			passed(l.From, h)
		case replica.Finished:
			h.Finished = true
		}
	}
	for _, h := range holds {
		v.log.Holds = append(v.log.Holds, *h)
	}
}

// sees waits until the process has reported what its clocks show since a change.
func (p *process) sees(ctx context.Context, change int64, patience time.Duration) bool {
	seen := false
	wait.Within(ctx, patience, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		seen = p.seen >= change
		return seen || !p.Alive()
	})
	return seen
}

// kill ends it with SIGKILL, and waits until it has.
func (p *process) kill(now func() int64) {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	p.Kill()
	p.ended(now)
}

// ended notes when it had.
func (p *process) ended(now func() int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == 0 {
		p.end = now()
	}
}

// outcome returns what is wrong with its end, "" if nothing is.
func (p *process) outcome() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, _ := p.State().Sys().(syscall.WaitStatus)
	asked := p.killed && status.Signaled() && status.Signal() == syscall.SIGKILL
	if asked && p.member != nil || (asked || status.Exited() && status.ExitStatus() == 0) && p.Stderr() == "" {
		return ""
	}
	return fmt.Sprintf("%s ended with %v: %.2000s", p.name, p.State(), p.Stderr())
}

// timespace is a time namespace that a process is started in: by how much its
// clocks differ from the machine's, in seconds.
type timespace struct {
	Monotonic, Boot int64
}

func drawNamespace(random *rand.Rand) *timespace {
	return &timespace{Monotonic: 1 + random.Int64N(1e8), Boot: 1 + random.Int64N(1e8)}
}

// command returns what starts this program again, in the namespace; nothing if that is this one.
func (n *timespace) command() []string {
	if n == nil {
		return nil
	}
	self, _ := os.Executable() // Linux knows it
	args := []string{
		"unshare", "--time", "--monotonic", fmt.Sprint(n.Monotonic), "--boottime", fmt.Sprint(n.Boot), self,
	}
	if os.Getuid() != 0 {
		args = slices.Insert(args, 1, "--user", "--map-current-user")
	}
	return args
}
