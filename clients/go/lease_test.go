// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/internal/testutil"
)

const usable = 10647 * ms // of a lease of 15 s, by a clock that is slewed

var (
	_ fence.Grant = (*Lease)(nil)
	_ fence.Grant = (*SlotLease)(nil)
	_ fence.Grant = (*RWLease)(nil)
)

func TestALeaseIsHeldByHeartbeats(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		l := w.must(c.Acquire(t.Context(), "a", &AcquireOptions{Data: []byte("mine")}))
		if l.Name() != "a" || l.Token() != 1 || l.Owner() != "web-7" || string(l.Data()) != "mine" || l.Remaining() != usable {
			t.Errorf("%q, token %d, owner %q, data %q, %v", l.Name(), l.Token(), l.Owner(), l.Data(), l.Remaining())
		}
		if n := len(w.calls("/v1/heartbeat")); n != 0 {
			t.Errorf("%d heartbeats for a grant that counts", n)
		}
		_, err := c.TryAcquire(t.Context(), "a", nil)
		var busy *HeldError
		if !errors.As(err, &busy) || !errors.Is(err, ErrHeld) || busy.Owner != "web-7" || busy.Token != 1 || busy.FreeIn <= 0 {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Hour)
		testutil.Want(t, l.Check(), nil)
		if left := l.Remaining(); left < 7*time.Second {
			t.Errorf("%v remain", left)
		}
		if n := len(w.calls("/v1/heartbeat")); n < 1190 || n > 1201 {
			t.Errorf("%d heartbeats in an hour", n)
		}
		testutil.Want(t, l.ReleaseWith(t.Context(), &ReleaseOptions{Data: []byte("left"), Failed: errors.New("disk\nfull")}), nil)
		w.ends(l, ErrReleased)
		testutil.Want(t, l.Release(t.Context()), nil) // again
		st := testutil.Must(w.operator.Status(t.Context(), "a"))(t)
		if st.End != tenure.EndFailed || st.EndedBy.Reason != "disk full" {
			t.Errorf("the record says %q, %+v", st.End, st.EndedBy)
		}
		l = w.must(c.TryAcquire(t.Context(), "a", nil))
		if l.Token() != 2 || string(l.Data()) != "left" {
			t.Errorf("token %d, data %q", l.Token(), l.Data())
		}
		testutil.Want(t, l.Release(t.Context()), nil)
	})
}

// The history is kept for the acquires that ask for it, each for the term before its own.
func TestTheHistory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		for _, keeps := range []bool{true, false} {
			name := fmt.Sprint("history ", keeps)
			for range 5 {
				l := w.must(c.Acquire(t.Context(), name, &AcquireOptions{History: keeps}))
				testutil.Want(t, l.Release(t.Context()), nil)
				time.Sleep(time.Second) // the service writes it beside the grant
			}
			known := 0
			for _, term := range testutil.Must(w.operator.History(t.Context(), name))(t) {
				if term.End == tenure.EndReleased {
					known++
				}
			}
			want := 2 // the record has the last term, and the one before
			if keeps {
				want = 5
			}
			if known != want {
				t.Errorf("%s: %d terms are known, want %d", name, known, want)
			}
		}
	})
}

// A grant counts from before its acquire was sent; if it came late it is no lease before a heartbeat is confirmed.
func TestAGrantCounts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		w.servers[0].next("/v1/acquire", late(time.Second))
		l := w.must(c.TryAcquire(t.Context(), "a", nil))
		if l.Remaining() != usable-time.Second {
			t.Errorf("%v remain", l.Remaining())
		}
		testutil.Want(t, l.Release(t.Context()), nil)
		w.servers[0].next("/v1/acquire", late(1500*ms))
		w.servers[0].next("/v1/heartbeat", late(700*ms))
		l2 := w.must(c.TryAcquire(t.Context(), "b", nil))
		if l2.Remaining() != usable-700*ms || len(w.calls("/v1/heartbeat")) != 1 {
			t.Errorf("%v remain, after %d heartbeats", l2.Remaining(), len(w.calls("/v1/heartbeat")))
		}
		testutil.Want(t, l2.Release(t.Context()), nil)
		// The acquire that is sent again counts from its own sending.
		w.servers[0].next("/v1/acquire", dropped)
		w.servers[1].next("/v1/acquire", late(time.Second))
		l3 := w.must(c.TryAcquire(t.Context(), "c", nil))
		if l3.Remaining() != usable-time.Second {
			t.Errorf("%v remain", l3.Remaining())
		}
		testutil.Want(t, l3.Release(t.Context()), nil)
	})
}

// A heartbeat without an answer is sent again as it was, to another server, and counts from its first sending.
func TestAnUnansweredHeartbeat(t *testing.T) {
	for name, f := range map[string]fault{
		"dropped": dropped, "answer lost": answerLost, "502": badGateway, "hangs": hangs,
		"503": problemOf("unknown", 503), "429": problemOf("limited", 429), "401": problemOf("unauthenticated", 401),
		"HTML": edited(func(string) string { return "<h1>hello</h1>" }), "a proxy's 410": func(*http.Request, func() (*http.Response, error)) (*http.Response, error) {
			return says(410, "text/html", "<h1>Gone</h1>"), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c, _ := w.client()
				l := w.must(c.Acquire(t.Context(), "a", nil))
				w.servers[0].next("/v1/heartbeat", f)
				w.servers[1].next("/v1/heartbeat", f, f)
				time.Sleep(10 * time.Second)
				testutil.Want(t, l.Check(), nil)
				heartbeats := w.calls("/v1/heartbeat")
				again := 0
				for _, h := range heartbeats {
					if h["next"] == heartbeats[0]["next"] {
						again++
					}
					if (h["next"] == heartbeats[0]["next"]) != (h["after"] == heartbeats[0]["after"]) {
						t.Errorf("heartbeat %v after %v", h, heartbeats[0])
					}
				}
				if again < 2 {
					t.Errorf("heartbeats %v", heartbeats)
				}
				testutil.Want(t, l.Release(t.Context()), nil)
			})
		})
	}
}

func TestARepeatedHeartbeatCountsFromItsFirstSending(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		l := w.must(c.Acquire(t.Context(), "a", nil))
		w.both("/v1/heartbeat", answerLost) // the first is sent after 3 s
		time.Sleep(8 * time.Second)
		w.both("/v1/heartbeat", nil)
		time.Sleep(time.Second - ms) // within which it is confirmed; the next one follows at once
		h := w.calls("/v1/heartbeat")
		w.both("/v1/heartbeat", dropped)
		var again int
		for _, one := range h {
			if one["next"] == h[0]["next"] {
				again++
			}
		}
		if again < 5 {
			t.Errorf("the heartbeat was sent %d times", again)
		}
		if left := l.Remaining(); left > usable {
			t.Errorf("%v remain", left)
		}
		w.both("/v1/heartbeat", nil)
		testutil.Want(t, l.Release(t.Context()), nil)
	})
}

// The work ends at the deadline, which needs no network and no answer.
func TestExpiry(t *testing.T) {
	for name, f := range map[string]fault{"dropped": dropped, "hangs": hangs, "answers lost": answerLost} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c, _ := w.client()
				l := w.must(c.Acquire(t.Context(), "a", nil))
				w.both("/v1/heartbeat", f)
				time.Sleep(usable - ms)
				testutil.Want(t, errors.Join(l.Check(), l.Context().Err()), nil)
				time.Sleep(ms)
				w.ends(l, ErrExpired)
				testutil.Want(t, l.Check(), ErrLost)
				w.both("/v1/heartbeat", nil)
				time.Sleep(time.Minute)
				w.ends(l, ErrExpired) // for good
				testutil.Want(t, l.Release(t.Context()), ErrExpired)
			})
		})
	}
}

// An answer that comes after the deadline revives nothing.
func TestALateAnswer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, ahead := w.client()
		l := w.must(c.Acquire(t.Context(), "a", nil))
		w.both("/v1/heartbeat", late(400*ms))
		time.Sleep(3*time.Second + 200*ms) // the heartbeat is carried out, and not answered yet
		ahead.Add(int64(usable))           // a suspend
		time.Sleep(time.Second)
		w.ends(l, ErrExpired)
		testutil.Want(t, l.Release(t.Context()), ErrExpired)
	})
}

// A suspend counts: the check sees it at once, and the context within a second.
func TestASuspend(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, ahead := w.client()
		l := w.must(c.Acquire(t.Context(), "a", nil))
		synctest.Wait()
		ahead.Add(int64(usable))
		testutil.Want(t, l.Check(), ErrExpired)
		testutil.Want(t, l.Context().Err(), nil)
		time.Sleep(time.Second)
		w.ends(l, ErrExpired)
		_ = l.Release(t.Context())
	})
}

func TestALoss(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		l := w.must(c.Acquire(t.Context(), "a", nil))
		w.servers[0].next("/v1/heartbeat", problemOf("lost", 410))
		time.Sleep(3 * time.Second)
		w.ends(l, ErrSuperseded)
		testutil.Want(t, l.Check(), ErrLost)
		time.Sleep(time.Minute)
		if n := len(w.calls("/v1/heartbeat")); n != 1 {
			t.Errorf("%d heartbeats", n)
		}
		testutil.Want(t, l.Release(t.Context()), ErrLost)
		if n := len(w.calls("/v1/release")); n != 0 {
			t.Errorf("%d releases of what is lost", n)
		}
	})
}

// A request ends the work, and the lock is held meanwhile, for the stop timeout at most.
func TestARequest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client(func(o *Options) { o.StopTimeout = 5 * time.Second })
		ask := func() <-chan error {
			return testutil.Go(func() error {
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				return w.operator.StepDown(ctx, "a", &tenure.StepDownOptions{Reason: "a deploy"})
			})
		}
		l := w.must(c.Acquire(t.Context(), "a", nil))
		asked := ask()
		<-l.Context().Done()
		var q *StepDownError
		if !errors.As(context.Cause(l.Context()), &q) || q.By == "" || q.Reason != "a deploy" || !errors.Is(q, ErrSteppedDown) {
			t.Errorf("asked %v", context.Cause(l.Context()))
		}
		testutil.Want(t, l.Check(), nil)
		testutil.Want(t, l.Release(t.Context()), nil)
		testutil.Want(t, <-asked, nil)

		l = w.must(c.Acquire(t.Context(), "a", nil))
		asked = ask()
		<-l.Context().Done()
		time.Sleep(5*time.Second + ms)
		n := len(w.calls("/v1/heartbeat"))
		testutil.Want(t, l.Check(), nil)
		time.Sleep(time.Minute)
		testutil.Want(t, l.Check(), ErrExpired)
		if more := len(w.calls("/v1/heartbeat")) - n; more != 0 {
			t.Errorf("%d heartbeats after the stop timeout", more)
		}
		testutil.Want(t, l.Release(t.Context()), ErrExpired)
		testutil.Want(t, <-asked, tenure.ErrUnanswered)
	})
}

// A release ends the right at once, and is repeated until it is answered, with the newest beat first.
func TestRelease(t *testing.T) {
	for name, f := range map[string]fault{"answer lost": answerLost, "502": badGateway, "doubled": doubled, "dropped": dropped} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c, _ := w.client()
				l := w.must(c.Acquire(t.Context(), "a", nil))
				w.servers[0].next("/v1/release", f)
				w.servers[1].next("/v1/release", f)
				testutil.Want(t, l.Release(t.Context()), nil)
				w.ends(l, ErrReleased)
				other := w.must(c.TryAcquire(t.Context(), "a", nil))
				testutil.Want(t, other.Release(t.Context()), nil)
			})
		})
	}
}

func TestAReleaseWithoutAnAnswer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		l := w.must(c.Acquire(t.Context(), "a", nil))
		w.both("/v1/release", dropped)
		brief, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		testutil.Want(t, testutil.Within(t, time.Second, time.Second, func() error { return l.Release(brief) }), context.DeadlineExceeded)
		w.ends(l, ErrReleased)
		err := testutil.Within(t, 13*time.Second, 16*time.Second, func() error { return l.Release(brief) }) // brief is over
		testutil.Want(t, err, ErrUncertain)
	})
}

// A heartbeat that is under way may be applied: the release names it first, then the confirmed one.
func TestAReleaseWithAHeartbeatUnderWay(t *testing.T) {
	for name, f := range map[string]fault{"applied": answerLost, "not applied": hangs} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c, _ := w.client()
				l := w.must(c.Acquire(t.Context(), "a", nil))
				w.both("/v1/heartbeat", f)
				time.Sleep(3*time.Second + ms)
				testutil.Want(t, testutil.Within(t, 0, 100*ms, func() error { return l.Release(t.Context()) }), nil)
				h, r := w.calls("/v1/heartbeat"), w.calls("/v1/release")
				if r[0]["after"] != h[0]["next"] {
					t.Errorf("it names %v after %v", r, h)
				}
				n := len(h)
				time.Sleep(time.Minute)
				if len(w.calls("/v1/heartbeat")) != n {
					t.Error("heartbeats after the release")
				}
				other := w.must(c.TryAcquire(t.Context(), "a", nil))
				testutil.Want(t, other.Release(t.Context()), nil)
			})
		})
	}
}

func TestRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		broken := errors.New("broken")
		run := func(work func(context.Context, *Lease) error) error { return c.Run(t.Context(), "a", nil, work) }
		testutil.Want(t, run(func(_ context.Context, l *Lease) error { return l.Check() }), nil)
		testutil.Want(t, run(func(context.Context, *Lease) error { return broken }), broken)
		if st := testutil.Must(w.operator.Status(t.Context(), "a"))(t); st.End != tenure.EndFailed || st.EndedBy.Reason != "broken" {
			t.Errorf("the record says %q, %+v", st.End, st.EndedBy)
		}
		func() {
			defer func() { _ = recover() }()
			_ = run(func(context.Context, *Lease) error { panic("at once") })
		}()
		if st := testutil.Must(w.operator.Status(t.Context(), "a"))(t); st.End != tenure.EndFailed {
			t.Errorf("the record says %q", st.End)
		}
		err := run(func(ctx context.Context, _ *Lease) error {
			w.both("/v1/heartbeat", dropped)
			<-ctx.Done()
			w.both("/v1/heartbeat", nil)
			return broken
		})
		if !errors.Is(err, ErrExpired) || !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		err = run(func(ctx context.Context, _ *Lease) error {
			go func() { _ = w.operator.StepDown(t.Context(), "a", &tenure.StepDownOptions{Reason: "a deploy"}) }()
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, ErrSteppedDown) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		testutil.Want(t, run(func(ctx context.Context, _ *Lease) error {
			go func() { _ = w.operator.StepDown(t.Context(), "a", &tenure.StepDownOptions{Reason: "a deploy"}) }()
			<-ctx.Done()
			return nil
		}), nil)
		synctest.Wait()
	})
}

func TestWaiting(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		other, _ := w.client(func(o *Options) { o.Owner = "web-8" })
		l := w.must(c.Acquire(t.Context(), "a", nil))
		var met []string
		took := testutil.Go(func() error {
			l, err := other.Acquire(t.Context(), "a", &AcquireOptions{Waiting: func(h *HeldError) { met = append(met, h.Owner) }})
			if err != nil {
				return err
			}
			if l.Check() != nil || l.Remaining() > usable {
				return errors.New("not held")
			}
			return l.Release(t.Context())
		})
		time.Sleep(50 * time.Second)
		testutil.Pending(t, "the acquire", took)
		testutil.Want(t, l.Release(t.Context()), nil)
		begun := time.Now()
		testutil.Want(t, <-took, nil)
		if time.Since(begun) > 2*time.Second || !reflect.DeepEqual(met, []string{"web-7"}) {
			t.Errorf("it waited for %q, and %v after the release", met, time.Since(begun))
		}
		streams := 0
		for _, s := range w.servers {
			for _, sent := range s.sent {
				if strings.Contains(sent.accept, streamType) {
					streams++
				}
			}
		}
		if streams < 3 {
			t.Errorf("%d streams", streams)
		}
	})
}

func TestTheWaitEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		l := w.must(c.Acquire(t.Context(), "a", nil))
		err := testutil.Within(t, 29*time.Second, 31*time.Second, func() error {
			_, err := c.Acquire(t.Context(), "a", &AcquireOptions{Wait: 30 * time.Second})
			return err
		})
		var busy *HeldError
		if !errors.As(err, &busy) || busy.Owner != "web-7" {
			t.Errorf("got %v", err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		err = testutil.Within(t, 30*time.Second, 30*time.Second, func() error { _, err := c.Acquire(ctx, "a", nil); return err })
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrHeld) {
			t.Errorf("got %v", err)
		}
		gone, giveUp := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { giveUp(errWire) })
		err = testutil.Within(t, time.Second, time.Second, func() error { _, err := c.Acquire(gone, "a", nil); return err })
		if !errors.Is(err, context.Canceled) || !errors.Is(err, errWire) || errors.Is(err, ErrHeld) {
			t.Errorf("got %v", err)
		}
		testutil.Want(t, l.Release(t.Context()), nil)
		time.Sleep(time.Second)
		w.release(w.must(c.TryAcquire(t.Context(), "a", nil))) // nobody waits
	})
}

// A grant for a caller that does not wait any more is given back.
func TestAGrantThatNobodyWaitsFor(t *testing.T) {
	for name, path := range map[string]string{"granted": "/v1/acquire", "first heartbeat": "/v1/heartbeat"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c, _ := w.client()
				w.servers[0].next("/v1/acquire", edited(func(s string) string { return strings.Replace(s, "usable_ms", "unusable_ms", 1) }))
				if path == "/v1/acquire" {
					w.servers[0].once[path] = []fault{edited(func(s string) string { time.Sleep(2 * time.Second); return s })}
				} else {
					w.both(path, hangs)
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				_, err := c.Acquire(ctx, "a", nil)
				testutil.Want(t, err, context.DeadlineExceeded)
				synctest.Wait()
				w.release(w.must(c.TryAcquire(t.Context(), "a", nil)))
			})
		})
	}
}

// A grant that is lost before its first heartbeat is no lock: it is acquired again.
func TestALostGrant(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		w.servers[0].next("/v1/acquire", late(2*time.Second))
		w.servers[0].next("/v1/heartbeat", problemOf("lost", 410))
		l := w.must(c.Acquire(t.Context(), "a", nil))
		testutil.Want(t, l.Release(t.Context()), nil)
	})
}

func TestNoAnswer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		c, _ := w.client(func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		w.servers[0].kill()
		w.release(w.must(c.TryAcquire(t.Context(), "a", nil))) // at the other one
		w.servers[1].kill()
		_, err := c.TryAcquire(t.Context(), "a", nil)
		testutil.Want(t, err, ErrUnavailable)
		_, err = c.Acquire(t.Context(), "a", &AcquireOptions{Wait: time.Minute})
		testutil.Want(t, err, ErrUnavailable)
		if n := strings.Count(log.String(), "no answer"); n != 1 || !strings.Contains(log.String(), "lock=a") {
			t.Errorf("the log says %s", &log)
		}
	})
}

func TestRefusals(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client(func(o *Options) { o.Token = "another" })
		_, err := c.Acquire(t.Context(), "a", nil)
		var p *ProblemError
		if !errors.As(err, &p) || p.Kind != "unauthenticated" || p.Status != 401 || p.Detail == "" {
			t.Errorf("got %v", err)
		}
		c, _ = w.client()
		for _, o := range []*AcquireOptions{{Wait: -1}, {Data: make([]byte, 1<<20)}} {
			_, err = c.Acquire(t.Context(), "a", o)
			testutil.Want(t, err, ErrInvalid)
		}
		_, err = c.Acquire(t.Context(), " a", nil)
		testutil.Want(t, err, ErrInvalid)
		testutil.Want(t, c.Close(t.Context()), nil)
		_, err = c.Acquire(t.Context(), "a", nil)
		testutil.Want(t, err, ErrClosed)
	})
	for _, o := range []Options{
		{},
		{Servers: []string{"ftp://a"}},
		{Servers: []string{"http://"}},
		{Servers: []string{"http://a?b"}},
		{Servers: []string{"unix:a"}},
		{Servers: []string{"http://a"}, Token: "two words"},
		{Servers: []string{"http://a"}, Token: "a", TokenFile: "b"},
		{Servers: []string{"http://a"}, StopTimeout: -1},
		{Servers: []string{"http://a"}, Owner: "a\n"},
	} {
		_, err := New(o)
		testutil.Want(t, err, ErrInvalid)
	}
}

// The client says by which clock it counts, and does without if the service is older.
func TestTheClockIsNamed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		c.raw = true
		l := w.must(c.Acquire(t.Context(), "a", nil))
		if l.Remaining() < 12*time.Second || w.calls("/v1/acquire")[0]["clock"] != "raw" {
			t.Errorf("%v remain", l.Remaining())
		}
		testutil.Want(t, l.Release(t.Context()), nil)
		w.servers[0].next("/v1/acquire", problemOf("bad-request", 400))
		l = w.must(c.Acquire(t.Context(), "a", nil))
		if l.Remaining() != usable || w.calls("/v1/acquire")[2]["clock"] != nil {
			t.Errorf("%v remain", l.Remaining())
		}
		testutil.Want(t, l.Release(t.Context()), nil)
	})
}

// One server dies, and the lock lives on by the other.
func TestAServerDies(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		l := w.must(c.Acquire(t.Context(), "a", nil))
		for i := range 4 {
			time.Sleep(20 * time.Second)
			w.servers[i%2].always("/v1/heartbeat", hangs)
			w.servers[1-i%2].always("/v1/heartbeat", nil)
		}
		time.Sleep(20 * time.Second)
		testutil.Want(t, errors.Join(l.Check(), l.Release(t.Context())), nil)
	})
}
