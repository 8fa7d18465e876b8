// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/test/harness/dynamo"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/serve"
)

const (
	// leaseTime is the lease of all actors that are not opened with another. Java's must be a second
	// at least: shorter ones could be the seconds of another client, and are refused.
	leaseTime = 2 * time.Second
	refresh   = 100 * time.Millisecond
	// promptly is far less than the long lease of scripts, 20 seconds, and far more than a poll.
	promptly = 20 * time.Second / 3
	// patience bounds the wait for what must come, on a busy machine.
	patience = 30 * time.Second
)

// TestMain: the processes of clients in Go are this test binary, started again.
func TestMain(m *testing.M) {
	proc.Play(serve.Roles)
	os.Exit(m.Run())
}

// TestScripts plays each script of testdata with each client, on its own table.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts: ", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			eachPeer(t, func(s *fixture) { s.play(string(text)) })
		})
	}
}

// TestScriptsFail: what is not as a script says is seen.
func TestScriptsFail(t *testing.T) {
	s := newFixture(t, peers.Dynamolock)
	s.play("us acquire x\n table keep x\n us heartbeat x")
	for line, want := range map[string]string{
		"them try x":                          "held",
		"us status x -> other":                "ok",
		"us status x -> owner=them":           "owner",
		"us status x -> token=rises":          "token",
		"us status x -> same":                 "changed",
		"us status x -> after=1m":             "after",
		"them try x -> held unread":           "unread",
		"table row x -> isReleased=1":         "isReleased",
		"table row y -> none isReleased=*":    "isReleased",
		"them nonsense x":                     "unsupported",
		"us nonsense x":                       "no verb",
		"us check x -> ok promptly":           "no release",
		"us check x for=100ms -> ok promptly": "no release",
	} {
		if err := s.step(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want that it names %q", line, err, want)
		}
	}
}

// fixture is one table that Tenure shares with another client, and its actors.
type fixture struct {
	*testing.T
	kind     peers.Kind // of the other client
	options  dynamostore.Options
	table    *dynamo.Table
	url      string // of the engine
	kept     map[string]item
	watches  map[string]*watch
	released map[string]int64 // when the latest release was sent, by the lock

	mu     sync.Mutex
	actors map[string]*actor
	tokens map[string]uint64 // the latest of Tenure
}

// eachPeer runs a test with each client, on a table of its own.
func eachPeer(t *testing.T, test func(*fixture)) {
	t.Helper()
	t.Parallel()
	for _, kind := range []peers.Kind{peers.Dynamolock, peers.Java} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(newFixture(t, kind))
		})
	}
}

var dialects = map[peers.Kind]dynamostore.Dialect{
	peers.Java: dynamostore.Java, peers.Dynamolock: dynamostore.Dynamolock,
}

func newFixture(t *testing.T, kind peers.Kind) *fixture {
	t.Helper()
	s := &fixture{
		T: t, kind: kind, options: dynamostore.Options{SharedTable: true, Dialect: dialects[kind]},
		url: enginetest.FullDynamoDB(t).URL, actors: map[string]*actor{}, kept: map[string]item{},
		watches: map[string]*watch{}, tokens: map[string]uint64{}, released: map[string]int64{},
	}
	var err error
	if s.table, err = dynamo.NewTable(t.Context(), dynamo.Connect(s.url), "interop"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.table.Drop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// play takes the steps of a script, one a line, as doc.go describes them.
func (s *fixture) play(script string) {
	s.Helper()
	for line := range strings.Lines(script) {
		if err := s.step(strings.TrimSpace(line)); err != nil {
			s.Fatalf("%s: %v", strings.TrimSpace(line), err)
		}
	}
}

// command is a step.
type command struct {
	actor, verb, lock string
	options           map[string]string // those without a value have their name
}

// duration returns the duration of an option, or a default.
func (c command) duration(option string, otherwise time.Duration) time.Duration {
	if text := c.options[option]; text != "" {
		return duration(text)
	}
	return otherwise
}

// duration reads what a script names.
func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err) // the script is wrong
	}
	return d
}

// outcome is what came of a step.
type outcome struct {
	how       string // ok, or the kind of a refusal
	text      string // of an error
	fields    map[string]string
	sent, got int64 // instants of the machine's clock
}

// word finds words, in which what is quoted may have spaces.
var word = regexp.MustCompile(`(?:[^\s"]|"[^"]*")+`)

func words(text string) []string { return word.FindAllString(text, -1) }

// step takes one step, and returns an error if it is not as the line wants.
func (s *fixture) step(line string) error {
	line, _, _ = strings.Cut(line, "#")
	text, want, _ := strings.Cut(line, "->")
	all, wants := words(text), words(want)
	if len(all) > 0 && strings.HasPrefix(all[0], "[") {
		if all[0] != "["+string(s.kind)+"]" {
			return nil
		}
		all = all[1:]
	}
	if len(all) == 0 {
		return nil
	}
	if len(all) < 2 {
		return errors.New("want an actor and a verb")
	}
	c := command{actor: all[0], verb: all[1], options: map[string]string{}}
	for _, option := range all[2:] {
		name, value, valued := strings.Cut(option, "=")
		switch {
		case valued:
			c.options[name] = strings.Trim(value, `"`)
		case c.lock == "" && name != "&":
			c.lock = name
		default:
			c.options[name] = name
		}
	}
	for end := time.Now().Add(c.duration("for", 0)); ; wait.Rest(s.Context(), refresh) {
		sent := proc.Monotonic()
		o := s.act(c)
		if o.sent == 0 {
			o.sent, o.got = sent, proc.Monotonic()
		}
		if c.verb == "release" {
			s.released[c.lock] = o.sent
		}
		if err := s.check(c, o, wants); err != nil || !time.Now().Before(end) {
			return err
		}
	}
}

// hows are the ways in which a step may go.
var hows = regexp.MustCompile(
	`^((ok|none|held|timeout|deadline|lost|foreign|stepped-down|unsupported|exited|other)(\||$))+`)

// check compares what came of a step with what is wanted. The first want may be how it went.
func (s *fixture) check(c command, o outcome, wants []string) error {
	how := "ok"
	if len(wants) > 0 && hows.MatchString(wants[0]) {
		how, wants = wants[0], wants[1:]
	}
	if o.how = cmp.Or(o.how, "ok"); !slices.Contains(strings.Split(how, "|"), o.how) {
		return fmt.Errorf("it went %s %v %s, want %s", o.how, o.fields, o.text, how)
	}
	for _, want := range wants {
		name, value, _ := strings.Cut(want, "=")
		value = strings.Trim(value, `"`)
		got, wrong := o.fields[name], false
		switch took := time.Duration(o.got - o.sent); {
		case name == "text":
			got, wrong = o.text, !strings.Contains(o.text, value)
		case name == "unread":
			if value == "" {
				value = s.row(c.lock).text("leaseDuration")
			}
			got, wrong = o.text, !strings.Contains(o.text, s.unread(value))
		case name == "same":
			got, wrong = fmt.Sprintf("changed from %v to %v", s.kept[c.lock], s.row(c.lock)),
				!reflect.DeepEqual(s.kept[c.lock], s.row(c.lock))
		case name == "after":
			got, wrong = took.String(), took < duration(value)
		case name == "promptly":
			since := time.Duration(o.got - s.released[c.lock])
			got, wrong = fmt.Sprintf("%v after the release", since), since > promptly
			if s.released[c.lock] == 0 {
				got, wrong = "no release", true
			}
		case value == "rises":
			s.mu.Lock()
			token, _ := strconv.ParseUint(got, 10, 64)
			wrong = token <= s.tokens[c.lock]
			s.mu.Unlock()
		case value == "*":
			wrong = got == ""
		default:
			wrong = got != value
		}
		if wrong {
			return fmt.Errorf("%s: it is %q, want %q: %v %s", name, got, want, o.fields, o.text)
		}
	}
	return nil
}
