// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/clock"
)

const ms = time.Millisecond

// table reads a table of clients/testdata, which all clients share.
func table(t *testing.T, name string, to any) {
	t.Helper()
	b, err := os.ReadFile("../testdata/" + name)
	if err == nil {
		err = json.Unmarshal(b, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// beatOf returns the beat that the tables call B0, B1, and so on.
func beatOf(name string) string {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "B"))
	return fmt.Sprintf("aaaaaaaaaaaaa-%013d", n)
}

type ruleGrant struct {
	Token       uint64
	Beat        string
	LeaseMs     int64 `json:"lease_ms"`
	HeartbeatMs int64 `json:"heartbeat_ms"`
	UsableMs    int64 `json:"usable_ms"`
}

type ruleStep struct {
	At, Sent    int64
	Do, With    string
	Is, Kind    *string
	After, Next *string
	None        bool
	FirstSent   int64 `json:"first_sent"`
	Ms          *int64
	UsableMs    int64 `json:"usable_ms"`
	HeartbeatMs int64 `json:"heartbeat_ms"`
	Asked       *wireAsked
}

var states = map[state]string{unconfirmed: "unconfirmed", held: "held", expired: "expired", lost: "lost", released: "released"}

// TestRules plays the scenarios of what a client may believe.
func TestRules(t *testing.T) {
	var rules struct {
		Grant         json.RawMessage
		StopTimeoutMs int64 `json:"stop_timeout_ms"`
		Scenarios     []struct {
			Rule  string
			Grant json.RawMessage
			Steps []ruleStep
		}
	}
	table(t, "rules.json", &rules)
	if len(rules.Scenarios) < 30 {
		t.Fatalf("%d scenarios", len(rules.Scenarios))
	}
	for _, s := range rules.Scenarios {
		t.Run(s.Rule, func(t *testing.T) {
			var g ruleGrant
			for _, part := range []json.RawMessage{rules.Grant, s.Grant} {
				if err := json.Unmarshal(part, &g); len(part) > 0 && err != nil {
					t.Fatal(err)
				}
			}
			p := &player{T: t, sent: map[string]*heartbeat{}}
			p.term = newTerm(grant{
				name: "n", token: g.Token, beat: beatOf(g.Beat), lease: time.Duration(g.LeaseMs) * ms,
				usable: time.Duration(g.UsableMs) * ms, period: time.Duration(g.HeartbeatMs) * ms,
			}, time.Duration(rules.StopTimeoutMs)*ms)
			p.random = func() string { p.made++; return fmt.Sprintf("%013d", p.made) }
			for i, step := range s.Steps {
				if got, want := p.play(step); got != want {
					t.Errorf("step %d, %+v: got %v, want %v", i+1, step, got, want)
				}
			}
		})
	}
}

// player plays one scenario.
type player struct {
	*testing.T
	*term
	made  int
	sent  map[string]*heartbeat
	r     *release
	asked string
}

// play plays a step, and returns what came of it and what should.
func (p *player) play(s ruleStep) (got, want string) {
	at := time.Duration(s.At) * ms
	named := func(beat *string) string {
		if beat == nil {
			return ""
		}
		return beatOf(*beat)
	}
	orNone := func(text *string) string {
		if text == nil {
			return "none"
		}
		return *text
	}
	switch s.Do + s.With {
	case "granted":
		p.granted(time.Duration(s.Sent)*ms, at)
	case "send":
		h := p.send(at)
		if h == nil || s.None {
			return fmt.Sprint(h), "<nil>"
		}
		p.sent[h.next] = h
		return fmt.Sprint(*h), fmt.Sprint(heartbeat{named(s.After), named(s.Next), time.Duration(s.FirstSent) * ms})
	case "confirm":
		p.confirm(p.sent[named(s.Next)], renewal{time.Duration(s.UsableMs) * ms, time.Duration(s.HeartbeatMs) * ms}, at)
		if s.Asked != nil && p.ask(at) {
			p.asked = s.Asked.Kind
		}
	case "refuse":
		p.refuse(p.sent[named(s.Next)], "b", at)
	case "check":
		return states[p.state(at)], *s.Is
	case "remaining":
		return p.remaining(at).String(), (time.Duration(*s.Ms) * ms).String()
	case "due":
		due, goes := p.due(at)
		if s.Ms == nil {
			return strconv.FormatBool(goes), "false"
		}
		return fmt.Sprint(due, goes), fmt.Sprint(time.Duration(*s.Ms)*ms, true)
	case "asked":
		if s.Kind == nil {
			return p.asked, ""
		}
		return p.asked, *s.Kind
	case "release":
		p.r = p.release(at)
	case "call":
		return p.r.call(at), named(s.After)
	case "answeredok":
		p.r.applied()
	case "answeredlost":
		p.r.refused()
	case "answeredunknown":
		p.r.unknown()
	case "outcome":
		return map[outcome]string{pending: "none", wasReleased: "released", wasLost: "lost", maybeRelease: "unknown"}[p.r.is], orNone(s.Is)
	default:
		p.Fatalf("no step %+v", s)
	}
	return "", ""
}

// TestAnswers: what is not certainly the service's own answer is unknown.
func TestAnswers(t *testing.T) {
	var cases struct {
		Answers []struct {
			Call, Type, Body, Is, Kind string
			Status                     int
		}
	}
	table(t, "answers.json", &cases)
	for _, c := range cases.Answers {
		r := reply{status: c.Status, contentType: c.Type, body: []byte(c.Body)}
		var p *problem
		switch c.Call {
		case "acquire":
			_, p = readAcquire(r, want{name: "n"})
		case "heartbeat":
			_, p = readHeartbeat(r)
		case "release":
			_, p = readDone(r)
		}
		is, kind := "ok", ""
		switch {
		case p != nil && p.kind == "":
			is = "unknown"
		case p != nil:
			is, kind = "problem", p.kind
		}
		if is != c.Is || kind != c.Kind {
			t.Errorf("%+v is %s %s", c, is, kind)
		}
	}
}

// TestDerivedGrants: a grant of another kind, or of another name, is unknown.
func TestDerivedGrants(t *testing.T) {
	const rest = `"token": 7, "beat": "a-b", "lease_ms": 15000, "heartbeat_ms": 3000, "free_after_ms": 5000`
	for _, c := range []struct {
		kind kind
		body string
		good bool
	}{
		{slotKind, `"name": "n:slot/2", "slot": 2, "slots": 3`, true},
		{slotKind, `"name": "n:slot/2", "slot": 1, "slots": 3`, false},
		{slotKind, `"name": "n:slot/2"`, false},
		{slotKind, `"name": "n"`, false},
		{readKind, `"name": "n:read/2", "fence_token": 5`, true},
		{readKind, `"name": "n:read/2"`, false},
		{readKind, `"name": "n:gate", "fence_token": 5`, false},
		{writeKind, `"name": "n:gate", "fence_token": 4, "drain": true, "unwritten": "aGk=", "last_writer": {"owner": "o", "token": 1, "end": "failed"}`, true},
		{writeKind, `"name": "n:gate"`, false},
		{writeKind, `"name": "n:read/2", "fence_token": 5`, false},
		{plainKind, `"name": "n:gate", "fence_token": 4`, false},
	} {
		_, p := readAcquire(reply{status: 200, contentType: jsonType, body: []byte("{" + c.body + ", " + rest + "}")}, want{kind: c.kind, name: "n"})
		if (p == nil) != c.good {
			t.Errorf("kind %d, %s: %v", c.kind, c.body, p)
		}
	}
}

// TestEvents: a stream says the same however it comes in pieces.
func TestEvents(t *testing.T) {
	var cases struct {
		Streams []struct {
			About, Stream string
			Said          []string
		}
	}
	table(t, "events.json", &cases)
	for _, c := range cases.Streams {
		for name, pieces := range map[string]func(io.Reader) io.Reader{"one": iotest.OneByteReader, "half": iotest.HalfReader, "err": iotest.DataErrReader} {
			var said []string
			r, err := readEvents(pieces(strings.NewReader(c.Stream)), func(h HeldError) {
				said = append(said, fmt.Sprintf("waiting %s %d", h.Owner, h.Token))
			})
			if err != nil {
				if !errors.Is(err, errCut) {
					said = append(said, "unknown")
				}
			} else if g, p := readAcquire(r, want{name: "n"}); p == nil {
				said = append(said, fmt.Sprintf("granted %d", g.token))
			} else if p.kind != "" {
				said = append(said, fmt.Sprintf("problem %s %d", p.kind, p.retryAfter/time.Second))
			} else {
				said = append(said, "unknown")
			}
			if !slices.Equal(said, c.Said) {
				t.Errorf("%s, %s: said %q, want %q", c.About, name, said, c.Said)
			}
		}
	}
}

// readings are of a machine whose clocks a table gives.
type readings struct {
	raw, mono, boot, wall time.Duration
	hasBoot               bool
}

func (r *readings) Now() clock.Instant { return clock.Instant{Wall: r.wall, Mono: r.mono} }
func (r *readings) Raw() (time.Duration, bool) {
	return r.raw, r.hasBoot
}

func (r *readings) Read() clock.Reading {
	return clock.Reading{Instant: r.Now(), Boot: r.boot, HasBoot: r.hasBoot}
}

// TestClock: the clock that the client counts by counts suspends, and is slewed by nothing where the machine has such
// a clock. Package clock misses 1 ms at most.
func TestClock(t *testing.T) {
	type scenario struct {
		About    string
		Readings [][]int64
	}
	var cases struct{ Scenarios, Raw []scenario }
	table(t, "clock.json", &cases)
	// It may count 2 ms more, as what small steps add up to.
	near := func(got time.Duration, want int64) bool {
		more := got - time.Duration(want)*ms
		return more >= -ms && more <= 2*ms
	}
	for _, c := range cases.Scenarios {
		r := &readings{mono: time.Duration(c.Readings[0][0]) * ms, wall: time.Duration(c.Readings[0][1]) * ms}
		counts := clock.From(r, clock.Options{})
		for _, at := range c.Readings[1:] {
			r.mono, r.wall = time.Duration(at[0])*ms, time.Duration(at[1])*ms
			if got := counts.Holder(); !near(got, at[2]) {
				t.Errorf("%s, at %v: %v", c.About, at, got)
			}
		}
	}
	for _, c := range cases.Raw {
		r := &readings{hasBoot: true}
		set := func(at []int64) {
			r.raw, r.mono, r.boot = time.Duration(at[0])*ms, time.Duration(at[1])*ms, time.Duration(at[2])*ms
			r.wall = r.boot // it follows the slewing, and counts suspends
		}
		set(c.Readings[0])
		counts, ok := clock.From(r, clock.Options{}).Raw()
		if !ok {
			t.Fatal("no raw clock")
		}
		begun := counts.Holder()
		for _, at := range c.Readings[1:] {
			set(at)
			if got := counts.Holder() - begun; !near(got, at[3]) {
				t.Errorf("%s, at %v: %v", c.About, at, got)
			}
		}
	}
}

// halves finds the escapes of a JSON text.
var halves = regexp.MustCompile(`\\\\|\\u[0-9a-f]{4}`)

// TestNames: text with half of a surrogate pair is refused before any call. In Go that is text that is not UTF-8.
func TestNames(t *testing.T) {
	var names struct{ Whole, Halves []json.RawMessage }
	table(t, "names.json", &names)
	// text reads a JSON string, and leaves each half as three bytes, as other languages would write it.
	text := func(raw json.RawMessage) string {
		quoted := string(raw)
		pairs := map[string]string{}
		for _, e := range halves.FindAllString(quoted, -1) {
			if n, err := strconv.ParseUint(strings.TrimPrefix(e, `\u`), 16, 16); err == nil && n>>11 == 0x1b {
				pairs[e] = string([]byte{0xed, 0x80 | byte(n>>6)&0x3f, 0x80 | byte(n)&0x3f})
			}
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		if !strings.ContainsRune(s, '\ufffd') {
			return s
		}
		for _, e := range slices.Sorted(maps.Keys(pairs)) {
			quoted = strings.ReplaceAll(quoted, e, pairs[e])
		}
		return strings.Trim(quoted, `"`)
	}
	try := func(o Options, name string) error {
		o.Servers = []string{"http://127.0.0.1:1"}
		c, err := New(o)
		if err != nil {
			return err
		}
		_, err = c.TryAcquire(t.Context(), name, nil)
		return err
	}
	for _, raw := range names.Whole {
		if err := try(Options{Owner: text(raw), Label: text(raw)}, text(raw)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	for _, raw := range names.Halves {
		for _, err := range []error{try(Options{}, text(raw)), try(Options{Owner: text(raw)}, "n"), try(Options{Label: text(raw)}, "n")} {
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "UTF-8") {
				t.Errorf("%s: %v", raw, err)
			}
		}
	}
}

// TestDependencies: a program that may not reach the store does not carry the engine for one.
func TestDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skipf("go list does not run here: %v", err)
	}
	const own = "github.com/tenurelock/tenure"
	for dep := range strings.Lines(string(out)) {
		dep = strings.TrimSpace(dep)
		host, _, _ := strings.Cut(dep, "/")
		ours := dep == own || strings.HasPrefix(dep, own+"/")
		allowed := []string{own + "/clients/go", own + "/driver", own + "/internal/clock", own + "/internal/text"}
		if strings.Contains(host, ".") && !ours || ours && !slices.Contains(allowed, dep) {
			t.Errorf("it depends on %s", dep)
		}
	}
}

// TestSentinels: an error of a bad argument is the one of package tenure.
func TestSentinels(t *testing.T) {
	_, err := New(Options{})
	if !errors.Is(err, tenure.ErrInvalid) {
		t.Error(err)
	}
}

func TestRandomPart(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		part := randomPart()
		if !regexp.MustCompile(`^[0-9A-Za-z]{13}$`).MatchString(part) || seen[part] {
			t.Fatal(part)
		}
		seen[part] = true
	}
}
