// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
)

// derived has the servers of a world grant slots, and locks to readers and writers, which are plain locks with derived
// names. Readers are as many as the test says.
func (w *world) derived() (readers *atomic.Int64) {
	readers = new(atomic.Int64)
	for _, s := range w.servers {
		s.always("/v1/acquire", func(q *http.Request, carry func() (*http.Response, error)) (*http.Response, error) {
			return s.grants(q, carry, readers.Load() > 0)
		})
		s.always("/v1/drain", func(q *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
			body := s.bodyOf(q)
			for end := time.Now().Add(time.Duration(body["wait_ms"].(float64)) * ms); readers.Load() > 0; {
				if !time.Now().Before(end) {
					return says(409, problemType, `{"type": "urn:tenure:problem:held", "status": 409, "detail": "so", "holder": "reader", "token": 3, "free_in_ms": 900}`), nil
				}
				time.Sleep(10 * ms)
			}
			return says(200, jsonType, "{}"), q.Context().Err()
		})
	}
	return readers
}

// bodyOf returns the body of the call that the server got last, which is q.
func (w *wire) bodyOf(q *http.Request) fields {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.sent) - 1; ; i-- {
		if w.sent[i].path == q.URL.Path {
			return w.sent[i].body
		}
	}
}

// unwrittenBy is what package rwlock writes for a writer that has not written, as the first one.
func unwrittenBy(token float64) string { return fmt.Sprintf(`{"token":%v,"epoch":0}`, token) }

func (w *wire) grants(q *http.Request, carry func() (*http.Response, error), drains bool) (*http.Response, error) {
	asked := w.bodyOf(q)
	name, _ := asked["name"].(string)
	slots, _ := asked["slots"].(float64)
	var names []string
	switch {
	case asked["shared"] == true:
		names = []string{name + ":read/0", name + ":read/1"}
	case asked["exclusive"] == true:
		names = []string{name + ":gate"}
	case slots > 0:
		for i := range int(slots) {
			names = append(names, fmt.Sprintf("%s:slot/%d", name, i))
		}
	default:
		return carry()
	}
	plain := fields{}
	for key, value := range asked {
		if key != "slots" && key != "shared" && key != "exclusive" {
			plain[key] = value
		}
	}
	plain["wait_ms"] = 0
	wait, _ := asked["wait_ms"].(float64)
	for end := time.Now().Add(time.Duration(wait) * ms); ; time.Sleep(100 * ms) {
		var r *http.Response
		for i, one := range names {
			plain["name"] = one
			text, _ := json.Marshal(plain)
			var err error
			if r, err = w.carry(q, string(text)); err != nil || r.StatusCode == http.StatusConflict {
				if err != nil {
					return r, err
				}
				continue
			}
			var g map[string]any
			b, err := io.ReadAll(r.Body)
			if err = errors.Join(err, json.Unmarshal(b, &g)); err != nil {
				return nil, err
			}
			token, _ := g["token"].(float64)
			switch {
			case slots > 0:
				g["slot"], g["slots"] = i, slots
			case asked["shared"] == true:
				g["fence_token"] = 1
			default:
				g["fence_token"], g["unwritten"] = 2*token, []byte(unwrittenBy(token))
				if drains {
					g["drain"] = true
				}
				if token > 1 {
					g["last_writer"] = fields{"owner": "web-7", "token": token - 1, "end": "failed"}
				}
			}
			b, err = json.Marshal(g)
			return says(200, jsonType, string(b)), err
		}
		if !time.Now().Before(end) {
			return r, nil
		}
		_ = r.Body.Close()
	}
}

func TestASemaphore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.derived()
		c, _ := w.client()
		s, _ := w.session()
		renders, under := c.Semaphore("renders", 2), s.Semaphore("renders", 2)
		a := testutil.Must(renders.Acquire(t.Context(), nil))(t)
		b := testutil.Must(under.TryAcquire(t.Context(), nil))(t)
		if a.Name() != "renders:slot/0" || a.Slot() != 0 || a.Slots() != 2 || b.Name() != "renders:slot/1" || b.Slot() != 1 || b.Token() != 1 {
			t.Errorf("slots %q and %q", a.Name(), b.Name())
		}
		_, err := renders.TryAcquire(t.Context(), nil)
		testutil.Want(t, err, ErrHeld)
		ran := testutil.Go(func() error {
			return renders.Run(t.Context(), nil, func(_ context.Context, l *SlotLease) error {
				if l.Slot() != 1 {
					t.Errorf("slot %d", l.Slot())
				}
				return l.Check()
			})
		})
		time.Sleep(time.Minute)
		testutil.Pending(t, "the acquire", ran)
		testutil.Want(t, errors.Join(a.Check(), b.Check(), b.Release(t.Context())), nil)
		testutil.Want(t, <-ran, nil)
		testutil.Want(t, a.Release(t.Context()), nil)
		for _, n := range []int{0, 1001} {
			_, err = c.Semaphore("renders", n).Acquire(t.Context(), nil)
			testutil.Want(t, err, ErrInvalid)
		}
		_, err = c.Semaphore(strings.Repeat("a", 1009), 1).Acquire(t.Context(), nil)
		testutil.Want(t, err, ErrInvalid)
		w.close(s)
	})
}

func TestReadersAndWriters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.derived()
		c, _ := w.client()
		s, _ := w.session()
		for _, catalog := range []*RWLock{c.RWLock("catalog"), s.RWLock("catalog")} {
			err := catalog.RunRead(t.Context(), nil, func(_ context.Context, l *RWLease) error {
				if l.Name() != "catalog" || l.Token() != 1 || l.Writing() || l.Lease.Name() != "catalog:read/0" {
					t.Errorf("%q, token %d, writing %v", l.Name(), l.Token(), l.Writing())
				}
				return l.Check()
			})
			testutil.Want(t, err, nil)
		}
		for i, catalog := range []*RWLock{c.RWLock("catalog"), s.RWLock("catalog")} {
			err := catalog.RunWrite(t.Context(), nil, func(_ context.Context, l *RWLease) error {
				last, ok := l.LastWriter()
				if l.Name() != "catalog" || l.Token() != uint64(2*i+2) || !l.Writing() || ok != (i > 0) || ok && last != (Writer{"web-7", 1, "failed"}) {
					t.Errorf("%q, token %d, last writer %+v", l.Name(), l.Token(), last)
				}
				time.Sleep(time.Minute)
				return l.Check()
			})
			testutil.Want(t, err, nil)
		}
		for _, r := range append(w.calls("/v1/release"), w.calls("/v1/sessions/release")...) {
			if r["data"] != nil {
				t.Errorf("a writer that has written says %v", r)
			}
		}
		_, err := c.RWLock("catalog").AcquireRead(t.Context(), &AcquireOptions{Data: []byte("mine")})
		testutil.Want(t, err, ErrInvalid)
		l := testutil.Must(c.RWLock("catalog").TryAcquireRead(t.Context(), nil))(t)
		testutil.Want(t, l.ReleaseWith(t.Context(), &ReleaseOptions{Data: []byte("mine")}), ErrInvalid)
		testutil.Want(t, errors.Join(l.Check(), l.Release(t.Context())), nil)
		w.close(s)
	})
}

// The close of a session waits for work that runs in a slot, or reads or writes, as it does for other work.
func TestCloseWaitsForOtherWork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.derived()
		s, _ := w.session()
		var began, working sync.WaitGroup
		began.Add(3)
		work := func(ctx context.Context) error {
			began.Done()
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			working.Done()
			return nil
		}
		working.Add(3)
		ran := []<-chan error{
			testutil.Go(func() error {
				return s.Semaphore("a", 1).Run(t.Context(), nil, func(ctx context.Context, _ *SlotLease) error { return work(ctx) })
			}),
			testutil.Go(func() error {
				return s.RWLock("a").RunRead(t.Context(), nil, func(ctx context.Context, _ *RWLease) error { return work(ctx) })
			}),
			testutil.Go(func() error {
				return s.RunAll(t.Context(), []string{"a"}, nil, func(ctx context.Context, _ *LeaseSet) error { return work(ctx) })
			}),
		}
		began.Wait()
		closed := testutil.Go(func() error { return s.Close(t.Context()) })
		time.Sleep(5*time.Second - ms)
		testutil.Pending(t, "close", closed)
		working.Wait()
		testutil.Want(t, <-closed, nil)
		for _, one := range ran {
			testutil.Want(t, <-one, nil)
		}
	})
}

// A writer gets its lease when all readers are gone, and keeps the gate alive until then.
func TestAWriterWaitsForReaders(t *testing.T) {
	for name, under := range map[string]bool{"alone": false, "under a session": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				readers := w.derived()
				c, _ := w.client()
				catalog := c.RWLock("catalog")
				if under {
					s := testutil.Must(c.OpenSession(t.Context()))(t)
					defer w.close(s)
					catalog = s.RWLock("catalog")
				}
				readers.Store(1)
				wrote := testutil.Go(func() error {
					return catalog.RunWrite(t.Context(), nil, func(_ context.Context, l *RWLease) error {
						if readers.Load() != 0 {
							return errors.New("it writes beside a reader")
						}
						return l.Check()
					})
				})
				time.Sleep(time.Minute)
				testutil.Pending(t, "the writer", wrote)
				for _, s := range w.servers {
					s.next("/v1/drain", dropped, problemOf("unknown", 503), edited(func(string) string { return "<h1>" }), badGatewayOnly,
						problemOf("unauthenticated", 401), problemOf("forbidden", 403))
				}
				time.Sleep(time.Minute)
				testutil.Pending(t, "the writer", wrote)
				if st := testutil.Must(w.operator.Status(t.Context(), "catalog:gate"))(t); st.State != tenure.StateHeld || st.Token != 1 {
					t.Errorf("the gate is %+v", st)
				}
				readers.Store(0)
				testutil.Want(t, <-wrote, nil)
			})
		})
	}
}

func badGatewayOnly(*http.Request, func() (*http.Response, error)) (*http.Response, error) {
	return says(502, "text/html", "<h1>502 Bad Gateway</h1>"), nil
}

// A writer that gives up says in its release that it has not written.
func TestAWriterGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(ctx context.Context, r *RWLock, w *world) error
		want error
	}{
		"try": {func(ctx context.Context, r *RWLock, _ *world) error {
			_, err := r.TryAcquireWrite(ctx, nil)
			return err
		}, ErrHeld},
		"wait": {func(ctx context.Context, r *RWLock, _ *world) error {
			_, err := r.AcquireWrite(ctx, &AcquireOptions{Wait: 31 * time.Second})
			return err
		}, ErrHeld},
		"context": {func(ctx context.Context, r *RWLock, _ *world) error {
			ctx, stop := context.WithTimeout(ctx, 31*time.Second)
			defer stop()
			_, err := r.AcquireWrite(ctx, nil)
			return err
		}, context.DeadlineExceeded},
		"forbidden": {func(ctx context.Context, r *RWLock, w *world) error {
			w.both("/v1/drain", problemOf("bad-request", 400))
			_, err := r.AcquireWrite(ctx, nil)
			var p *ProblemError
			if errors.As(err, &p) {
				return errWire
			}
			return err
		}, errWire},
	} {
		for _, under := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, session %v", name, under), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					w.derived().Store(1)
					client, _ := w.client()
					catalog := client.RWLock("catalog")
					if under {
						s := testutil.Must(client.OpenSession(t.Context()))(t)
						defer w.close(s)
						catalog = s.RWLock("catalog")
					}
					testutil.Want(t, c.do(t.Context(), catalog, w), c.want)
					synctest.Wait()
					wantsUnwritten(t, w)
					if st := testutil.Must(w.operator.Status(t.Context(), "catalog:gate"))(t); st.State == tenure.StateHeld {
						t.Errorf("the gate is %+v", st)
					}
				})
			})
		}
	}
}

// An answer to a drain counts only if the gate is held when it comes.
func TestADrainThatIsAnsweredLate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		readers := w.derived()
		c, ahead := w.client()
		readers.Store(1)
		w.servers[0].next("/v1/drain", func(*http.Request, func() (*http.Response, error)) (*http.Response, error) {
			readers.Store(0)
			ahead.Add(int64(usable)) // a suspend
			return says(200, jsonType, "{}"), nil
		})
		l := testutil.Must(c.RWLock("catalog").AcquireWrite(t.Context(), nil))(t)
		if l.Lease.Token() != 2 {
			t.Errorf("token %d", l.Lease.Token())
		}
		testutil.Want(t, errors.Join(l.Check(), l.Release(t.Context())), nil)
	})
}

// A gate that is lost while readers are there is taken again.
func TestAGateThatIsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		readers := w.derived()
		c, _ := w.client()
		readers.Store(1)
		w.servers[0].next("/v1/drain", func(*http.Request, func() (*http.Response, error)) (*http.Response, error) {
			readers.Store(0)
			return problemOf("lost", 410)(nil, nil)
		})
		l := testutil.Must(c.RWLock("catalog").AcquireWrite(t.Context(), nil))(t)
		if l.Lease.Token() != 2 {
			t.Errorf("token %d", l.Lease.Token())
		}
		testutil.Want(t, errors.Join(l.Check(), l.Release(t.Context())), nil)
	})
}

// A writer that is asked for the gate while readers are there gives it back, and waits again.
func TestAWriterThatIsAsked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		writerIsAsked(t, w, c.RWLock("catalog"))
	})
	inWorld(t, func(t *testing.T, w *world) {
		s, _ := w.session()
		writerIsAsked(t, w, s.RWLock("catalog"))
		w.close(s)
	})
}

func writerIsAsked(t *testing.T, w *world, catalog *RWLock) {
	t.Helper()
	readers := w.derived()
	readers.Store(1)
	asked := testutil.Go(func() error {
		time.Sleep(time.Second)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		err := w.operator.StepDown(ctx, "catalog:gate", &tenure.StepDownOptions{Reason: "a deploy"})
		readers.Store(0)
		return err
	})
	l := testutil.Must(catalog.AcquireWrite(t.Context(), nil))(t)
	testutil.Want(t, <-asked, nil)
	if l.Lease.Token() != 2 {
		t.Errorf("token %d", l.Lease.Token())
	}
	wantsUnwritten(t, w)
	testutil.Want(t, errors.Join(l.Check(), l.Release(t.Context())), nil)
}

// A writer that does not stop may have written: the release in its place does not say that it has not.
func TestAWriterThatDoesNotStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.derived()
		s, _ := w.session(func(o *Options) { o.StopTimeout = 5 * time.Second })
		l := testutil.Must(s.RWLock("catalog").AcquireWrite(t.Context(), nil))(t)
		testutil.Want(t, w.operator.StepDown(t.Context(), "catalog:gate", &tenure.StepDownOptions{Reason: "a deploy"}), nil)
		testutil.Want(t, l.Check(), ErrStopTimeout)
		for _, call := range w.calls("/v1/sessions/release") {
			one, _ := call["locks"].([]any)
			if data := one[0].(map[string]any)["data"]; data != nil {
				t.Errorf("it leaves %v", data)
			}
		}
		testutil.Want(t, l.Release(t.Context()), ErrStopTimeout)
		w.close(s)
	})
}

// wantsUnwritten wants one release until now, of a writer under token 1 that says that it has not written.
func wantsUnwritten(t *testing.T, w *world) {
	t.Helper()
	released := w.calls("/v1/release")
	for _, call := range w.calls("/v1/sessions/release") {
		one, _ := call["locks"].([]any)
		released = append(released, one[0].(map[string]any))
	}
	if len(released) != 1 || released[0]["data"] != base64.StdEncoding.EncodeToString([]byte(unwrittenBy(1))) {
		t.Errorf("it says %v", released)
	}
}

// knows skips a test as long as the server does not know slots, readers and writers.
func knows(t *testing.T, err error) {
	t.Helper()
	var p *ProblemError
	if errors.As(err, &p) && p.Kind == "bad-request" {
		t.Skipf("this server does not give out slots: %v", err)
	}
}

// The service gives out slots: by the same rules as package semaphore.
func TestASemaphoreOfTheService(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		renders := c.Semaphore("renders", 2)
		a, err := renders.Acquire(t.Context(), nil)
		knows(t, err)
		testutil.Want(t, err, nil)
		s, _ := w.session()
		under := s.Semaphore("renders", 2)
		b := testutil.Must(under.TryAcquire(t.Context(), nil))(t)
		if a.Slot() == b.Slot() || a.Slots() != 2 || b.Slots() != 2 {
			t.Errorf("slots %d and %d of %d", a.Slot(), b.Slot(), a.Slots())
		}
		_, err = renders.TryAcquire(t.Context(), nil)
		testutil.Want(t, err, ErrHeld)
		for _, from := range []*Semaphore{renders, under} {
			ran := testutil.Go(func() error {
				return from.Run(t.Context(), nil, func(_ context.Context, l *SlotLease) error { return l.Check() })
			})
			time.Sleep(time.Minute)
			testutil.Pending(t, "the acquire", ran)
			testutil.Want(t, errors.Join(a.Check(), b.Check(), b.Release(t.Context())), nil)
			testutil.Want(t, <-ran, nil)
			b = testutil.Must(under.Acquire(t.Context(), nil))(t)
		}
		testutil.Want(t, a.Release(t.Context()), nil)
		w.close(s)
	})
}

// The service lets readers and writers in by the same rules as package rwlock.
func TestReadersAndWritersOfTheService(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, _ := w.client()
		alone := c.RWLock("catalog")
		r, err := alone.AcquireRead(t.Context(), nil)
		knows(t, err)
		testutil.Want(t, err, nil)
		s, _ := w.session()
		under := s.RWLock("catalog")
		if _, ok := r.LastWriter(); ok || r.Token() != 1 || r.Name() != "catalog" {
			t.Errorf("%q, token %d", r.Name(), r.Token())
		}
		for _, writes := range []*RWLock{alone, under} {
			_, err = writes.TryAcquireWrite(t.Context(), nil)
			testutil.Want(t, err, ErrHeld)
			_, err = writes.AcquireWrite(t.Context(), &AcquireOptions{Wait: 31 * time.Second})
			testutil.Want(t, err, ErrHeld)
			r2 := testutil.Must(under.AcquireRead(t.Context(), nil))(t)
			wrote := testutil.Go(func() error {
				return writes.RunWrite(t.Context(), nil, func(_ context.Context, l *RWLease) error {
					if r.Check() == nil || r2.Check() == nil {
						return errors.New("it writes beside a reader")
					}
					return l.Check()
				})
			})
			time.Sleep(time.Minute)
			testutil.Pending(t, "the writer", wrote)
			testutil.Want(t, errors.Join(r.Check(), r.Release(t.Context()), r2.Check(), r2.Release(t.Context())), nil)
			testutil.Want(t, <-wrote, nil)
			r = testutil.Must(alone.AcquireRead(t.Context(), nil))(t)
			last, ok := r.LastWriter()
			if !ok || last.End != "released" || r.Token() != 2*last.Token+1 || last.Owner != "web-7" {
				t.Errorf("token %d after the writer %+v", r.Token(), last)
			}
		}
		testutil.Want(t, r.Release(t.Context()), nil)
		w.close(s)
	})
}
