// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"context"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
)

// tape records one world: what leaves a process and the answers, above
// the faults, and what the records do, below them.
type tape struct {
	*trace.Recorder
	start time.Time

	mu       sync.Mutex
	requests map[string]int // by the version that a write brings
}

func newTape() *tape {
	return &tape{Recorder: trace.NewRecorder(), start: time.Now(), requests: map[string]int{}}
}

// add notes an event of a lock now. A caller whose action must be noted in its
// place acts while it holds mu.
func (t *tape) add(e trace.Event) {
	e.At, e.Lock = time.Since(t.start), lock
	t.Add(e)
}

func (t *tape) note(e trace.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(e)
}

// below is the store below the faults: it notes every write in the instant at which
// it is made.
type below struct {
	driver.Store
	tape *tape
}

func (s *below) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	s.tape.mu.Lock()
	defer s.tape.mu.Unlock()
	now, prev, err = s.Store.Claim(ctx, next)
	s.applied(protocol.Claim, next, now, err)
	return now, prev, err
}

func (s *below) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	s.tape.mu.Lock()
	defer s.tape.mu.Unlock()
	now, err := s.Store.Swap(ctx, prev, next)
	s.applied(protocol.Heartbeat, next, now, err)
	return now, err
}

func (s *below) applied(kind protocol.Kind, next, now driver.Record, err error) {
	if next.Key != lock {
		return
	}
	res := protocol.ResultOf(kind, now, driver.Record{}, err)
	e := trace.Event{Do: trace.Apply, Request: s.tape.requests[next.Version]}
	switch res.Outcome {
	case protocol.Applied:
		e.Outcome = trace.Applied
	case protocol.Conflicted:
		e.Outcome = trace.Conflicted
	default:
		return // nothing was carried out
	}
	if e.Found = res.Found; e.Found {
		e.Record = trace.Of(res.Record)
	}
	s.tape.add(e)
}

// above is the store above the faults, as a process sees it.
type above struct {
	driver.Store
	tape *tape
	p    *process
}

func (s *above) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	if key != lock {
		return s.Store.Get(ctx, key, c)
	}
	n := s.sent(s.p.now(), protocol.Read, driver.Record{}, driver.Record{})
	rec, err := s.Store.Get(ctx, key, c)
	s.answered(n, protocol.Read, rec, err)
	return rec, err
}

func (s *above) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if next.Key != lock {
		return s.Store.Claim(ctx, next)
	}
	n := s.sent(s.p.now(), protocol.Claim, driver.Record{}, next)
	now, prev, err = s.Store.Claim(ctx, next)
	s.answered(n, protocol.Claim, now, err)
	return now, prev, err
}

func (s *above) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	if next.Key != lock {
		return s.Store.Swap(ctx, prev, next)
	}
	who, kind := s.p.writer(prev, next)
	n := s.sent(who, kind, prev, next)
	now, err := s.Store.Swap(ctx, prev, next)
	s.answered(n, kind, now, err)
	return now, err
}

// sent is what was sent, by whom.
type sent struct {
	who    string
	number int
}

func (s *above) sent(who string, kind protocol.Kind, prev, next driver.Record) sent {
	s.tape.mu.Lock()
	defer s.tape.mu.Unlock()
	n := sent{s.p.asks(who), s.tape.Request()}
	e := trace.Event{Do: trace.Send, Proc: s.p.name, Who: n.who, Request: n.number, Call: kind.String()}
	if kind != protocol.Read {
		e.Next = trace.Of(next)
		s.tape.requests[next.Version] = n.number
		if next.Beat == next.Version && kind != protocol.Release && kind != protocol.ForceRelease {
			s.p.wrote(next.Version, n.who)
		}
	}
	if prev.Key != "" {
		e.Prev = trace.Of(prev)
	}
	s.tape.add(e)
	return n
}

var outcomes = map[protocol.Outcome]string{
	protocol.Applied: trace.Applied, protocol.Conflicted: trace.Conflicted,
	protocol.NotApplied: trace.NotApplied, protocol.Unknown: trace.Unknown,
}

func (s *above) answered(n sent, kind protocol.Kind, rec driver.Record, err error) {
	res := protocol.ResultOf(kind, rec, driver.Record{}, err)
	e := trace.Event{Do: trace.Reply, Proc: s.p.name, Who: n.who, Request: n.number, Outcome: outcomes[res.Outcome]}
	if e.Found = res.Found; e.Found {
		e.Record = trace.Of(res.Record)
	}
	s.tape.mu.Lock()
	defer s.tape.mu.Unlock()
	s.tape.add(e)
	s.p.answered(n.who)
}

// asks returns the name under which a request goes out: a process with a request
// under way makes the second one as another requester of the model.
func (p *process) asks(who string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.asking[who] {
		who += "+"
	}
	p.asking[who] = true
	return who
}

func (p *process) answered(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking[who] = false
}

// writer says which part of a process makes a write, and its kind.
func (p *process) writer(prev, next driver.Record) (string, protocol.Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	who, own := p.writers[prev.Beat]
	if next.Token != prev.Token {
		return p.who, protocol.Takeover
	}
	switch {
	case !own && driver.AddsRequest(prev, next):
		return p.who, protocol.Request
	case !own:
		return p.who, protocol.ForceRelease
	case next.State != driver.Held:
		return who, protocol.Release
	case next.Beat == prev.Beat:
		return who, protocol.Abdicate
	}
	return who, protocol.Heartbeat
}

func (p *process) wrote(version, who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writers[version] = who
}

func (p *process) now() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.who
}
