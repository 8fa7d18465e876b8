// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/peers"
)

// seat is where one process after another lives.
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
	// settle gives it the time to see that it was stopped. It may be nil.
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
	seen   int64 // the last change of the clocks that it has told of; -1 before it has looked
	end    int64 // when it had ended
}

// startReplica starts a replica as a process, by a command that may have arguments. Its lines are
// kept until it ends, and each is handed on.
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

// term is what a process has under one token, for one occasion.
type term struct {
	lock, owner string
	token       uint64
	occasion    int64
}

func termOf(l replica.Line) term { return term{l.Lock, l.Owner, l.Token, l.Occasion} }

// read takes into the verdict what a replica has held, and what it was told. No clock of it showed
// the pause that it had just been through in a span of time that is blind.
func (p *process) read(v *verdict, blind func(owner string, from, to int64) bool) {
	var holds []*trial.Hold
	of, good := map[term]*trial.Hold{}, map[term]*trial.Hold{} // all; those whose Check passes
	passed := func(from int64, holds ...*trial.Hold) {
		v.Checks++
		if blind(p.name, from, from) {
			v.Blind++
			return
		}
		for _, h := range holds {
			h.Last = max(h.Last, from)
		}
	}
	for _, l := range p.lines {
		key := termOf(l)
		h := of[key]
		switch l.Kind {
		case replica.Trouble:
			v.sin(unexpected, "%s says: %s", p.name, l.Text)
		case replica.Torn:
			if !blind(p.name, l.From, l.At) {
				v.sin(torn, "%s read %s", p.name, l.Text)
			}
		case replica.Granted:
			h = &trial.Hold{
				Lock: l.Lock, Owner: l.Owner, Token: l.Token, Shared: l.Shared, Begin: l.To,
				Rule: l.Rule, Occasion: l.Occasion,
				Killed: true, // until it says that it has ended
			}
			of[key], good[key], holds = h, h, append(holds, h)
			if l.Rule != "" {
				v.Of[string(l.Rule)]++
			}
			passed(l.From, h)
		case replica.Held:
			if h == nil { // of all
				passed(l.From, slices.Collect(maps.Values(good))...)
			}
		case replica.Told:
			v.Log.Answers = append(v.Log.Answers, trial.Answer{
				Lock: l.Lock, Owner: l.Owner, Occasion: l.Occasion, Token: l.Token, At: l.At,
				Ended: l.Text == string(once.StateDone) || l.Text == string(once.StateFailed),
			})
		case replica.End:
			v.told[l.ID] = l.Told
		case replica.Begin:
			v.Operations++
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
			h.End, h.Killed = l.Text, false
			passed(l.From, h)
		case replica.Finished:
			h.Finished = true
		}
	}
	for _, h := range holds {
		v.Log.Holds = append(v.Log.Holds, *h)
	}
}

// sees waits until the process has said what its clocks show since a change.
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

// stopPatience is for how long it may take until every thread stands.
const stopPatience = 5 * time.Second

// stop sends SIGSTOP, and waits until every thread stands.
func (p *process) stop() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), stopPatience,
		fmt.Errorf("%s does not stop", p.name))
	defer cancel()
	return p.Stop(ctx)
}

// outcome returns what is wrong with how it ended, "" if nothing is.
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
