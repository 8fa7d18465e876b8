// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
)

func TestOneNumberIsEnough(t *testing.T) {
	drift := 0.09
	if _, raw := clock.Machine(clock.Options{}); raw {
		drift = 0.01
	}
	for _, lease := range []time.Duration{0, 10 * time.Millisecond, time.Second, 20 * time.Second, 24 * time.Hour} {
		in := tenure.Options{LeaseDuration: lease}
		c := testutil.Must(tenure.New(memstore.New(), &in))(t)
		defer c.Close(t.Context())
		if in.Owner != "" || in.HeartbeatPeriod != 0 {
			t.Error("New changed the options that it was given")
		}
		l := lease
		if l == 0 {
			l = 15 * time.Second
		}
		o := c.Options()
		if o.LeaseDuration != l || o.HeartbeatPeriod != l/5 || o.RefreshPeriod != min(time.Second, l/5) || o.Grace != l/8 ||
			o.RequestTimeout != l/10 || o.StopTimeout != l || o.MaxClockDrift != drift || o.MaxInFlight != 256 || o.ProgressTimeout != 0 {
			t.Errorf("lease %v: %+v", lease, o)
		}
		host, _ := os.Hostname()
		if prefix := fmt.Sprintf("%s-%d-", host, os.Getpid()); o.Host != host || !strings.HasPrefix(o.Owner, prefix) || len(o.Owner) != len(prefix)+6 {
			t.Errorf("host %q, owner %q", o.Host, o.Owner)
		}
	}
}

func TestOptionsThatBreakARuleAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		o    tenure.Options
		want string
	}{
		"negative lease":   {tenure.Options{LeaseDuration: -time.Second}, "lease duration -1s must be from 10ms to 8760h0m0s"},
		"short lease":      {tenure.Options{LeaseDuration: 9 * time.Millisecond}, "lease duration 9ms must be from 10ms to 8760h0m0s"},
		"broken lease":     {tenure.Options{LeaseDuration: time.Second + 1}, "lease duration 1.000000001s must be a whole number of milliseconds"},
		"heartbeat":        {tenure.Options{HeartbeatPeriod: -1}, "heartbeat period -1ns must be positive"},
		"refresh":          {tenure.Options{RefreshPeriod: -1}, "refresh period -1ns must be positive"},
		"heartbeats":       {tenure.Options{HeartbeatPeriod: 3000}, "heartbeat period 3µs must be at least 1ms, because each period costs a request to the store: check the unit"},
		"looks":            {tenure.Options{RefreshPeriod: 1}, "refresh period 1ns must be at least 1ms, because each period costs a request to the store: check the unit"},
		"grace":            {tenure.Options{Grace: -1}, "grace -1ns must be positive"},
		"request timeout":  {tenure.Options{RequestTimeout: -1}, "request timeout -1ns must be positive"},
		"stop timeout":     {tenure.Options{StopTimeout: -1}, "stop timeout -1ns must be positive"},
		"progress timeout": {tenure.Options{ProgressTimeout: -1}, "progress timeout -1ns must be from 0 to 8760h0m0s"},
		"drift":            {tenure.Options{MaxClockDrift: 0.6}, "clock drift bound 0.6 must be above 0 and at most 0.5"},
		"parts": {
			tenure.Options{LeaseDuration: 10 * time.Second, HeartbeatPeriod: 6 * time.Second, MaxClockDrift: 0.09},
			"lease duration 10s is shorter than its parts: heartbeat period 6s + 2 x request timeout 1s + grace 1.25s = 9.25s must be at most 8.349s",
		},
		"max in flight": {tenure.Options{MaxInFlight: -1}, "max in flight -1 must be positive"},
		"owner":         {tenure.Options{Owner: "a\nb"}, `owner "a\nb" has U+000A at byte 1`},
		"long owner":    {tenure.Options{Owner: strings.Repeat("o", 1025)}, "has 1025 bytes: at most 1024 are allowed"},
		"host":          {tenure.Options{Host: "\xff"}, `host "\xff" is not valid UTF-8`},
		"clock":         {tenure.Options{Clock: earlyClock{}}, "clock reads -1ns: it must not be negative; use an origin before all readings"},
		"label":         {tenure.Options{Label: "\x00"}, `label "\x00" has U+0000 at byte 0`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := tenure.New(memstore.New(), &test.o)
			if err == nil {
				c.Close(t.Context())
				t.Fatal("no error")
			}
			if !strings.HasPrefix(err.Error(), "tenure: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q, want %q in it", err, test.want)
			}
		})
	}
}

// earlyClock is a clock with one reading before its origin.
type earlyClock struct{}

func (earlyClock) Holder() time.Duration    { return 0 }
func (earlyClock) Contender() time.Duration { return -1 }

// TestOneClockForAllBubbles: a clock that was made outside of bubbles, or in another
// one, lets a lease be acquired, kept and lost.
func TestOneClockForAllBubbles(t *testing.T) {
	clock := tenure.MonotonicClock()
	for range 2 {
		inWorld(t, func(t *testing.T, w *world) {
			m := w.Client("a", func(o *tenure.Options) { o.Clock = clock })
			l := m.MustAcquire("x", nil)
			time.Sleep(10 * lease)
			testutil.Want(t, l.Check(), nil)
			m.Partition()
			<-l.Context().Done()
			testutil.Want(t, l.Check(), tenure.ErrLost)
			clock = tenure.MonotonicClock() // for the next bubble
		})
	}
	c := testutil.Must(tenure.New(memstore.New(), &tenure.Options{Clock: clock}))(t)
	l, err := c.TryAcquire(t.Context(), "x", nil)
	testutil.Want(t, err, nil)
	testutil.Want(t, l.Check(), nil)
	testutil.Want(t, l.Release(t.Context()), nil)
	testutil.Want(t, c.Close(t.Context()), nil)
}

func TestNamesThatNoStoreCanKeepAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		for name, part := range map[string]string{
			"":                        "lock name is empty: it must have 1 to 1024 bytes",
			strings.Repeat("k", 1025): `lock name "kkkkkkkkkkkkkkkkkkkk"... has 1025 bytes: at most 1024 are allowed`,
			"\xff":                    `lock name "\xff" is not valid UTF-8`,
			"tenure/x":                `lock name "tenure/x" begins with "tenure/": such names are for records of Tenure itself`,
		} {
			check := func(op string, err error) {
				t.Helper()
				e, ok := errors.AsType[*tenure.Error](err)
				if !ok || e.Op != op || e.Key != name || e.Err.Error() != part || len(err.Error()) > 500 {
					t.Errorf("%s of %.20q: %v", op, name, err)
				}
			}
			ctx := t.Context()
			_, err := m.Acquire(ctx, name, nil)
			check("acquire", err)
			_, err = m.TryAcquire(ctx, name, nil)
			check("try acquire", err)
			check("acquire", m.Run(ctx, name, nil, nil))
			_, err = m.Status(ctx, name)
			check("status", err)
			e := m.Election(name, nil)
			check("acquire", e.Run(ctx, nil))
			_, err = e.Leader(ctx)
			check("leader", err)
			for _, err := range e.Observe(ctx) {
				check("observe", err)
			}
		}
		if n := m.Faults().Count(); n != 0 {
			t.Errorf("%d requests", n)
		}
		longest := strings.Repeat("k", driver.MaxNameLen)
		mustRelease(m, m.MustAcquire(longest, &tenure.AcquireOptions{Data: make([]byte, driver.MaxDataLen)}))
	})
}

func TestAcquireOptionsThatBreakARuleAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		for text, o := range map[string]*tenure.AcquireOptions{
			`acquire "x": additional wait -1s must be from 0 to 8760h0m0s`:   {AdditionalWait: -time.Second},
			`acquire "x": data has 262145 bytes: at most 262144 are allowed`: {Data: make([]byte, driver.MaxDataLen+1)},
		} {
			if _, err := m.Acquire(t.Context(), "x", o); err == nil || err.Error() != text {
				t.Errorf("error %v, want %s", err, text)
			}
		}
	})
}

// What ended a lease is matched by the sentinels as their comments say.
func TestErrorsMatchTheirSentinels(t *testing.T) {
	is := func(err error, yes ...error) {
		t.Helper()
		all := []error{
			tenure.ErrHeld, tenure.ErrUnreadable, tenure.ErrNoLeader, tenure.ErrLost, tenure.ErrExpired, tenure.ErrSuperseded,
			tenure.ErrStalled, tenure.ErrReleased, tenure.ErrClosed, tenure.ErrStopTimeout, tenure.ErrUncertain, tenure.ErrTooLate,
		}
		for _, target := range all {
			wanted := false
			for _, y := range yes {
				wanted = wanted || y == target //nolint:errorlint // the sentinel itself
			}
			if errors.Is(err, target) != wanted {
				t.Errorf("errors.Is(%v, %v) = %v", err, target, !wanted)
			}
		}
	}
	is(tenure.ErrExpired, tenure.ErrExpired, tenure.ErrLost)
	is(tenure.ErrSuperseded, tenure.ErrSuperseded, tenure.ErrLost)
	is(tenure.ErrStalled, tenure.ErrStalled, tenure.ErrLost)
	is(&tenure.SupersededError{Owner: "b", Token: 2}, tenure.ErrSuperseded, tenure.ErrLost)
	is(&tenure.HeldError{Owner: "b", Token: 2}, tenure.ErrHeld)
	is(&tenure.Error{Op: "acquire", Key: "x", Err: context.Canceled})
	is(&tenure.Error{Op: "acquire", Key: "x", Err: tenure.ErrClosed}, tenure.ErrClosed)
	for _, err := range []error{tenure.ErrReleased, tenure.ErrClosed, tenure.ErrStopTimeout, tenure.ErrUncertain} {
		is(err, err)
	}
}

func TestNewNamesAllThatIsWrongInOneLine(t *testing.T) {
	_, err := tenure.New(nil, &tenure.Options{RefreshPeriod: -1, MaxClockDrift: 2})
	want := "tenure: store is nil: open one, such as memstore.New(); refresh period -1ns must be positive and at most 8760h0m0s; " +
		"clock drift bound 2 must be above 0 and at most 0.5"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// unprintable are texts that look like others, or control a terminal, with the error
// for each.
var unprintable = map[string]string{
	"a\nb":        "U+000A at byte 1",
	"\x1b[31mred": "U+001B at byte 0",
	"grüße\x7f":   "U+007F at byte 7",
	"\u009b31m":   "U+009B at byte 0",
	"web\u202e7":  "U+202E at byte 3",
	"web\u200b7":  "U+200B at byte 3",
	"web\u20287":  "U+2028 at byte 3",
	"\ufeffweb":   "U+FEFF at byte 0",
	"web\ufffe":   "U+FFFE at byte 3",
	"web\u00a07":  "U+00A0 at byte 3",
	"web\ue007":   "U+E007 at byte 3", // for private use
}

// Text for people must be printable, rune by rune.
func TestTextThatCannotBePrintedIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		for text, part := range unprintable {
			refused := func(what string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), " has "+part+": only printable characters and the ordinary space are allowed") {
					t.Errorf("%s %q: %v", what, text, err)
				}
			}
			for what, o := range map[string]tenure.Options{"owner": {Owner: text}, "host": {Host: text}, "label": {Label: text}} {
				c, err := tenure.New(memstore.New(), &o)
				if refused(what, err); err == nil {
					c.Close(t.Context())
				}
			}
			ctx := t.Context()
			_, err := m.Acquire(ctx, text, nil)
			refused("name to acquire", err)
			_, err = m.TryAcquire(ctx, text, nil)
			refused("name to try", err)
			refused("name to run under", m.Run(ctx, text, nil, nil))
			refused("name to campaign for", m.Election(text, nil).Run(ctx, nil))
			refused("reason", m.StepDown(ctx, "x", because(text)))
			refused("reason", m.StepDown(ctx, "x", &tenure.StepDownOptions{To: "b", Reason: text}))
			refused("reason", admin.ReleaseDead(ctx, m.Client, "x", text))
			refused("reason", admin.Revoke(ctx, m.Client, "x", text))
			refused("next owner", m.StepDown(ctx, "x", &tenure.StepDownOptions{To: text, Reason: "why"}))
		}
		if n := m.Faults().Count(); n != 0 {
			t.Errorf("%d requests", n)
		}
		for _, name := range []string{"a b", "grüße", "東京", "e\u0301", "🎉", "\ufffd"} {
			mustRelease(m, m.MustAcquire(name, nil))
		}
	})
}

// TestSpacesAtTheEndsOfNames: a name that people read as another one is refused. Text that is
// no name may have such spaces.
func TestSpacesAtTheEndsOfNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		ctx := t.Context()
		for name, part := range map[string]string{" a": "byte 0", "a ": "byte 1", "grüße  ": "byte 7", " ": "byte 0"} {
			refused := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, tenure.ErrInvalid) || !strings.Contains(err.Error(), "a space at "+part) {
					t.Errorf("%s %q: %v", what, name, err)
				}
			}
			_, err := m.Acquire(ctx, name, nil)
			refused("to acquire", err)
			_, err = m.TryAcquire(ctx, name, nil)
			refused("to try", err)
			refused("to run under", m.Run(ctx, name, nil, nil))
			refused("to campaign for", m.Election(name, nil).Run(ctx, nil))
		}
		if n := m.Faults().Count(); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// A lock that another client has written under an unprintable name can be read and
// released.
func TestUnprintableNamesCanBeReadAndReleased(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		ctx := t.Context()
		for _, name := range append(slices.Collect(maps.Keys(unprintable)), " a", "a ") {
			rec := driver.Record{Key: name, Version: "v", Beat: "v", State: driver.Held, Owner: "b", Token: 1, Lease: lease, Since: time.Now()}
			if _, _, err := w.Records().Claim(ctx, rec); err != nil {
				t.Fatal(err)
			}
			if st, err := m.Status(ctx, name); err != nil || !st.Held || st.Owner != "b" {
				t.Errorf("status of %q: %+v, %v", name, st, err)
			}
			if list, errs := m.Statuses(ctx, []string{name}, nil); errs[0] != nil || !list[0].Held {
				t.Errorf("statuses of %q: %+v, %v", name, list, errs)
			}
			if list, err := m.History(ctx, name); err != nil || len(list) != 1 {
				t.Errorf("history of %q: %v, %v", name, list, err)
			}
			if l, err := m.Election(name, nil).Leader(ctx); err != nil || l.Owner != "b" {
				t.Errorf("leader of %q: %v, %v", name, l, err)
			}
			for l, err := range m.Election(name, nil).Observe(ctx) {
				if err != nil || l.Owner != "b" {
					t.Errorf("observed of %q: %v, %v", name, l, err)
				}
				break
			}
			if err := m.StepDown(ctx, name, because("why")); !errors.Is(err, tenure.ErrUnanswered) {
				t.Errorf("step-down of %q: %v", name, err)
			}
			if err := admin.ReleaseDead(ctx, m.Client, name, "why"); err != nil {
				t.Errorf("release of %q: %v", name, err)
			}
			if st, err := m.Status(ctx, name); err != nil || st.Held || st.State != tenure.StateReleased {
				t.Errorf("status of %q afterwards: %+v, %v", name, st, err)
			}
		}
	})
}

// during counts the calls of a kind on a key while a duration passes.
func during(m *machine, d time.Duration, op faultstore.Op, key string) int {
	m.Faults().ResetLog()
	time.Sleep(d)
	n := 0
	for _, c := range m.Faults().Log() {
		if c.Op == op && c.Key == key {
			n++
		}
	}
	return n
}

// TestTimingPerLock: one client has a leader of 2 s, a job of 5 min and a session of many
// locks, each with what follows from its own lease.
func TestTimingPerLock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		quick := a.MustAcquire("leader", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: 2 * time.Second}})
		long := a.MustAcquire("job", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: 5 * time.Minute}})
		plain := a.MustAcquire("plain", nil)
		s, err := a.OpenSession(t.Context(), &tenure.SessionOptions{Timing: tenure.Timing{LeaseDuration: 30 * time.Second}})
		testutil.Want(t, err, nil)
		for _, name := range names(crowd()) {
			mustTake(a, s, name)
		}
		for name, lease := range map[string]time.Duration{
			"leader": 2 * time.Second, "job": 5 * time.Minute, "plain": lease, "lock-00000": 30 * time.Second,
			driver.SessionKey(s.ID()): 30 * time.Second,
		} {
			if got := w.MustRecord(name).Lease; got != lease {
				t.Errorf("%s has a lease of %v, want %v", name, got, lease)
			}
		}
		if got := quick.Timing(); got.HeartbeatPeriod != 400*time.Millisecond || got.RequestTimeout != 200*time.Millisecond || got.StopTimeout != 2*time.Second {
			t.Errorf("the leader has %+v", got)
		}
		if r := long.Remaining(); r < 3*time.Minute || r > 5*time.Minute {
			t.Errorf("the job has %v left", r)
		}
		const minute = time.Minute
		beats := map[string]int{}
		a.Faults().ResetLog()
		time.Sleep(10 * minute)
		for _, c := range a.Faults().Log() {
			beats[c.Key]++
		}
		for key, n := range map[string]int{"leader": 1500, "job": 10, "plain": 200, driver.SessionKey(s.ID()): 100, "lock-00000": 0} {
			if got := beats[key]; got < n-n/20-1 || got > n+n/20+1 {
				t.Errorf("%s was written %d times in 10 minutes, want about %d", key, got, n)
			}
		}
		for _, l := range []*tenure.Lease{quick, long, plain} {
			testutil.Want(t, l.Check(), nil)
		}

		// Cut off, each ends at its own deadline, and a contender with the defaults waits
		// for just that.
		b := w.Client("b")
		begun := time.Now()
		took := make(chan string, 3)
		for _, name := range []string{"leader", "job", "plain"} {
			go func() {
				if _, err := b.Acquire(t.Context(), name, nil); err == nil {
					took <- fmt.Sprintf("%s after %v", name, time.Since(begun).Round(time.Second))
				}
			}()
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		last := time.Now()
		a.Partition()
		testutil.Want(t, testutil.Within(t, 500*time.Millisecond, 2*time.Second, func() error {
			<-quick.Context().Done()
			return context.Cause(quick.Context())
		}), tenure.ErrExpired)
		<-took
		if d := time.Since(last); d > 2*time.Second+2*refresh {
			t.Errorf("the leader's successor came after %v", d)
		}
		<-plain.Context().Done()
		<-took
		testutil.Want(t, long.Check(), nil)
		if d := time.Since(last); d > lease+2*refresh {
			t.Errorf("the plain lock's successor came after %v", d)
		}
		<-long.Context().Done()
		<-took
		if d := time.Since(last); d < 4*time.Minute || d > 5*time.Minute+2*refresh {
			t.Errorf("the job's successor came after %v", d)
		}
	})
}

// TestTimingInherits: one duration of a lock's own changes no other, but a lease duration, from
// which the others follow.
func TestTimingInherits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a", func(o *tenure.Options) {
			o.HeartbeatPeriod, o.RefreshPeriod, o.Grace = 2*time.Second, 500*time.Millisecond, 3*time.Second
			o.RequestTimeout, o.StopTimeout, o.ProgressTimeout = time.Second, 7*time.Second, 20*time.Second
		})
		client := a.Options()
		own := tenure.Timing{
			HeartbeatPeriod: client.HeartbeatPeriod, RefreshPeriod: client.RefreshPeriod, Grace: client.Grace, LeaseDuration: lease,
			RequestTimeout: client.RequestTimeout, StopTimeout: client.StopTimeout, ProgressTimeout: client.ProgressTimeout,
		}
		with := func(edit func(*tenure.Timing)) tenure.Timing {
			t := own
			edit(&t)
			return t
		}
		minute := tenure.Timing{
			LeaseDuration: time.Minute, HeartbeatPeriod: 12 * time.Second, RefreshPeriod: time.Second, Grace: time.Minute / 8,
			RequestTimeout: 6 * time.Second, StopTimeout: time.Minute, ProgressTimeout: client.ProgressTimeout,
		}
		for _, c := range []struct {
			set  tenure.Timing
			want tenure.Timing
		}{
			{tenure.Timing{}, own},
			{tenure.Timing{Grace: time.Second}, with(func(t *tenure.Timing) { t.Grace = time.Second })},
			{tenure.Timing{RefreshPeriod: time.Minute}, with(func(t *tenure.Timing) { t.RefreshPeriod = time.Minute })},
			{tenure.Timing{ProgressTimeout: time.Hour}, with(func(t *tenure.Timing) { t.ProgressTimeout = time.Hour })},
			{tenure.Timing{LeaseDuration: time.Minute}, minute},
		} {
			l := a.MustAcquire("x", &tenure.AcquireOptions{Timing: c.set})
			if got := l.Timing(); got != c.want {
				t.Errorf("%+v\nhas %+v\nwant %+v", c.set, got, c.want)
			}
			mustRelease(a, l)
		}
		_, err := a.TryAcquire(t.Context(), "x", &tenure.AcquireOptions{Timing: tenure.Timing{Grace: lease}})
		testutil.Want(t, err, tenure.ErrInvalid)
	})
}

// TestTimingOfWaiters: the waiters for one lock share its polls, at the shortest of
// their refresh periods.
func TestTimingOfWaiters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		held := a.MustAcquire("x", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: time.Minute}})
		unhinted := b.Inject(faultstore.OpHint, 0, 0, faultstore.Refuse())
		defer unhinted()
		wait := func(refresh time.Duration) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := testutil.Go(func() error {
				_, err := b.Acquire(ctx, "x", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: time.Minute, RefreshPeriod: refresh}})
				return err
			})
			synctest.Wait()
			return func() {
				cancel()
				testutil.Want(t, <-ended, context.Canceled)
			}
		}
		looks := func(want int) {
			t.Helper()
			// Another read follows soon after each of the five heartbeats.
			if n := during(b, time.Minute, faultstore.OpGet, "x"); n < want-want/3 || n > want+want/3+7 {
				t.Errorf("%d looks in a minute, want about %d", n, want)
			}
		}
		slow := wait(10 * time.Second)
		looks(6)
		quick := wait(time.Second)
		looks(60)
		third := wait(2 * time.Second)
		looks(60)
		quick()
		looks(30)
		third()
		looks(6)
		slow()

		// An acquire with UnlessAlive waits for no turn, and polls as well.
		var lived atomic.Int64
		ended := testutil.Go(func() error {
			defer func() { lived.Store(time.Now().UnixNano()) }()
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{
				UnlessAlive: true, Timing: tenure.Timing{LeaseDuration: time.Minute, RefreshPeriod: 500 * time.Millisecond},
			})
			return err
		})
		// It ends with the next heartbeat, which comes within 12 s.
		begun := time.Now()
		n := during(b, 12*time.Second, faultstore.OpGet, "x")
		testutil.Want(t, <-ended, tenure.ErrHeld)
		if each := float64(lived.Load()-begun.UnixNano()) / 5e8; float64(n) < 0.6*each-1 || float64(n) > 1.4*each+4 {
			t.Errorf("%d looks in the time of %.1f of one each 0.5 s", n, each)
		}
		testutil.Want(t, held.Check(), nil)
	})
}

// TestTimingOfCalls: a call of a lock with a short lease ends before that of the client
// would.
func TestTimingOfCalls(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		l := a.MustAcquire("x", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: 2 * time.Second}})
		a.Inject(faultstore.OpHeartbeat, 0, 1, faultstore.BlackHole())
		time.Sleep(2 * time.Second)
		testutil.Want(t, l.Check(), nil)
		begun := time.Now()
		a.Partition()
		_, err := a.TryAcquire(t.Context(), "y", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: 2 * time.Second}})
		if took := time.Since(begun); err == nil || took > requestTimeout {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// TestTimingUnderASession: a lock under a session has the session's timing.
func TestTimingUnderASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s, err := a.OpenSession(t.Context(), &tenure.SessionOptions{Timing: tenure.Timing{LeaseDuration: 5 * time.Second}})
		testutil.Want(t, err, nil)
		other := &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: time.Minute}}
		_, err = s.Acquire(t.Context(), "x", other)
		testutil.Want(t, err, tenure.ErrInvalid)
		testutil.Want(t, s.Run(t.Context(), "x", other, noWork), tenure.ErrInvalid)
		testutil.Want(t, s.Election("x", &tenure.ElectionOptions{Timing: other.Timing}).Run(t.Context(), noWork), tenure.ErrInvalid)
		l, err := s.Acquire(t.Context(), "x", nil)
		testutil.Want(t, err, nil)
		if got := l.Timing().LeaseDuration; got != 5*time.Second {
			t.Errorf("the lock has a lease of %v", got)
		}
		waits := testutil.Go(func() error {
			_, err := b.Acquire(t.Context(), "x", nil)
			return err
		})
		time.Sleep(time.Minute)
		testutil.Pending(t, "the other's acquire", waits)
		begun := time.Now()
		a.Partition()
		testutil.Want(t, <-waits, nil)
		if took := time.Since(begun); took > 5*time.Second+2*refresh {
			t.Errorf("taken over after %v", took)
		}
	})
}

// TestSuspendUnderAShortLease: a jump of the clock is noticed within a fraction of the grace
// of the lock, however long the client's is.
func TestSuspendUnderAShortLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &leapingClock{Clock: tenure.MonotonicClock()}
		c := testutil.Must(tenure.New(memstore.New(), &tenure.Options{Clock: clock, LeaseDuration: time.Minute}))(t)
		l, err := c.Acquire(t.Context(), "x", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: 2 * time.Second}})
		testutil.Want(t, err, nil)
		time.Sleep(10 * time.Millisecond)
		clock.leapt.Store(int64(time.Hour))
		grace := l.Timing().Grace
		testutil.Want(t, testutil.Within(t, 0, grace/4+time.Millisecond, func() error {
			<-l.Context().Done()
			return context.Cause(l.Context())
		}), tenure.ErrExpired)
		_ = c.Close(context.WithoutCancel(t.Context()))
	})
}

// TestTimingOfAnElection: a leader with a lease of 5 s, for which the client's own call
// timeout is too long.
func TestTimingOfAnElection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		o := &tenure.ElectionOptions{Timing: tenure.Timing{LeaseDuration: 5 * time.Second}}
		leads := make(chan string, 2)
		for _, m := range []*machine{a, b} {
			go func() {
				_ = m.Election("x", o).Run(t.Context(), func(ctx context.Context, l *tenure.Lease) error {
					leads <- l.Owner()
					<-ctx.Done()
					return nil
				})
			}()
		}
		first, machines := <-leads, map[string]*machine{"a": a, "b": b}
		time.Sleep(time.Minute)
		begun := time.Now()
		machines[first].Partition()
		if second := <-leads; second == first {
			t.Errorf("%s leads again", first)
		}
		if took := time.Since(begun); took > 5*time.Second+2*refresh {
			t.Errorf("a successor after %v", took)
		}
	})
}

// TestTimingIsChecked: each broken rule is named.
func TestTimingIsChecked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		for rule, of := range map[string]tenure.Timing{
			"must be from":              {LeaseDuration: time.Millisecond},
			"shorter than its parts":    {LeaseDuration: 5 * time.Second, RequestTimeout: 1500 * time.Millisecond},
			"grace":                     {Grace: -time.Second},
			"whole number of milli":     {LeaseDuration: 5*time.Second + 1},
			"progress timeout":          {ProgressTimeout: -1},
			"15s is shorter than its p": {HeartbeatPeriod: 14 * time.Second},
		} {
			calls := a.Calls(func() {
				_, err := a.Acquire(t.Context(), "x", &tenure.AcquireOptions{Timing: of})
				testutil.Want(t, err, tenure.ErrInvalid)
				if err == nil || !strings.Contains(err.Error(), rule) {
					t.Errorf("got %v, want %q", err, rule)
				}
				_, err = a.OpenSession(t.Context(), &tenure.SessionOptions{Timing: of})
				testutil.Want(t, err, tenure.ErrInvalid)
			})
			if calls != "" {
				t.Errorf("sent %q", calls)
			}
		}
	})
}

// TestCloseWaitsForTheLongest: the work of a lock with a long stop timeout has its time.
func TestCloseWaitsForTheLongest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		done := testutil.Go(func() error {
			return a.Run(t.Context(), "x", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: 5 * time.Minute}}, func(ctx context.Context, _ *tenure.Lease) error {
				<-ctx.Done()
				time.Sleep(4 * time.Minute)
				return nil
			})
		})
		time.Sleep(time.Second)
		ended, stop := context.WithCancel(t.Context())
		stop()
		testutil.Want(t, testutil.Within(t, 4*time.Minute, 4*time.Minute+time.Second, func() error {
			return a.Close(ended)
		}), nil)
		testutil.Want(t, <-done, nil)
	})
}
