// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/mattn/go-runewidth"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/lines"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
)

// ours are the codes that this program itself gives a terminal: colours, and what
// clears a line.
var ours = regexp.MustCompile("\x1b\\[(?:[0-9;]*m|K)|\r")

// On a terminal, too, only what can be printed is shown of what others have
// written: by what is said, by the line that waits, and in the log, whose handler
// has a mind of its own about what is spelled as an escape code.
func TestTerminalShowsPrintableTextAlone(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	for _, evil := range []string{
		"\x1b[31mPWN\nfake\r\u202e\u2028\u009b31m\xff", `spelled \x1b]0;title\a and \x1b[2J`, "\x1b]52;c;cm0=\a x",
	} {
		var b bytes.Buffer
		c := &console{terminal: true, screen: -1, stderr: lines.New(&b)}
		c.set(outputFlags{Verbose: true})
		c.say("held by %s", evil)
		c.warn("%s", evil)
		c.show("%s", evil)
		c.show("%s", c.fitting("held by "+evil, evil))
		c.log.Error("lost", "owner", evil, "error", errors.New(evil), "lock", evil)
		c.log.With("lock", evil).Info(evil)
		c.fail(errors.New(evil), "")
		c.stderr.Close(time.Minute)
		text := b.String()
		if n := strings.Count(text, "\n"); n != 5 {
			t.Errorf("%q makes %d lines, want 5:\n%q", evil, n, text)
		}
		if strings.Contains(text, "\x1b[31mPWN") {
			t.Errorf("%q colours text: %q", evil, text)
		}
		for line := range strings.Lines(ours.ReplaceAllString(text, "")) {
			if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q is shown as %q", evil, line)
			}
		}
	}
}

func inMemory(t *testing.T) storeurl.Location {
	t.Helper()
	l, err := storeurl.Parse("memory:")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// If the store gives no answer when the command is to say for whom it waits, it says so as soon
// as the store answers again.
func TestWaitingIsSaidWhenTheStoreAnswersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faultstore.New(memstore.New(), nil)
		client, err := tenure.New(store, &tenure.Options{Owner: "waits"})
		if err != nil {
			t.Fatal(err)
		}
		holder, err := tenure.New(store, &tenure.Options{Owner: "web-2"})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := holder.Acquire(t.Context(), "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		c := &console{screen: -1, stderr: lines.New(&b)}
		w := &command{console: c, client: client, store: store, location: inMemory(t), waiting: make(chan struct{}, 1)}
		w.on("job")
		remove := store.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.BlackHole()})
		ctx, enough := context.WithCancel(t.Context())
		var announced sync.WaitGroup
		announced.Go(func() { w.announce(ctx) })
		time.Sleep(announceAfter + client.Options().RequestTimeout)
		remove()
		time.Sleep(10 * time.Second)
		enough()
		announced.Wait()
		if err := errors.Join(lease.Release(t.Context()), client.Close(t.Context()), holder.Close(t.Context())); err != nil {
			t.Error(err)
		}
		c.stderr.Close(time.Minute)
		if n := strings.Count(b.String(), `waiting for "job": held by "web-2" (token 1)`); n != 1 {
			t.Errorf("that is said %d times: %q", n, b.String())
		}
	})
}

// A claim whose answer takes long is not reported as a holder to wait for.
func TestOwnClaimIsNoHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faultstore.New(memstore.New(), nil)
		client, err := tenure.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		c := &console{screen: -1, stderr: lines.New(&b)}
		w := &command{console: c, client: client, store: store, location: inMemory(t), waiting: make(chan struct{}, 1)}
		w.on("job")
		store.Inject(faultstore.Rule{
			Ops: []faultstore.Op{faultstore.OpClaim}, Fault: faultstore.Slow(0, announceAfter+client.Options().RequestTimeout/4),
		})
		ctx, enough := context.WithCancel(t.Context())
		var announced sync.WaitGroup
		announced.Go(func() { w.announce(ctx) })
		lease, err := client.Acquire(ctx, "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		enough()
		announced.Wait()
		if err := errors.Join(lease.Release(t.Context()), client.Close(t.Context())); err != nil {
			t.Error(err)
		}
		if c.stderr.Close(time.Minute); b.Len() > 0 {
			t.Errorf("said is %q", b.String())
		}
	})
}

// A wait that outlasts a short outage ends like a wait for a held lock: the holder is still
// the same, and only the end of the outage is news. It is reported at once, not at the end of
// the wait. The same holds for slots, and for readers and writers.
func TestStoreThatAnswersAgainIsNotBlamed(t *testing.T) {
	one := 1
	for _, test := range []struct {
		name string
		hold func(ctx context.Context, c *tenure.Client) (func(context.Context) error, error)
		want func(w *command) error
	}{
		{"lock", func(ctx context.Context, c *tenure.Client) (func(context.Context) error, error) {
			lease, err := c.Acquire(ctx, "job", nil)
			return lease.Release, err
		}, func(w *command) error { return (&runCmd{}).choose(w) }},
		{"slot", func(ctx context.Context, c *tenure.Client) (func(context.Context) error, error) {
			s, err := semaphore.New(c, "job", one, nil)
			if err != nil {
				return nil, err
			}
			lease, err := s.Acquire(ctx, nil)
			first, leave := context.WithCancel(ctx)
			go func() { _, _ = s.Acquire(first, nil) }()
			synctest.Wait() // it is first in line
			return func(ctx context.Context) error { leave(); synctest.Wait(); return lease.Release(ctx) }, err
		}, func(w *command) error { return (&runCmd{Slots: &one}).choose(w) }},
		{"writer", func(ctx context.Context, c *tenure.Client) (func(context.Context) error, error) {
			l, err := rwlock.New(c, "job", nil)
			if err != nil {
				return nil, err
			}
			lease, err := l.AcquireWrite(ctx, nil)
			first, leave := context.WithCancel(ctx)
			go func() { _, _ = l.AcquireWrite(first, nil) }()
			synctest.Wait()
			return func(ctx context.Context) error { leave(); synctest.Wait(); return lease.Release(ctx) }, err
		}, func(w *command) error { return (&runCmd{Exclusive: true}).choose(w) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faultstore.New(memstore.New(), nil)
				var b bytes.Buffer
				c := &console{screen: -1, stderr: lines.New(&b)}
				w := &command{console: c, store: store, location: inMemory(t), waiting: make(chan struct{}, 1)}
				w.on("job")
				var err error
				if w.client, err = tenure.New(store, &tenure.Options{Owner: "waits", OnEvent: w.onEvent}); err != nil {
					t.Fatal(err)
				}
				inner, err := tenure.New(store.Driver(), &tenure.Options{Owner: "web-2"})
				if err != nil {
					t.Fatal(err)
				}
				release, err := test.hold(t.Context(), inner)
				if err != nil {
					t.Fatal(err)
				}
				if err := test.want(w); err != nil {
					t.Fatal(err)
				}
				wait := 60 * time.Second
				p := patience{wait: &wait, held: statusHeld, options: tenure.AcquireOptions{StoreTimeout: -1}}
				ctx, enough := context.WithTimeoutCause(t.Context(), wait, errWaited)
				defer enough()
				var announced sync.WaitGroup
				announced.Go(func() { w.announce(ctx) })
				time.AfterFunc(5*time.Second, func() { store.SetBlackHole(true) })
				time.AfterFunc(10*time.Second, func() { store.SetBlackHole(false) })
				// Twice if a request is still without an answer when a later one has it.
				said := regexp.MustCompile(`^.*the store is .*\n.*waiting .*"job".*web-2.*\n` +
					`(.*does not answer.*trying again\n.*the store answers again, after .*\n){1,2}$`)
				time.AfterFunc(30*time.Second, func() {
					if c.stderr.Flush(time.Second); !said.MatchString(b.String()) {
						t.Errorf("20 s after the store answers again, said is %q", b.String())
					}
				})
				_, err = w.target.take(ctx, p, &p.options)
				announced.Wait()
				if refused := w.refusal(ctx, p, err); refused == nil ||
					!strings.Contains(refused.Error(), "not acquired within 1m0s: ") {
					t.Errorf("after a wait of a minute: %v", refused)
				}
				if err := errors.Join(release(t.Context()), w.client.Close(t.Context()), inner.Close(t.Context())); err != nil {
					t.Error(err)
				}
				c.stderr.Close(time.Minute)
				if !said.MatchString(b.String()) {
					t.Errorf("said is %q", b.String())
				}
			})
		})
	}
}

// A watched item is written when it has changed, or is gone, and an outage is reported once.
func TestChangesAreWritten(t *testing.T) {
	var written, said bytes.Buffer
	c := &console{stdout: &written, stderr: lines.New(&said)}
	one := func(key, state string) item { return item{key: key, state: state, text: key + " is " + state} }
	w := &changes{outages: outages{console: c}, gone: func(key string) item { return one(key, "gone") }}
	for _, state := range []string{"held", "held", "free"} {
		w.draw([]item{one("a", state), one("b", "held")})
	}
	for range 2 {
		w.tell(errors.New("no answer"))
	}
	w.draw([]item{one("b", "held")})
	var got []string
	for line := range strings.Lines(written.String()) {
		got = append(got, strings.TrimSpace(line[len(time.TimeOnly):]))
	}
	if want := []string{"a is held", "b is held", "a is free", "a is gone"}; !slices.Equal(got, want) {
		t.Errorf("written is %q, want %q", got, want)
	}
	c.close(time.Minute)
	const want = "tenure: the store does not answer: no answer; trying again\n"
	if said.String() != want {
		t.Errorf("said is %q, want %q", &said, want)
	}
}

// A store that was replaced is not tried again, and the command does not say so.
func TestReplacedStoreIsNotTriedAgain(t *testing.T) {
	var b bytes.Buffer
	c := &console{screen: -1, stderr: lines.New(&b)}
	w := &command{console: c}
	w.onEvent(tenure.Event{Kind: tenure.EventStoreError, Lock: "job", Err: driver.Replaced(errors.New("moved"))})
	told := &outages{console: c}
	if !told.tell(driver.Replaced(errors.New("moved"))) {
		t.Error("the store is taken for a store that answers")
	}
	if c.stderr.Close(time.Minute); b.Len() > 0 {
		t.Errorf("said is %q", b.String())
	}
}

// TestOutageIsSaidOnce: and again after pauses that double, with a count, and when it is over.
func TestOutageIsSaidOnce(t *testing.T) {
	for name, answers := range map[string]bool{"silence": false, "answers in turns": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b bytes.Buffer
				c := &console{screen: -1, stderr: lines.New(&b)}
				w := &command{console: c}
				for range 3600 {
					w.fails(errors.New("it is away"))
					time.Sleep(time.Second)
					if answers {
						w.answers()
					}
				}
				w.answers()
				c.stderr.Close(time.Minute)
				said := strings.Split(strings.TrimSpace(b.String()), "\n")
				if n := len(said); n < 3 || n > 14 || !strings.Contains(said[0], "does not answer: it is away; trying again") ||
					!strings.Contains(b.String(), " more requests: it is away") {
					t.Errorf("an hour is told in %d lines:\n%s", n, b.String())
				}
				if last := said[len(said)-1]; !answers && !strings.Contains(last, "answers again, after 1h0m0s") {
					t.Errorf("it ends with %s", last)
				}
			})
		})
	}
}

// TestRefusalTellsTheStoreFromAHolder: a wait that ends without the lock gives the cause: the
// holder, or the store's last error if no holder is known.
func TestRefusalTellsTheStoreFromAHolder(t *testing.T) {
	wait := time.Minute
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errWaited)
	for _, tt := range []struct {
		name       string
		away, held bool
		status     int
		want       string
	}{
		{"no answer", true, false, statusStore, "no answer within 1m0s: it is away"},
		{"free", false, false, statusHeld, `"job": not acquired within 1m0s`},
		{"held", false, true, statusHeld, `"job": not acquired within 1m0s: held by "other" (token 1)`},
		{"held, and no answer", true, true, statusHeld, `"job": not acquired within 1m0s: held by "other" (token 1)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				client := func(owner string) *tenure.Client {
					c, err := tenure.New(store.Open(), &tenure.Options{Owner: owner})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
					return c
				}
				if tt.held {
					if _, err := client("other").Acquire(t.Context(), "job", nil); err != nil {
						t.Fatal(err)
					}
				}
				c := &console{screen: -1, stderr: lines.New(new(bytes.Buffer))}
				defer c.stderr.Close(time.Minute)
				w := &command{console: c, client: client("me")}
				w.on("job")
				if tt.away {
					w.fails(errors.New("it is away"))
				}
				err := w.refusal(ctx, patience{wait: &wait, held: statusHeld}, context.Canceled)
				if status := flags.StatusOf(err); status != tt.status || !strings.HasPrefix(err.Error(), tt.want) {
					t.Errorf("status %d, %q: want %d, %q", status, err, tt.status, tt.want)
				}
			})
		})
	}
}

// TestFitTable: on each width all lines have room, the more there is the more is shown, and what
// a lock is called, its state and its token are shown down to where they have room.
func TestFitTable(t *testing.T) {
	cells := [][]string{
		{"LOCK", "STATE", "OWNER", "TOKEN", "SINCE", "UNCHANGED", "FREE IN", "HOST", "LABEL"},
		{
			"nightly-report", "held", "web-7.eu-central-1-4711-kxq2ma", "12", "2026-11-25 01:00:56", "-", "<15s",
			"web-7.eu-central-1.example", "v1.4.2",
		},
		{"東京", "free", "東京東京東京東京東京東京", "3", "01:00:56", "-", "now", "東京", "-"},
	}
	between := regexp.MustCompile(" {2,}")
	if got := layout(cells, 0); len(between.Split(got[0], -1)) != 9 || strings.Contains(got[1], "…") {
		t.Errorf("without a width: %q", got)
	}
	before := 9
	for width := 200; width >= 30; width-- {
		lines := layout(cells, width)
		heads := between.Split(lines[0], -1)
		if len(heads) > before {
			t.Errorf("width %d shows more columns than the one above it: %q, %d", width, heads, before)
		}
		before = len(heads)
		for i, line := range lines {
			if w := runewidth.StringWidth(line); w >= width && width >= 48 {
				t.Errorf("width %d: line %d has %d: %q", width, i, w, line)
			}
		}
		for _, want := range []string{"LOCK", "STATE", "OWNER", "TOKEN", "FREE IN"} {
			if !slices.Contains(heads, want) {
				t.Errorf("width %d: %s is left out", width, want)
			}
		}
		if text := strings.Join(lines, "\n"); !strings.Contains(text, "nightly-report  held") ||
			!strings.Contains(text, " 12 ") {
			t.Errorf("width %d:\n%s", width, text)
		}
		if whole := slices.Contains(heads, "UNCHANGED"); whole != (width > 140) && (width < 130 || width > 150) {
			t.Errorf("width %d: the empty column is shown: %v", width, whole)
		}
	}
	if got := layout(cells, 80); !strings.Contains(got[1], "…") {
		t.Errorf("nothing was shortened at 80: %q", got)
	}
}

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"tenure: lease is bad\ngrace is bad, too": "lease is bad; grace is bad, too",
		"a\r\n\r\nb":               "a; b",
		"no server:\n\ta: x\n\tb:": "no server: a: x; b:",
		"\n":                       "",
	} {
		if got := flags.OneLine(flags.Usage("%s", text)); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
