// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
)

// takers are the ways in which a lock is taken: with its own lease, and under a
// session.
var takers = map[string]func(*machine, string) *tenure.Lease{
	"alone": func(m *machine, name string) *tenure.Lease {
		return m.MustAcquire(name, &tenure.AcquireOptions{History: true})
	},
	"under a session": func(m *machine, name string) *tenure.Lease {
		s, err := m.OpenSession(m.World().T().Context(), nil)
		testutil.Want(m.World().T(), err, nil)
		l, err := s.Acquire(m.World().T().Context(), name, &tenure.AcquireOptions{History: true})
		testutil.Want(m.World().T(), err, nil)
		return l
	},
}

func eachTaker(t *testing.T, test func(t *testing.T, w *world, a *machine, l *tenure.Lease)) {
	t.Helper()
	for name, take := range takers {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.Client("a")
			l := take(a, "x")
			time.Sleep(time.Second)
			test(t, w, a, l)
		})
	}
}

// writes counts the writes of the lock's record since then.
func writes(m *machine) int {
	return m.Faults().Count(
		faultstore.OpRelease, faultstore.OpSetData, faultstore.OpReserve, faultstore.OpTakeover, faultstore.OpClaim, faultstore.OpClose)
}

// mustRelease releases a lease of the machine.
func mustRelease(m *machine, l *tenure.Lease) {
	t := m.World().T()
	t.Helper()
	testutil.Want(t, l.Release(t.Context()), nil)
}

func TestReleaseWithIsOneWrite(t *testing.T) {
	errBroken := errors.New("disk\nfull: \x1b[31m/var\u202e")
	eachTaker(t, func(t *testing.T, w *world, a *machine, l *tenure.Lease) {
		n := writes(a)
		testutil.Want(t, l.ReleaseWith(t.Context(), &tenure.ReleaseOptions{Data: []byte("at 7"), Failed: errBroken}), nil)
		if more := writes(a) - n; more != 1 {
			t.Errorf("%d writes, want one", more)
		}
		rec := w.MustRecord("x")
		if rec.State != driver.Released || rec.End != driver.EndFailed || string(rec.Data) != "at 7" {
			t.Errorf("record %+v", rec)
		}
		next := w.Client("b").MustAcquire("x", &tenure.AcquireOptions{History: true})
		p, ok := next.Previous()
		if !ok || p.End != tenure.EndFailed || string(p.Data) != "at 7" || p.Request == nil || p.Until.IsZero() {
			t.Fatalf("previous %+v", p)
		}
		if q := p.Request; q.Kind != tenure.RequestFail || q.By != "a" || q.Reason != "disk full: [31m/var" || q.At.IsZero() {
			t.Errorf("request %+v", q)
		}
		history, err := a.History(t.Context(), "x")
		testutil.Want(t, err, nil)
		if len(history) != 2 || history[1].End != tenure.EndFailed || history[1].Request == nil || history[1].Request.Reason != "disk full: [31m/var" {
			t.Errorf("history %+v", history)
		}
	})
}

func TestReleaseWithKeepsAndEmptiesData(t *testing.T) {
	for name, tt := range map[string]struct {
		options *tenure.ReleaseOptions
		want    string
	}{
		"nil":    {nil, "before"},
		"none":   {&tenure.ReleaseOptions{}, "before"},
		"empty":  {&tenure.ReleaseOptions{Data: []byte{}}, ""},
		"others": {&tenure.ReleaseOptions{Data: []byte("after")}, "after"},
	} {
		t.Run(name, func(t *testing.T) {
			eachTaker(t, func(t *testing.T, w *world, _ *machine, l *tenure.Lease) {
				testutil.Want(t, l.SetData(t.Context(), []byte("before")), nil)
				testutil.Want(t, l.ReleaseWith(t.Context(), tt.options), nil)
				rec := w.MustRecord("x")
				if string(rec.Data) != tt.want || rec.End != driver.EndReleased || rec.Asked != nil {
					t.Errorf("record %+v", rec)
				}
			})
		})
	}
}

// TestReleaseWithBesideAHeartbeat: with one under way, and with data under way.
func TestReleaseWithBesideAHeartbeat(t *testing.T) {
	eachTaker(t, func(t *testing.T, w *world, a *machine, l *tenure.Lease) {
		a.Inject(faultstore.OpSetData, 0, 1, faultstore.Slow(time.Second/3, time.Second/3))
		set := testutil.Go(func() error { return l.SetData(t.Context(), []byte("older")) })
		time.Sleep(time.Second / 4)
		testutil.Want(t, l.ReleaseWith(t.Context(), &tenure.ReleaseOptions{Data: []byte("at 7")}), nil)
		testutil.Want(t, <-set, nil)
		if rec := w.MustRecord("x"); string(rec.Data) != "at 7" {
			t.Errorf("record %+v", rec)
		}
	})
}

// TestReleaseWithAfterARequest: the request ended the term, and the owner that it names
// gets the lock; the data are stored all the same.
func TestReleaseWithAfterARequest(t *testing.T) {
	for name, tt := range map[string]struct {
		ask   func(context.Context, *machine) error
		state driver.State
		end   driver.EndReason
	}{
		"step down": {func(ctx context.Context, m *machine) error {
			return m.StepDown(ctx, "x", because("asked"))
		}, driver.Released, driver.EndSteppedDown},
		"hand over": {func(ctx context.Context, m *machine) error {
			return m.StepDown(ctx, "x", &tenure.StepDownOptions{To: "c", Reason: "asked"})
		}, driver.Reserved, driver.EndHandedOver},
	} {
		t.Run(name, func(t *testing.T) {
			eachTaker(t, func(t *testing.T, w *world, _ *machine, l *tenure.Lease) {
				b := w.Client("b")
				asked := testutil.Go(func() error { return tt.ask(t.Context(), b) })
				<-l.Context().Done()
				testutil.Want(t, context.Cause(l.Context()), tenure.ErrSteppedDown)
				testutil.Want(t, l.ReleaseWith(t.Context(), &tenure.ReleaseOptions{Data: []byte("at 7"), Failed: errWork}), nil)
				testutil.Want(t, <-asked, nil)
				rec := w.MustRecord("x")
				end, q := rec.End, rec.Asked
				if rec.State == driver.Reserved {
					end, q = rec.Prev.End, rec.Prev.Asked
				}
				if rec.State != tt.state || end != tt.end || q == nil || q.Reason != "asked" || string(rec.Data) != "at 7" {
					t.Errorf("record %+v, by %+v", rec, q)
				}
			})
		})
	}
}

// A request that the holder has not read yet when it releases also takes precedence:
// the requester is answered.
func TestReleaseWithBesideARequest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		l := a.MustAcquire("x", nil)
		time.Sleep(time.Second)
		asked := testutil.Go(func() error {
			return b.StepDown(t.Context(), "x", &tenure.StepDownOptions{To: "c", Reason: "asked"})
		})
		synctest.Wait()
		testutil.Want(t, l.ReleaseWith(t.Context(), &tenure.ReleaseOptions{Failed: errWork}), nil)
		testutil.Want(t, <-asked, nil)
		if rec := w.MustRecord("x"); rec.State != driver.Reserved || rec.Owner != "c" || rec.Prev.End != driver.EndHandedOver {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestReleaseWithOnceOnly(t *testing.T) {
	eachTaker(t, func(t *testing.T, w *world, a *machine, l *tenure.Lease) {
		testutil.Want(t, l.Release(t.Context()), nil)
		n := writes(a)
		testutil.Want(t, l.Release(t.Context()), nil)
		testutil.Want(t, l.ReleaseWith(t.Context(), &tenure.ReleaseOptions{Failed: errWork}), nil)
		testutil.Want(t, l.ReleaseWith(t.Context(), &tenure.ReleaseOptions{Data: []byte("late")}), tenure.ErrReleased)
		if rec := w.MustRecord("x"); writes(a) != n || rec.End != driver.EndReleased || len(rec.Data) != 0 {
			t.Errorf("%d writes more, record %+v", writes(a)-n, rec)
		}
	})
}

func TestReleaseWithTooMuch(t *testing.T) {
	eachTaker(t, func(t *testing.T, w *world, _ *machine, l *tenure.Lease) {
		if err := l.ReleaseWith(t.Context(), &tenure.ReleaseOptions{Data: make([]byte, driver.MaxDataLen+1)}); err == nil {
			t.Error("no error")
		}
		testutil.Want(t, l.Check(), nil)
		long := errors.New(strings.Repeat("ä\x00", 5000))
		testutil.Want(t, l.ReleaseWith(t.Context(), &tenure.ReleaseOptions{Failed: long}), nil)
		reason := w.MustRecord("x").Asked.Reason
		if len(reason) != driver.MaxReasonLen || strings.ContainsFunc(reason, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
			t.Errorf("reason of %d bytes: %.40q", len(reason), reason)
		}
	})
	eachTaker(t, func(t *testing.T, w *world, _ *machine, l *tenure.Lease) {
		testutil.Want(t, l.ReleaseWith(t.Context(), &tenure.ReleaseOptions{Failed: errors.New("\x00\n")}), nil)
		if reason := w.MustRecord("x").Asked.Reason; reason == "" {
			t.Error("no reason")
		}
	})
}

// A lost lease ends with its loss, whatever its work returns.
func TestReleaseWithAfterALoss(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		l := a.MustAcquire("x", nil)
		a.Partition()
		next := b.MustAcquire("x", nil)
		a.Faults().SetBlackHole(false)
		late := &tenure.ReleaseOptions{Data: []byte("late"), Failed: errWork}
		testutil.Want(t, l.ReleaseWith(t.Context(), late), tenure.ErrLost)
		rec := w.MustRecord("x")
		if rec.Owner != "b" || rec.State != driver.Held || len(rec.Data) != 0 || rec.Prev.End != driver.EndExpired {
			t.Errorf("record %+v", rec)
		}
		testutil.Want(t, next.Check(), nil)
	})
}

// Under a closing session, a release that records something is a write of its own; the
// session's single write frees the others.
func TestReleaseWithWhileTheSessionCloses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		s := mustOpen(a, nil)
		for i := range 4 {
			l, err := s.Acquire(t.Context(), fmt.Sprint(i), nil)
			testutil.Want(t, err, nil)
			go func() {
				<-l.Context().Done()
				var o tenure.ReleaseOptions
				if i == 2 {
					o = tenure.ReleaseOptions{Data: []byte("at 7"), Failed: errWork}
				}
				_ = l.ReleaseWith(context.WithoutCancel(t.Context()), &o)
			}()
		}
		n := a.Faults().Count(faultstore.OpRelease)
		testutil.Want(t, s.Close(t.Context()), nil)
		time.Sleep(time.Second)
		if more := a.Faults().Count(faultstore.OpRelease) - n; more != 1 {
			t.Errorf("%d releases, want that of the lock that tells something", more)
		}
		if rec := w.MustRecord("2"); rec.End != driver.EndFailed || string(rec.Data) != "at 7" {
			t.Errorf("record %+v", rec)
		}
	})
}

// A release that the store refuses every time is not uncertain.
func TestReleaseThatIsRefusedIsNotUncertain(t *testing.T) {
	for name, tt := range map[string]struct {
		fault  faultstore.Fault
		want   error
		wanted string
	}{
		"refused": {faultstore.Refuse(), tenure.ErrNotReleased, "its record expires by itself within 15s"},
		"unknown": {faultstore.LoseRequest(), tenure.ErrUncertain, ""},
		"hangs":   {faultstore.BlackHole(), tenure.ErrUncertain, ""},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			m := w.Client("a")
			l := m.MustAcquire("x", nil)
			m.Inject(faultstore.OpRelease, 0, 0, tt.fault)
			err := l.Release(t.Context())
			testutil.Want(t, err, tt.want)
			if errors.Is(tt.want, tenure.ErrNotReleased) && errors.Is(err, tenure.ErrUncertain) || !strings.Contains(err.Error(), tt.wanted) {
				t.Errorf("release: %v", err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // one attempt may have been applied
		m := newWorld(t).Client("a")
		l := m.MustAcquire("x", nil)
		m.Inject(faultstore.OpRelease, 3, 1, faultstore.LoseRequest())
		m.Inject(faultstore.OpRelease, 0, 0, faultstore.Refuse())
		testutil.Want(t, l.Release(t.Context()), tenure.ErrUncertain)
	})
}

// If no attempt to write data was applied, the error says so.
func TestSetDataThatIsRefusedIsNotUncertain(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{"refused": faultstore.Refuse(), "unknown": faultstore.LoseRequest()} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			m := w.Client("a")
			l := m.MustAcquire("x", nil)
			m.Faults().Inject(faultstore.Rule{Fault: f})
			err := l.SetData(t.Context(), []byte("d"))
			testutil.Want(t, err, tenure.ErrExpired)
			if errors.Is(err, tenure.ErrUncertain) != (name == "unknown") {
				t.Errorf("set data: %v", err)
			}
		})
	}
}

// Data that a store never writes are refused at once. The lease goes on without them.
func TestSetDataThatTheStoreNeverWrites(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		l := a.MustAcquire("x", &tenure.AcquireOptions{Data: []byte("before")})
		why := driver.Unsupported(errors.New("no ledgers here"))
		remove := a.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return bytes.Contains(c.Next.Data, []byte("ledger")) },
			Fault: faultstore.Fault{Effect: faultstore.Refused, Err: why},
		})
		begun := time.Now()
		err := l.SetData(t.Context(), []byte("a ledger"))
		testutil.Want(t, err, errors.ErrUnsupported)
		if errors.Is(err, tenure.ErrUncertain) || !strings.Contains(err.Error(), "no ledgers here") || time.Since(begun) > 0 {
			t.Errorf("set data, after %v: %v", time.Since(begun), err)
		}
		time.Sleep(10 * lease)
		if err := l.Check(); err != nil {
			t.Errorf("the lease has ended: %v", err)
		}
		testutil.Want(t, l.SetData(t.Context(), []byte("after")), nil)
		remove()
		testutil.Want(t, l.Release(t.Context()), nil)
		if got := string(w.MustRecord("x").Data); got != "after" {
			t.Errorf("data %q", got)
		}
	})
	inWorld(t, func(t *testing.T, w *world) { // one attempt may have been applied
		a := w.Client("a")
		l := a.MustAcquire("x", nil)
		a.Inject(faultstore.OpSetData, 0, 1, faultstore.LoseRequest())
		unsupported := driver.Unsupported(errors.New("not here"))
		a.Inject(faultstore.OpSetData, 0, 0, faultstore.Fault{Effect: faultstore.Refused, Err: unsupported})
		testutil.Want(t, l.SetData(t.Context(), []byte("after")), tenure.ErrUncertain)
	})
}

// Data that the store has refused until the lease was over, so that SetData has
// returned an error, are written neither by a heartbeat while the work drains, nor by
// the release.
func TestSetDataThatWasRefusedIsNeverWritten(t *testing.T) {
	for name, releases := range map[string]bool{"heartbeat": false, "release": true} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.Client("a")
			l := a.MustAcquire("x", &tenure.AcquireOptions{Data: []byte("before")})
			time.Sleep(heartbeat / 30)
			answers := a.Faults().Inject(faultstore.Rule{Fault: faultstore.Refuse()})
			err := l.SetData(t.Context(), []byte("after"))
			if testutil.Want(t, err, tenure.ErrExpired); errors.Is(err, tenure.ErrUncertain) {
				t.Errorf("set data: %v", err)
			}
			answers()
			if !releases {
				time.Sleep(2 * heartbeat)
			}
			_ = l.Release(t.Context())
			if got := string(w.MustRecord("x").Data); got != "before" {
				t.Errorf("data %q", got)
			}
		})
	}
}

// A release whose reply is lost may have stored its data: the error is right about
// them, or says that the outcome is unknown.
func TestReleaseWithLostReplySaysWhatIsTrue(t *testing.T) {
	for name, under := range map[string]bool{"its own lease": false, "under a session that closes": true} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			var l *tenure.Lease
			closed := make(<-chan error)
			retries := faultstore.Fault{Before: time.Second}
			if under {
				s := mustOpen(a, nil)
				l = mustTake(a, s, "x")
				retries = faultstore.Refuse()
				closed = testutil.Go(func() error { return s.Close(t.Context()) })
				<-l.Context().Done()
			} else {
				l = a.MustAcquire("x", nil)
				go func() { _, _ = b.Acquire(t.Context(), "x", nil) }()
				time.Sleep(heartbeat)
			}
			a.Inject(faultstore.OpRelease, 0, 1, faultstore.LoseReply())
			a.Inject(faultstore.OpRelease, 0, 0, retries)
			err := l.ReleaseWith(t.Context(), &tenure.ReleaseOptions{Data: []byte("kept")})
			if got := string(w.MustRecord("x").Data); got != "kept" || err != nil && !errors.Is(err, tenure.ErrUncertain) {
				t.Errorf("data %q; %v", got, err)
			}
			if under {
				testutil.Want(t, <-closed, nil)
			}
		})
	}
}

var errSick = errors.New("queue too long")

// TestHealthEndsTheTenureAsFailed: after so many failures in a row, and not before.
func TestHealthEndsTheTenureAsFailed(t *testing.T) {
	for name, tt := range map[string]struct {
		checks  []error // one by one; the last one again and again
		hangs   bool
		want    time.Duration // 0: never
		returns error
	}{
		"healthy":                {checks: []error{nil}},
		"sick from the start":    {checks: []error{errSick}, want: 3 * time.Second},
		"sick, well, sick":       {checks: []error{errSick, errSick, nil, errSick}, want: 6 * time.Second},
		"sick now and then":      {checks: []error{errSick, nil, errSick, errSick, nil}},
		"hangs":                  {hangs: true, want: 4 * time.Second}, // each until the next is due
		"and its work fails too": {checks: []error{errSick}, want: 3 * time.Second, returns: errWork},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			m := w.Client("a")
			n := 0
			o := &tenure.ElectionOptions{
				HealthPeriod: time.Second,
				Health: func(ctx context.Context, l *tenure.Lease) error {
					testutil.Want(t, l.Check(), nil)
					if tt.hangs {
						<-ctx.Done()
						return ctx.Err()
					}
					n++
					return tt.checks[min(n, len(tt.checks))-1]
				},
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			begun := time.Now()
			err := m.Election("x", o).Run(ctx, func(ctx context.Context, l *tenure.Lease) error {
				<-ctx.Done()
				if tt.want > 0 {
					testutil.Want(t, context.Cause(ctx), tenure.ErrUnhealthy)
					testutil.Want(t, l.Check(), nil)
				}
				if tt.returns != nil {
					return tt.returns
				}
				return ctx.Err()
			})
			rec := w.MustRecord("x")
			if tt.want == 0 {
				testutil.Want(t, err, nil)
				if rec.End != driver.EndReleased || time.Since(begun) != time.Minute {
					t.Errorf("it ended as %q after %v", rec.End, time.Since(begun))
				}
				return
			}
			testutil.Want(t, err, tenure.ErrUnhealthy)
			if tt.returns != nil {
				testutil.Want(t, err, tt.returns)
			} else if errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			if rec.End != driver.EndFailed || rec.Asked == nil || time.Since(begun) != tt.want {
				t.Errorf("it ended as %q after %v, want %v", rec.End, time.Since(begun), tt.want)
			}
		})
	}
}

// TestHealthThatIgnoresItsContext: the check never runs twice at once, and does not end
// the term; Run waits for it.
func TestHealthThatIgnoresItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		asked := 0
		o := &tenure.ElectionOptions{HealthPeriod: time.Second, HealthFailures: 1, Health: func(context.Context, *tenure.Lease) error {
			asked++
			time.Sleep(40 * time.Second)
			return nil
		}}
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		begun := time.Now()
		testutil.Want(t, m.Election("x", o).Run(ctx, func(ctx context.Context, l *tenure.Lease) error {
			<-ctx.Done()
			testutil.Want(t, l.Check(), nil)
			return ctx.Err()
		}), nil)
		if took := time.Since(begun); asked != 1 || took != 41*time.Second {
			t.Errorf("asked %d times; Run returned after %v", asked, took)
		}
	})
}

// TestHealthThatPanics: a panic of the check is not recovered. It ends the program, here
// a child process.
func TestHealthThatPanics(t *testing.T) {
	if os.Getenv("TENURE_TEST_HEALTH_PANICS") != "" {
		client, err := tenure.New(memstore.New(), &tenure.Options{Owner: "a"})
		if err != nil {
			t.Fatal(err)
		}
		o := &tenure.ElectionOptions{HealthPeriod: time.Millisecond, Health: func(context.Context, *tenure.Lease) error { panic("the check itself") }}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		_ = client.Election("x", o).Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
			<-ctx.Done()
			return nil
		})
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), program, "-test.run=^TestHealthThatPanics$")
	child.Env = append(os.Environ(), "TENURE_TEST_HEALTH_PANICS=1")
	out, err := child.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), "panic: the check itself") {
		t.Errorf("the program ended with %v:\n%s", err, out)
	}
}

func TestHealthIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		for _, o := range []tenure.ElectionOptions{{HealthPeriod: -1}, {HealthFailures: -1}} {
			if err := m.Election("x", &o).Run(t.Context(), noWork); err == nil {
				t.Errorf("%+v is taken", o)
			}
		}
	})
}

// TestWorkThatFailsByItselfEndsAsFailed: work that was asked to stop does not.
func TestWorkThatFailsByItselfEndsAsFailed(t *testing.T) {
	for name, tt := range map[string]struct {
		work   func(ctx context.Context, stop func(), a, b *machine, l *tenure.Lease) error
		end    driver.EndReason
		reason string
	}{
		"returns an error": {
			func(context.Context, func(), *machine, *machine, *tenure.Lease) error { return errWork },
			driver.EndFailed, "work failed",
		},
		"panics": {
			func(context.Context, func(), *machine, *machine, *tenure.Lease) error { panic("the work itself") },
			driver.EndFailed, "the work panicked, or ended its goroutine",
		},
		"ends its goroutine": {
			func(context.Context, func(), *machine, *machine, *tenure.Lease) error { runtime.Goexit(); return nil },
			driver.EndFailed, "the work panicked, or ended its goroutine",
		},
		"returns nil": {
			func(context.Context, func(), *machine, *machine, *tenure.Lease) error { return nil },
			driver.EndReleased, "",
		},
		"was told to stop by its context": {
			func(_ context.Context, stop func(), _, _ *machine, _ *tenure.Lease) error { stop(); return errWork },
			driver.EndReleased, "",
		},
		"panics when it was told to stop": {
			func(_ context.Context, stop func(), _, _ *machine, _ *tenure.Lease) error {
				stop()
				panic("the work itself")
			},
			driver.EndReleased, "",
		},
		"its client is closed": {
			func(ctx context.Context, _ func(), a, _ *machine, _ *tenure.Lease) error {
				go func() { _ = a.Close(context.WithoutCancel(ctx)) }()
				<-ctx.Done()
				return errWork
			},
			driver.EndReleased, "",
		},
		"asked to step down": {
			func(ctx context.Context, _ func(), _, b *machine, _ *tenure.Lease) error {
				go func() {
					_ = b.StepDown(context.WithoutCancel(ctx), "x", because("maintenance"))
				}()
				<-ctx.Done()
				return errWork
			},
			driver.EndSteppedDown, "maintenance",
		},
		"lost": {
			func(ctx context.Context, _ func(), a, _ *machine, _ *tenure.Lease) error {
				a.Partition()
				<-ctx.Done()
				a.Faults().SetBlackHole(false)
				return errWork
			},
			driver.EndExpired, "",
		},
	} {
		for by, run := range runners {
			inWorldRun(t, by+", "+name, func(t *testing.T, w *world) {
				var log bytes.Buffer
				logged := func(o *tenure.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
				a, b := w.Client("a", logged), w.Client("b")
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() {
						if r := recover(); strings.HasPrefix(name, "panics") != (r == "the work itself") {
							t.Errorf("recovered %v", r)
						}
					}()
					_ = run(ctx, a, func(ctx context.Context, l *tenure.Lease) error {
						if l.Token() > 1 {
							return nil // campaigned again
						}
						time.Sleep(time.Second)
						return tt.work(ctx, stop, a, b, l)
					})
				}()
				<-ended
				rec := w.MustRecord("x")
				end, asked := rec.End, rec.Asked
				if rec.Token > 1 {
					end, asked = rec.Prev.End, rec.Prev.Asked
				}
				reason := ""
				if asked != nil {
					reason = asked.Reason
				}
				if end != tt.end || reason != tt.reason {
					t.Errorf("it ended as %q for %q, want %q for %q", end, reason, tt.end, tt.reason)
				}
				_ = a.Close(t.Context()) // the work may have closed it; its events are told then
				released := a.Events(tenure.EventReleased)
				if len(released) == 0 {
					return // its lease ran out before
				}
				e, failed := released[0], tt.end == driver.EndFailed
				if told := e.End == tenure.EndFailed && e.Err != nil && e.Err.Error() == tt.reason; told != failed || !failed && e.Err != nil {
					t.Errorf("the event tells of end %q: %v", e.End, e.Err)
				}
				warned := strings.Contains(log.String(), `level=WARN msg="tenure: released"`) && strings.Contains(log.String(), "end=failed error=")
				if warned != failed {
					t.Errorf("logged:\n%s", log.String())
				}
			})
		}
	}
}
