// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
)

// session opens a session of a client whose clock can be moved.
func (w *world) session(edit ...func(*Options)) (*Session, *atomic.Int64) {
	w.Helper()
	c, ahead := w.client(edit...)
	s := testutil.Must(c.OpenSession(w.Context()))(w.T)
	testutil.Want(w.T, s.Check(), nil)
	return s, ahead
}

func (w *world) close(s *Session) {
	w.Helper()
	testutil.Want(w.T, s.Close(w.Context()), nil)
}

func TestASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, _ := w.session()
		if s.Remaining() != usable {
			t.Errorf("%v remain", s.Remaining())
		}
		a, b := w.must(s.Acquire(t.Context(), "a", nil)), w.must(s.TryAcquire(t.Context(), "b", nil))
		_, err := s.TryAcquire(t.Context(), "a", nil)
		testutil.Want(t, err, ErrHeld)
		time.Sleep(time.Hour)
		testutil.Want(t, errors.Join(a.Check(), b.Check(), s.Check()), nil)
		if n := len(w.calls("/v1/heartbeat")); n != 0 {
			t.Errorf("%d heartbeats of locks", n)
		}
		if n := len(w.calls("/v1/sessions/heartbeat")); n < 1190 || n > 1202 {
			t.Errorf("%d heartbeats of the session", n)
		}
		if st := testutil.Must(w.operator.Status(t.Context(), "a"))(t); st.Session != s.ID() || st.Owner != "web-7" {
			t.Errorf("the record says %+v", st)
		}
		testutil.Want(t, a.ReleaseWith(t.Context(), &ReleaseOptions{Data: []byte("left")}), nil)
		w.ends(a, ErrReleased)
		other, _ := w.client()
		l := w.must(other.TryAcquire(t.Context(), "a", nil))
		if l.Token() != 2 || string(l.Data()) != "left" {
			t.Errorf("token %d, data %q", l.Token(), l.Data())
		}
		w.close(s)
		w.ends(b, ErrSessionClosed)
		testutil.Want(t, s.Check(), ErrSessionClosed)
		testutil.Want(t, context.Cause(s.Context()), ErrSessionClosed)
		testutil.Want(t, b.Release(t.Context()), nil)
		w.release(w.must(other.TryAcquire(t.Context(), "b", nil)))
		_, err = s.Acquire(t.Context(), "b", nil)
		testutil.Want(t, err, ErrSessionClosed)
		w.close(s) // again
		w.release(l)
	})
}

// The first heartbeat counts only if it is answered within usable_ms of the sending of the opening: after a longer time
// the session may be a late duplicate's. Another one is opened then.
func TestALateFirstHeartbeatOfASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, ahead := w.client()
		w.servers[0].next("/v1/sessions/open", func(_ *http.Request, carry func() (*http.Response, error)) (*http.Response, error) {
			r, err := carry()
			ahead.Add(int64(usable)) // a suspend
			return r, err
		})
		s := testutil.Must(c.OpenSession(t.Context()))(t)
		if n := len(w.calls("/v1/sessions/open")); n != 2 {
			t.Errorf("%d openings", n)
		}
		testutil.Want(t, s.Check(), nil)
		w.close(s)
	})
}

// The deadline counts from the first sending of the heartbeat, for all locks of the session, and never moves back.
func TestALostSession(t *testing.T) {
	for name, f := range map[string]fault{"dropped": dropped, "answers lost": answerLost, "410": problemOf("lost", 410), "503": problemOf("unknown", 503)} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				s, _ := w.session()
				a, b := w.must(s.Acquire(t.Context(), "a", nil)), w.must(s.Acquire(t.Context(), "b", nil))
				w.both("/v1/sessions/heartbeat", f)
				why := ErrExpired
				if name == "410" {
					why = ErrSuperseded
					time.Sleep(3 * time.Second)
				} else {
					time.Sleep(usable - ms)
					testutil.Want(t, errors.Join(a.Check(), b.Check(), a.Context().Err()), nil)
					time.Sleep(ms)
				}
				w.ends(a, why)
				w.ends(b, why)
				w.both("/v1/sessions/heartbeat", nil)
				time.Sleep(time.Minute)
				testutil.Want(t, s.Check(), why)
				testutil.Want(t, s.Close(t.Context()), ErrLost)
				testutil.Want(t, a.Release(t.Context()), ErrLost)
				_, err := s.Acquire(t.Context(), "c", nil)
				testutil.Want(t, err, ErrSessionClosed)
				testutil.Want(t, err, ErrLost)
			})
		})
	}
}

func TestASuspendEndsASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, ahead := w.session()
		a := w.must(s.Acquire(t.Context(), "a", nil))
		ahead.Add(int64(usable))
		testutil.Want(t, a.Check(), ErrExpired)
		time.Sleep(time.Second)
		w.ends(a, ErrExpired)
		testutil.Want(t, s.Close(t.Context()), ErrExpired)
	})
}

// Between acquire and attach the program has no lease; an attachment without an answer is sent again unchanged.
func TestAnUnansweredAttachment(t *testing.T) {
	for name, f := range map[string]fault{
		"dropped": dropped, "answer lost": answerLost, "502": badGateway, "doubled": doubled, "503": problemOf("unknown", 503),
		"one of them is unknown": edited(func(text string) string {
			return strings.Replace(text, `"asked":null`, `"asked":null,"problem":{"type":"urn:tenure:problem:unknown","status":503}`, 1)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				s, _ := w.session()
				w.servers[0].next("/v1/sessions/attach", f, f)
				w.servers[1].next("/v1/sessions/attach", f, f)
				a := w.must(s.Acquire(t.Context(), "a", &AcquireOptions{Wait: time.Minute}))
				calls := w.calls("/v1/sessions/attach")
				for _, again := range calls {
					if fmt.Sprint(again) != fmt.Sprint(calls[0]) {
						t.Errorf("%v, then %v", calls[0], again)
					}
				}
				if name != "doubled" && len(calls) < 3 {
					t.Errorf("%d attachments", len(calls))
				}
				time.Sleep(time.Minute)
				testutil.Want(t, a.Check(), nil)
				w.release(a)
				w.close(s)
			})
		})
	}
}

// A session that ends before the attachment is answered holds nothing, whatever the grant said.
func TestASessionThatEndsWhileALockIsAttached(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, _ := w.session()
		w.both("/v1/sessions/attach", answerLost)
		w.both("/v1/sessions/heartbeat", dropped)
		_, err := s.Acquire(t.Context(), "a", nil)
		testutil.Want(t, err, ErrSessionClosed)
		testutil.Want(t, err, ErrExpired)
		testutil.Want(t, s.Close(t.Context()), ErrExpired)
	})
}

// A lock whose grant was freed before it was attached is acquired again.
func TestAnAttachmentThatIsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, _ := w.session()
		w.servers[0].next("/v1/sessions/attach", func(q *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
			return says(200, jsonType, `{"results": [{"name": "a", "asked": null, "problem": {"type": "urn:tenure:problem:lost", "status": 410}}]}`), nil
		})
		released := make(chan struct{})
		go func() { // the grant, which the service has not freed yet
			defer close(released)
			time.Sleep(leaseTime)
		}()
		a := w.must(s.Acquire(t.Context(), "a", nil))
		if a.Token() != 2 {
			t.Errorf("token %d", a.Token())
		}
		<-released
		w.close(s)
	})
}

// A caller that gives up while a lock is attached leaves no lock behind.
func TestAnAcquireUnderASessionThatIsGivenUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, _ := w.session()
		w.both("/v1/sessions/attach", answerLost)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := s.Acquire(ctx, "a", nil)
		testutil.Want(t, err, context.DeadlineExceeded)
		synctest.Wait()
		other, _ := w.client()
		w.release(w.must(other.TryAcquire(t.Context(), "a", nil)))
		testutil.Want(t, s.Check(), nil)
		w.close(s)
	})
}

// A request ends a single lock, and the session says that it needs nothing more once the lock is released.
func TestARequestForALockOfASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, _ := w.session()
		a, b := w.must(s.Acquire(t.Context(), "a", nil)), w.must(s.Acquire(t.Context(), "b", nil))
		asked := testutil.Go(func() error {
			return w.operator.StepDown(t.Context(), "a", &tenure.StepDownOptions{Reason: "a deploy"})
		})
		<-a.Context().Done()
		testutil.Want(t, context.Cause(a.Context()), ErrSteppedDown)
		time.Sleep(7 * time.Second)
		testutil.Want(t, errors.Join(a.Check(), b.Check(), b.Context().Err()), nil)
		testutil.Pending(t, "the request", asked)
		for _, h := range w.calls("/v1/sessions/heartbeat") {
			if h["answered"] != nil {
				t.Errorf("the heartbeat says %v before the release", h)
			}
		}
		w.release(a)
		testutil.Want(t, <-asked, nil)
		// The same heartbeat again names the same requests.
		w.both("/v1/sessions/heartbeat", answerLost)
		time.Sleep(4 * time.Second)
		w.both("/v1/sessions/heartbeat", nil)
		time.Sleep(5 * time.Second)
		named := map[any][]string{}
		for _, h := range w.calls("/v1/sessions/heartbeat") {
			named[h["next"]] = append(named[h["next"]], fmt.Sprint(h["answered"]))
		}
		var said int
		for next, all := range named {
			for _, one := range all {
				if one != all[0] {
					t.Errorf("heartbeat %v says %q", next, all)
				}
			}
			if all[0] != "<nil>" {
				said++
			}
		}
		if said != 1 {
			t.Errorf("%d heartbeats say what needs nothing more: %v", said, named)
		}
		w.close(s)
		w.ends(b, ErrSessionClosed)
	})
}

// A request for a lock that the client does not hold needs nothing.
func TestARequestForAnotherLock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, _ := w.session()
		a := w.must(s.Acquire(t.Context(), "a", nil))
		w.servers[0].next("/v1/sessions/heartbeat", edited(func(text string) string {
			return strings.Replace(text, `"requests":[]`, `"requests":[{"id":"q1","name":"z","token":1,"kind":"step-down","by":"ops","reason":"r"},
				{"id":"q2","name":"a","token":9,"kind":"step-down","by":"ops","reason":"r"}]`, 1)
		}))
		time.Sleep(10 * time.Second)
		testutil.Want(t, errors.Join(a.Check(), a.Context().Err()), nil)
		said := ""
		for _, h := range w.calls("/v1/sessions/heartbeat") {
			if h["answered"] != nil {
				said += fmt.Sprint(h["answered"])
			}
		}
		if said != "[q1 q2]" {
			t.Errorf("it says %q", said)
		}
		w.close(s)
	})
}

// Work that does not stop loses its right after the stop timeout, and the lock is free a lease later.
func TestWorkUnderASessionThatDoesNotStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, _ := w.session(func(o *Options) { o.StopTimeout = 5 * time.Second })
		a, b := w.must(s.Acquire(t.Context(), "a", nil)), w.must(s.Acquire(t.Context(), "b", nil))
		asked := testutil.Go(func() error {
			return w.operator.StepDown(t.Context(), "a", &tenure.StepDownOptions{Reason: "a deploy"})
		})
		<-a.Context().Done()
		time.Sleep(5*time.Second - ms)
		testutil.Want(t, a.Check(), nil)
		time.Sleep(ms)
		testutil.Want(t, a.Check(), ErrStopTimeout)
		time.Sleep(leaseTime - ms)
		testutil.Pending(t, "the request", asked)
		time.Sleep(2 * time.Second)
		testutil.Want(t, <-asked, nil)
		testutil.Want(t, a.Release(t.Context()), ErrStopTimeout)
		testutil.Want(t, b.Check(), nil)
		w.close(s)
	})
}

// A release of one lock is repeated until it is answered, with what it was attached with.
func TestAReleaseUnderASession(t *testing.T) {
	for name, f := range map[string]fault{"dropped": dropped, "answer lost": answerLost, "502": badGateway, "503": problemOf("unknown", 503)} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				s, _ := w.session()
				a := w.must(s.Acquire(t.Context(), "a", nil))
				w.both("/v1/sessions/release", f)
				brief, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				testutil.Want(t, a.Release(brief), context.DeadlineExceeded)
				w.ends(a, ErrReleased)
				testutil.Want(t, a.Release(brief), ErrUncertain) // brief is over: after a lease
				w.both("/v1/sessions/release", nil)
				time.Sleep(time.Second)
				synctest.Wait()
				other, _ := w.client()
				w.release(w.must(other.TryAcquire(t.Context(), "a", nil)))
				testutil.Want(t, s.Check(), nil)
				w.close(s)
			})
		})
	}
}

// The close frees all locks, by the newest heartbeat or the confirmed one, and nothing is held once it begins.
func TestCloseOfASession(t *testing.T) {
	for name, f := range map[string]fault{"applied": answerLost, "not applied": hangs} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				s, _ := w.session()
				a := w.must(s.Acquire(t.Context(), "a", nil))
				w.both("/v1/sessions/heartbeat", f)
				time.Sleep(3*time.Second + ms)
				w.servers[0].next("/v1/sessions/close", badGateway, dropped)
				w.servers[1].next("/v1/sessions/close", dropped, badGateway)
				closed := testutil.Go(func() error { return s.Close(t.Context()) })
				w.ends(a, ErrSessionClosed)
				testutil.Want(t, <-closed, nil)
				other, _ := w.client()
				w.release(w.must(other.TryAcquire(t.Context(), "a", nil)))
				n := len(w.calls("/v1/sessions/heartbeat"))
				time.Sleep(time.Minute)
				if len(w.calls("/v1/sessions/heartbeat")) != n {
					t.Error("heartbeats after the close")
				}
			})
		})
	}
}

// Close waits for the work of Run, under heartbeats, and does not free what work goes on under.
func TestCloseWaitsForWork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, takes := range []time.Duration{10 * time.Second, time.Minute} {
			s, _ := w.session()
			began := make(chan struct{})
			ran := testutil.Go(func() error {
				return s.Run(t.Context(), "a", nil, func(ctx context.Context, l *Lease) error {
					close(began)
					<-ctx.Done()
					testutil.Want(t, l.Check(), ErrSessionClosed)
					time.Sleep(takes)
					return nil
				})
			})
			<-began
			other, _ := w.client()
			closed := testutil.Go(func() error { return s.Close(t.Context()) })
			time.Sleep(10*time.Second - ms)
			testutil.Pending(t, "close", closed)
			_, err := other.TryAcquire(t.Context(), "a", nil)
			testutil.Want(t, err, ErrHeld)
			if takes < leaseTime {
				testutil.Want(t, <-closed, nil)
				testutil.Want(t, <-ran, nil)
				w.release(w.must(other.TryAcquire(t.Context(), "a", nil)))
				continue
			}
			testutil.Want(t, <-closed, ErrStopTimeout)
			_, err = other.TryAcquire(t.Context(), "a", nil)
			testutil.Want(t, err, ErrHeld)
			testutil.Want(t, <-ran, nil)
		}
	})
}

func TestNoSessions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		w.both("/v1/sessions/open", problemOf("no-sessions", 409))
		_, err := c.OpenSession(t.Context())
		if !errors.Is(err, ErrNoSessions) || !strings.Contains(err.Error(), "single locks") {
			t.Errorf("got %v", err)
		}
		w.both("/v1/sessions/open", dropped)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		_, err = c.OpenSession(ctx)
		testutil.Want(t, err, context.DeadlineExceeded)
		testutil.Want(t, err, ErrUnavailable)
	})
}

// A session lives on by the other server when one dies.
func TestAServerOfASessionDies(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, _ := w.session()
		a := w.must(s.Acquire(t.Context(), "a", nil))
		w.servers[0].kill()
		b := w.must(s.Acquire(t.Context(), "b", nil))
		time.Sleep(time.Minute)
		testutil.Want(t, errors.Join(a.Check(), b.Check()), nil)
		w.release(a)
		w.close(s)
	})
}

func TestManyLocksAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, _ := w.session()
		names := make([]string, 150)
		for i := range names {
			names[i] = fmt.Sprintf("lock/%03d", 149-i)
		}
		set := testutil.Must(s.AcquireAll(t.Context(), names, nil))(t)
		testutil.Want(t, set.Check(), nil)
		if n := len(w.calls("/v1/sessions/attach")); n != 2 {
			t.Errorf("%d attachments", n)
		}
		if len(set.Leases()) != 150 || set.Leases()[0].Name() != "lock/000" || set.Lease("lock/100").Name() != "lock/100" || set.Lease("x") != nil {
			t.Errorf("%d leases", len(set.Leases()))
		}
		time.Sleep(time.Minute)
		testutil.Want(t, errors.Join(set.Check(), set.Context().Err()), nil)
		if n := len(w.calls("/v1/heartbeat")); n != 0 || set.Remaining() < 7*time.Second {
			t.Errorf("%d heartbeats of locks, %v remain", n, set.Remaining())
		}
		testutil.Want(t, set.Release(t.Context()), nil)
		testutil.Want(t, set.Check(), ErrReleased)
		w.close(s)
	})
}

// All or none: what was granted while another lock is waited for is attached, and lives by the session.
func TestAllOrNone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, _ := w.session()
		other, _ := w.client()
		held := w.must(other.Acquire(t.Context(), "b", nil))
		_, err := s.TryAcquireAll(t.Context(), []string{"c", "b", "a"}, nil)
		var e *Error
		if !errors.Is(err, ErrHeld) || !errors.As(err, &e) || e.Key != "b" {
			t.Errorf("got %v", err)
		}
		w.release(w.must(other.TryAcquire(t.Context(), "a", nil)))

		_, err = s.AcquireAll(t.Context(), []string{"c", "b", "a"}, &AcquireOptions{Wait: 40 * time.Second})
		testutil.Want(t, err, ErrHeld)
		w.release(w.must(other.TryAcquire(t.Context(), "a", nil)))

		got := testutil.Go(func() error {
			return s.RunAll(t.Context(), []string{"c", "b", "a"}, nil, func(_ context.Context, set *LeaseSet) error { return set.Check() })
		})
		time.Sleep(time.Minute)
		testutil.Pending(t, "the set", got)
		_, err = other.TryAcquire(t.Context(), "a", nil)
		testutil.Want(t, err, ErrHeld)
		// A lock that was taken is asked for meanwhile: all are released, and taken again.
		testutil.Want(t, testutil.Within(t, 0, 10*time.Second, func() error {
			return w.operator.StepDown(t.Context(), "a", &tenure.StepDownOptions{Reason: "a deploy"})
		}), nil)
		time.Sleep(time.Minute)
		testutil.Pending(t, "the set", got)
		w.release(held)
		testutil.Want(t, <-got, nil)
		for _, names := range [][]string{nil, {"a", "a"}, {" a"}} {
			_, err = s.AcquireAll(t.Context(), names, nil)
			testutil.Want(t, err, ErrInvalid)
		}
		w.close(s)
	})
}
