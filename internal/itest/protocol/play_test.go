// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// play runs a script of several actors around one record: acquirers that become
// holders, and requesters. A request takes effect 5 ms after it is sent, its
// answer comes 5 ms later. The output shows every write when it takes effect, and
// only counts polls.
func play(t *testing.T, path string) {
	p := &world{actors: map[string]*actor{}}
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		p.out.Reset()
		p.command(t, d)
		return p.out.String()
	})
}

type world struct {
	t      protocol.Timing
	now    time.Duration
	fresh  int
	rec    driver.Record
	found  bool
	actors map[string]*actor
	order  []*actor
	out    strings.Builder
}

// actor is a process with one machine.
type actor struct {
	p     *world
	name  string
	view  *protocol.View
	c     *protocol.Acquirer
	h     *protocol.Holder
	k     *protocol.Requester
	lose  string // of the next write: the reply, or the request
	cut   bool   // nothing reaches the store
	looks int
	told  bool

	req     *protocol.Call
	applied bool
	at      time.Duration // when the next thing happens to req
	res     protocol.Result
}

func (p *world) env() protocol.Env {
	return protocol.Env{
		Fresh:  func() string { p.fresh++; return fmt.Sprintf("v%d", p.fresh) },
		Random: func() float64 { return 0.5 },
	}
}

func (p *world) command(t *testing.T, d *datadriven.TestData) {
	var a *actor
	if len(d.CmdArgs) > 0 {
		a = p.actors[d.CmdArgs[0].Key]
	}
	switch d.Cmd {
	case "timing":
		s := script{}
		s.timing(t, d)
		p.t = s.t
	case "contend", "ask":
		if p.t.Lease == 0 {
			p.t = protocol.Timing{}.WithDefaults()
		}
		a = &actor{p: p, name: d.CmdArgs[0].Key, view: protocol.NewView(p.t, p.env())}
		p.actors[a.name] = a
		p.order = append(p.order, a)
		if d.Cmd == "ask" {
			q := driver.Request{Kind: driver.RequestKind(d.CmdArgs[1].Key), By: a.name}
			if d.HasArg("to") {
				d.ScanArgs(t, "to", &q.To)
			}
			a.k = protocol.NewRequester(p.t, p.env(), "k", q, 0, a.view)
			break
		}
		want := protocol.Want{Key: "k", Owner: a.name}
		if d.HasArg("priority") {
			d.ScanArgs(t, "priority", &want.Priority)
		}
		a.c = protocol.NewAcquirer(p.t, p.env(), want, a.view)
	case "cut":
		a.cut = true
	case "lose":
		a.lose = d.CmdArgs[1].Key
	case "done":
		a.took(a.h.Done(p.now))
	case "stop":
		a.took(a.h.Stop(p.now))
	case "crash":
		p.drop(a)
	case "run":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		p.run(t, p.now+by)
	default:
		d.Fatalf(t, "unknown command")
	}
}

func (p *world) drop(a *actor) {
	delete(p.actors, a.name)
	for i, b := range p.order {
		if a == b {
			p.order = append(p.order[:i:i], p.order[i+1:]...)
		}
	}
}

func (p *world) say(format string, args ...any) {
	fmt.Fprintf(&p.out, "%8.3fs  %s\n", p.now.Seconds(), fmt.Sprintf(format, args...))
}

// run executes the events due until end, in their order.
func (p *world) run(t *testing.T, end time.Duration) {
	for range 10000 {
		var first *actor
		var when time.Duration
		for _, a := range p.order {
			if at, ok := a.next(); ok && at <= end && (first == nil || at < when) {
				first, when = a, at
			}
		}
		if first == nil {
			p.now = end
			p.status()
			return
		}
		p.now = max(p.now, when)
		first.happen()
	}
	t.Fatalf("the play does not come to an end:\n%s", p.out.String())
}

// next returns when the actor's request has an event, or its machine wants to be
// stepped.
func (a *actor) next() (at time.Duration, ok bool) {
	switch {
	case a.h != nil:
		at, ok = a.h.Next()
	case a.k != nil:
		at, ok = a.k.Next()
	default:
		at, ok = a.c.Next()
	}
	if a.req != nil && (!ok || a.at <= at) {
		at, ok = a.at, true
	}
	return at, ok
}

func (a *actor) happen() {
	p := a.p
	due := a.req != nil && p.now >= a.at
	switch {
	case due && !a.applied:
		a.apply()
	case due:
		a.reply()
	case a.h != nil:
		a.took(a.h.Step(p.now))
	case a.k != nil:
		a.took(a.k.Step(p.now))
	default:
		a.took(a.c.Step(p.now))
	}
}

func (a *actor) reply() {
	p, res := a.p, a.res
	kind := a.req.Kind
	a.req = nil
	if res.Outcome == protocol.Unknown && !a.cut {
		p.say("%s does not know what became of its %v", a.name, kind)
	}
	switch {
	case a.h != nil:
		a.took(a.h.Reply(p.now, res))
	case a.k != nil:
		a.took(a.k.Reply(p.now, res))
	default:
		a.took(a.c.Reply(p.now, res))
	}
}

// apply applies the request.
func (a *actor) apply() {
	p, r := a.p, a.req
	a.applied, a.at = true, p.now+5*time.Millisecond
	lose := ""
	if r.Kind != protocol.Read {
		lose, a.lose = a.lose, ""
	}
	was, found := p.rec, p.found
	switch {
	case a.cut:
		a.at = p.now - 5*time.Millisecond + p.t.RequestTimeout
		a.res = protocol.Result{Outcome: protocol.Unknown, Err: errors.New("timeout")}
		return
	case lose == "request":
	case r.Kind == protocol.Read:
		a.looks++
		a.res = protocol.Result{Outcome: protocol.Applied, Record: p.rec.Clone(), Found: p.found}
		return
	case r.Kind == protocol.Claim && (!found || was.State == driver.Released):
		p.rec, p.found = driver.Claimed(r.Next, was, found), true
	case r.Kind != protocol.Claim && found && was.Version == r.Prev.Version && was.Token == r.Prev.Token:
		p.rec = r.Next.Clone()
	default:
		p.say("%s: %v %s conflicts with %s", a.name, r.Kind, r.Next.Version, told(was))
		a.res = protocol.Result{Outcome: protocol.Conflicted, Record: p.rec.Clone(), Found: p.found}
		return
	}
	a.res = protocol.Result{Outcome: protocol.Applied, Record: p.rec.Clone(), Found: true, Former: was}
	if lose != "" {
		p.say("%s: the %s of %v %s is lost", a.name, lose, r.Kind, r.Next.Version)
		a.at = p.now - 5*time.Millisecond + p.t.RequestTimeout
		a.res = protocol.Result{Outcome: protocol.Unknown, Err: errors.New("timeout")}
	}
	switch {
	case lose == "request":
	case r.Kind == protocol.Heartbeat:
		p.say("%s: heartbeat %s", a.name, r.Next.Version)
	default:
		p.say("%s: %v makes it %s", a.name, r.Kind, told(p.rec))
	}
}

func (a *actor) took(act protocol.Action) {
	p := a.p
	for _, n := range act.Notes {
		switch n {
		case protocol.NoteRenewed:
		case protocol.NoteEnded:
			p.say("%s ends: %v", a.name, a.h.Cause())
		case protocol.NoteOver:
			freed := a.h.Freed()
			p.say("%s is over: %v", a.name, freed)
		default:
			p.say("%s: %v", a.name, n)
		}
	}
	switch {
	case a.h != nil:
	case a.k != nil:
		if answer, _, _ := a.k.Answer(); answer != protocol.NoAnswer && !a.told {
			a.told = true
			p.say("%s is answered: %s", a.name, answers[answer])
		}
	default:
		if g, ok := a.c.Granted(); ok {
			a.h = protocol.NewHolder(&p.t, new(p.env()), g)
			p.say("%s is granted token %d, with a deadline of %.3fs", a.name, g.Record.Token, a.h.Deadline().Seconds())
			a.took(a.h.Step(p.now))
			return
		}
	}
	if act.Call != nil {
		a.req, a.applied, a.at = act.Call, false, p.now+5*time.Millisecond
	}
}
