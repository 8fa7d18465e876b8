// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

type sessionStep struct {
	ruleStep
	Is       any
	Lock     string
	Token    uint64
	Answered []string
	Requests []wireAsked
}

// packPlayer plays one scenario.
type packPlayer struct {
	*testing.T
	*pack
	of     grant
	made   int
	sent   map[string]*heartbeat
	locks  map[string]*member
	closes *release
	detach map[string]*detach
	asked  map[string]string // by lock
}

// sessionBeat returns the beat that the table calls S0, A1 and so on.
func sessionBeat(name string) string {
	n, _ := strconv.Atoi(name[1:])
	return fmt.Sprintf("%s-%013d", strings.Repeat(strings.ToLower(name[:1]), 13), n)
}

// TestSessionRules plays the scenarios of what a client may believe of a session and its locks.
func TestSessionRules(t *testing.T) {
	var rules struct {
		Opening, Grant ruleGrant
		StopTimeoutMs  int64 `json:"stop_timeout_ms"`
		Scenarios      []struct {
			Rule  string
			Steps []sessionStep
		}
	}
	table(t, "session_rules.json", &rules)
	if len(rules.Scenarios) < 30 {
		t.Fatalf("%d scenarios", len(rules.Scenarios))
	}
	of := func(g ruleGrant) grant {
		return grant{lease: time.Duration(g.LeaseMs) * ms, period: time.Duration(g.HeartbeatMs) * ms}
	}
	for _, s := range rules.Scenarios {
		t.Run(s.Rule, func(t *testing.T) {
			opening := of(rules.Opening)
			opening.name, opening.beat = "s", sessionBeat(rules.Opening.Beat)
			p := &packPlayer{
				T: t, of: of(rules.Grant), sent: map[string]*heartbeat{}, locks: map[string]*member{}, detach: map[string]*detach{}, asked: map[string]string{},
				pack: newPack(newSessionTerm(opening, 0), time.Duration(rules.StopTimeoutMs)*ms),
			}
			p.random = func() string { p.made++; return fmt.Sprintf("%013d", p.made) }
			for i, step := range s.Steps {
				if got, want := p.play(step); got != want {
					t.Errorf("step %d, %+v: got %v, want %v", i+1, step, got, want)
				}
			}
		})
	}
}

// play plays a step, and returns what came of it and what should.
func (p *packPlayer) play(s sessionStep) (got, want string) {
	at, m := time.Duration(s.At)*ms, p.locks[s.Lock]
	named := func(beat *string) string {
		if beat == nil {
			return ""
		}
		return sessionBeat(*beat)
	}
	outcomes := map[outcome]string{pending: "<nil>", wasReleased: "released", wasLost: "lost", maybeRelease: "unknown"}
	what := s.Do + s.With
	if s.Lock != "" {
		what += " of a lock"
	}
	switch what {
	case "send":
		h := p.send(at)
		if h == nil || s.None {
			return fmt.Sprint(h), "<nil>"
		}
		p.sent[h.next] = h
		return fmt.Sprint(*h, p.saying(h)), fmt.Sprint(heartbeat{named(s.After), named(s.Next), time.Duration(s.FirstSent) * ms}, s.Answered)
	case "confirm":
		r := renewal{time.Duration(s.UsableMs) * ms, time.Duration(s.HeartbeatMs) * ms}
		if p.confirm(p.sent[named(s.Next)], r, at) {
			p.hear(s.Requests, at)
		}
	case "refuse":
		p.refuse(p.sent[named(s.Next)], "b", at)
	case "check":
		return states[p.sessionState(at)], fmt.Sprint(s.Is)
	case "remaining":
		return p.remaining(at).String(), (time.Duration(*s.Ms) * ms).String()
	case "due":
		due, goes := p.due(at)
		if s.Ms == nil {
			return strconv.FormatBool(goes), "false"
		}
		return fmt.Sprint(due, goes), fmt.Sprint(time.Duration(*s.Ms)*ms, true)
	case "close":
		p.closes = p.release(at)
	case "call":
		return p.closes.call(at), named(s.After)
	case "answeredok":
		p.closes.applied()
	case "answeredlost":
		p.closes.refused()
	case "answeredunknown":
		p.closes.unknown()
	case "outcome":
		return outcomes[p.closes.is], fmt.Sprint(s.Is)

	case "grant of a lock":
		g := p.of
		g.name, g.token, g.beat, g.usable = s.Lock, s.Token, sessionBeat(strings.ToUpper(s.Lock)+"0"), time.Duration(s.UsableMs)*ms
		session := p.random
		p.random = func() string { return fmt.Sprintf("%013d", 1) }
		m = p.join(g, time.Duration(s.Sent)*ms, at)
		p.random = session
		m.cancel = func(err error) {
			var asked *StepDownError
			p.asked[s.Lock] = "step-down"
			if errors.As(err, &asked) && asked.To != "" {
				p.asked[s.Lock] = "hand-over"
			}
		}
		p.locks[s.Lock] = m
	case "attach of a lock":
		sent := p.attach(m, at)
		if !sent || s.None {
			return strconv.FormatBool(sent), strconv.FormatBool(!s.None)
		}
		return fmt.Sprint(m.after, m.next, m.first), fmt.Sprint(named(s.After), named(s.Next), time.Duration(s.FirstSent)*ms)
	case "attached of a lock":
		asked, _ := s.Asked.err()
		p.attaches(m, asked, at)
	case "lost of a lock":
		p.loses(m)
	case "check of a lock":
		return states[p.stateOf(m, at)], fmt.Sprint(s.Is)
	case "remaining of a lock":
		return p.remainingOf(m, at).String(), (time.Duration(*s.Ms) * ms).String()
	case "asked of a lock":
		if s.Kind == nil {
			return p.asked[s.Lock], ""
		}
		return p.asked[s.Lock], *s.Kind
	case "overdue of a lock":
		return fmt.Sprint(p.overdue(m, at)), fmt.Sprint(s.Is)
	case "release of a lock":
		p.detach[s.Lock] = p.releaseOf(m, at)
	case "call of a lock":
		if !p.detach[s.Lock].call(at) {
			return "", named(s.After)
		}
		return fmt.Sprint(m.after, m.next), fmt.Sprint(named(s.After), named(s.Next))
	case "answeredok of a lock":
		p.detach[s.Lock].applied()
	case "answeredlost of a lock":
		p.detach[s.Lock].refused()
	case "answeredunknown of a lock":
		p.detach[s.Lock].unknown()
	case "outcome of a lock":
		return outcomes[p.detach[s.Lock].is], fmt.Sprint(s.Is)
	default:
		text, _ := json.Marshal(s)
		p.Fatalf("no step %s", text)
	}
	return "", ""
}
