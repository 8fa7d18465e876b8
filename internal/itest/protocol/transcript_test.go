// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// TestTranscripts runs the scripts of testdata. Each drives one acquirer, and
// the holder that it becomes, and shows what they ask for and when. Run with
// -rewrite to write down what they do now, and read the difference.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.HasPrefix(path, filepath.Join("testdata", "plays")) {
			play(t, path)
			return
		}
		s := &script{written: map[string]driver.Record{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			s.command(t, d)
			return s.out.String()
		})
	})
}

// script runs the commands of a file. Random choices all fall in the middle.
type script struct {
	t       protocol.Timing
	now     time.Duration
	fresh   int
	c       *protocol.Acquirer
	h       *protocol.Holder
	view    *protocol.View
	req     *protocol.Call // under way
	written map[string]driver.Record
	told    bool // that the acquire ended
	out     strings.Builder
}

func (s *script) env() protocol.Env {
	return protocol.Env{
		Fresh:  func() string { s.fresh++; return fmt.Sprintf("v%d", s.fresh) },
		Random: func() float64 { return 0.5 },
	}
}

func (s *script) command(t *testing.T, d *datadriven.TestData) {
	switch d.Cmd {
	case "contender":
		s.timing(t, d)
		if s.view == nil {
			s.view = protocol.NewView(s.t, s.env())
		}
		want := protocol.Want{Key: "k", Owner: "us", Try: d.HasArg("try"), ViewFresh: d.HasArg("behind")}
		s.c, s.h, s.req, s.told = protocol.NewAcquirer(s.t, s.env(), want, s.view), nil, nil, false
		s.contend(s.c.Step(s.now))
	case "holder":
		s.timing(t, d)
		version, term := s.env().Fresh(), s.env().Fresh()
		rec := driver.Record{Key: "k", Version: version, Beat: term + "-" + version, Owner: "us", Token: 1, Lease: s.t.Lease, State: driver.Held}
		s.hold(protocol.Grant{Record: rec, Sent: s.now})
	case "hold":
		g, _ := s.c.Granted()
		s.hold(g)
	case "step":
		s.step(t, d)
		s.status()
	case "reply":
		s.reply(t, d)
		s.status()
	case "stop":
		s.act(s.h.Stop(s.now))
		s.status()
	case "done":
		s.act(s.h.Done(s.now))
		s.status()
	case "data":
		_, a := s.h.SetData(s.now, []byte(d.CmdArgs[0].Key))
		s.act(a)
	case "renew":
		s.act(s.h.Renew(s.now))
	case "progress":
		s.h.Progress(s.now)
	case "hint":
		s.contend(s.c.Hint(s.now))
	case "give-up":
		s.contend(s.c.GiveUp(s.now))
		s.status()
	default:
		d.Fatalf(t, "unknown command")
	}
}

func (s *script) timing(t *testing.T, d *datadriven.TestData) {
	var given protocol.Timing
	given.Manual = d.HasArg("manual")
	for name, to := range map[string]*time.Duration{
		"lease": &given.Lease, "heartbeat": &given.Heartbeat, "refresh": &given.Refresh,
		"stop-timeout": &given.StopTimeout, "progress": &given.Progress,
	} {
		duration(t, d, name, to)
	}
	s.t = given.WithDefaults()
}

func duration(t *testing.T, d *datadriven.TestData, name string, to *time.Duration) {
	if d.HasArg(name) {
		var text string
		d.ScanArgs(t, name, &text)
		v, err := time.ParseDuration(text)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		*to = v
	}
}

func (s *script) hold(g protocol.Grant) {
	s.h = protocol.NewHolder(&s.t, new(s.env()), g)
	s.act(s.h.Step(s.now))
	s.status()
}

// step lets time pass, and steps the machine whenever it wants to be.
func (s *script) step(t *testing.T, d *datadriven.TestData) {
	by, err := time.ParseDuration(d.CmdArgs[0].Key)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	end := s.now + by
	for range 1000 {
		at, due := time.Duration(0), false
		if s.h != nil {
			at, due = s.h.Next()
		} else {
			at, due = s.c.Next()
		}
		if !due || at > end {
			break
		}
		s.now = max(s.now, at)
		if s.h != nil {
			s.act(s.h.Step(s.now))
		} else {
			s.contend(s.c.Step(s.now))
		}
		if d.HasArg("seeing") && s.req != nil && s.req.Kind == protocol.Read {
			s.req = nil
			s.contend(s.c.Reply(s.now, protocol.Result{Outcome: protocol.Applied, Record: s.record(t, d), Found: true}))
		}
	}
	s.now = end
}

func (s *script) reply(t *testing.T, d *datadriven.TestData) {
	if s.req == nil {
		d.Fatalf(t, "no request is under way")
	}
	var r protocol.Result
	switch how := d.CmdArgs[0].Key; how {
	case "applied":
		rec := s.req.Next
		if s.req.Kind == protocol.Claim {
			former := s.record(t, d)
			former.State, former.Token = driver.Released, former.Token-1
			rec = driver.Claimed(rec, former, former.Token > 0)
		}
		s.written[rec.Version] = rec
		r = protocol.Result{Outcome: protocol.Applied, Record: rec, Found: true}
	case "seen", "conflict":
		r = protocol.Result{Outcome: protocol.Applied, Record: s.record(t, d), Found: true}
		if how == "conflict" {
			r.Outcome = protocol.Conflicted
		}
	case "absent":
		r = protocol.Result{Outcome: protocol.Applied}
		if s.req.Kind != protocol.Read {
			r.Outcome = protocol.Conflicted
		}
	case "unknown":
		r = protocol.Result{Outcome: protocol.Unknown, Err: errors.New("timeout")}
	case "refused":
		r = protocol.Result{Outcome: protocol.NotApplied, Err: driver.NotApplied(errors.New("busy"))}
	default:
		d.Fatalf(t, "unknown reply")
	}
	s.req = nil
	if s.h != nil {
		s.act(s.h.Reply(s.now, r))
	} else {
		s.contend(s.c.Reply(s.now, r))
	}
}

// record returns the record of a reply: our own, by its version, or another
// holder's.
func (s *script) record(t *testing.T, d *datadriven.TestData) driver.Record {
	rec := driver.Record{Key: "k", Version: "w1", Owner: "them", Token: 1, Lease: 15 * time.Second, Heartbeat: 3 * time.Second, State: driver.Held}
	var state string
	for name, to := range map[string]any{"version": &rec.Version, "token": &rec.Token, "state": &state} {
		if d.HasArg(name) {
			d.ScanArgs(t, name, to)
		}
	}
	if own, ok := s.written[rec.Version]; ok {
		if own.Token == 0 || d.HasArg("token") {
			own.Token = rec.Token
		}
		return own
	}
	duration(t, d, "lease", &rec.Lease)
	if state != "" {
		rec.State = driver.State(state)
	}
	if !d.HasArg("foreign") {
		rec.Beat = rec.Version
	}
	return rec
}

func (s *script) say(format string, args ...any) {
	fmt.Fprintf(&s.out, "%8.3fs  %s\n", s.now.Seconds(), fmt.Sprintf(format, args...))
}

func (s *script) send(r *protocol.Call) {
	if r == nil {
		return
	}
	s.req = r
	switch r.Kind {
	case protocol.Read:
		s.say("look, %s", [...]string{"strong", "eventual"}[r.Consistency])
	case protocol.Claim:
		s.written[r.Next.Version] = r.Next
		s.say("claim %s", r.Next.Version)
	default:
		s.written[r.Next.Version] = r.Next
		text := fmt.Sprintf("%v %s/%d -> %s/%d", r.Kind, r.Prev.Version, r.Prev.Token, r.Next.Version, r.Next.Token)
		if len(r.Next.Data) > 0 {
			text += fmt.Sprintf(" with data %q", r.Next.Data)
		}
		s.say("%s", text)
	}
}

func (s *script) act(a protocol.Action) {
	for _, n := range a.Notes {
		switch n {
		case protocol.NoteEnded:
			s.say("ended: %v", s.h.Cause())
		case protocol.NoteOver:
			freed := s.h.Freed()
			s.say("over: %v", freed)
		default:
			s.say("%v", n)
		}
	}
	s.send(a.Call)
}

func (s *script) contend(a protocol.Action) {
	if g, ok := s.c.Granted(); ok && !s.told {
		s.told = true
		s.say("granted %s, token %d, counted from %.3fs", g.Record.Version, g.Record.Token, g.Sent.Seconds())
	}
	if r := s.c.Refused(); r != nil && !s.told {
		s.told = true
		if r.Held {
			s.say("refused: held by %s, free in %v at most", r.Record.Owner, r.FreeIn)
		} else {
			s.say("refused: %v", r.Err)
		}
	}
	s.send(a.Call)
}

// status prints until when the holder may act, or what the acquirer waits for.
func (s *script) status() {
	switch {
	case s.h != nil:
		over := s.h.Over()
		if over {
			return
		}
		text := fmt.Sprintf("deadline %.3fs", s.h.Deadline().Seconds())
		if s.h.Expired() {
			text += ", expired"
		}
		s.say("= %s", text)
	case s.c.Over():
		if _, ok := s.c.Granted(); !ok {
			s.say("= over")
		}
	case s.req == nil:
		at, _ := s.c.Next()
		text := fmt.Sprintf("next move %.3fs", at.Seconds())
		if dead, ok := s.view.DeadAt(); ok {
			text += fmt.Sprintf(", dead at %.3fs", dead.Seconds())
		}
		s.say("= %s", text)
	}
}
