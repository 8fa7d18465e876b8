// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package ready_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/ready"
	"github.com/tenurelock/tenure/tenuretest"
)

// probe asks the handler, and returns the status and the state of the body.
func probe(t *testing.T, h http.Handler, method string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, "/readyz", nil))
	var body struct {
		State, Lock string
		Token       uint64
		Remaining   *int64 `json:"remaining_ms"`
	}
	if w.Code == http.StatusMethodNotAllowed {
		return w.Code, ""
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%v: %q", err, w.Body)
	}
	if leads := body.State != "follows"; leads != (body.Lock == "x" && body.Token > 0 && body.Remaining != nil) {
		t.Errorf("%s", w.Body)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
	return w.Code, body.State
}

// TestStates: what is answered before an election, of a leader, of a leader that is cut off from
// its store, and after its lease.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.New(t)
		a := cluster.Client("a")
		leader, follower := ready.New(nil), ready.New(&ready.Options{Followers: true})
		want := func(h http.Handler, code int, state ready.State) {
			t.Helper()
			synctest.Wait()
			if got, said := probe(t, h, http.MethodGet); got != code || said != string(state) {
				t.Errorf("answered %d, %q; want %d, %q", got, said, code, state)
			}
		}
		want(leader, 503, ready.Follows)
		want(follower, 200, ready.Follows)

		ended := make(chan error, 1)
		go func() {
			ended <- a.Client.Run(t.Context(), "x", nil, leader.Lead(follower.Lead(func(ctx context.Context, _ *tenure.Lease) error {
				<-ctx.Done()
				time.Sleep(time.Second) // the work takes its time to stop, and leads no more
				return context.Cause(ctx)
			})))
		}()
		for range 60 { // through many heartbeats
			time.Sleep(time.Second)
			want(leader, 200, ready.Leads)
			want(follower, 200, ready.Leads)
		}
		a.Partition()
		var jeopardy bool
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			switch state, lease := leader.State(); state {
			case ready.Leads:
				if jeopardy {
					t.Fatal("it leads again, without a heartbeat")
				}
			case ready.Jeopardy:
				jeopardy = true
				if lease.Check() != nil {
					t.Fatal("in jeopardy, and the lease is over")
				}
				want(leader, 503, ready.Jeopardy)
				want(follower, 503, ready.Jeopardy)
			case ready.Follows:
				if !jeopardy {
					t.Fatal("it follows, and was never in jeopardy")
				}
			}
		}
		want(leader, 503, ready.Follows)
		if err := <-ended; err == nil {
			t.Error("the lease was not lost")
		}
		a.Heal()
		want(follower, 200, ready.Follows)
	})
}

// TestLastMillisecond: a leader has all of its fields until its lease is over.
func TestLastMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := tenuretest.New(t).Client("a")
		h := ready.New(nil)
		_ = a.Client.Run(t.Context(), "x", nil, h.Lead(func(_ context.Context, lease *tenure.Lease) error { // it may be lost
			a.Partition()
			time.Sleep(lease.Remaining() - time.Millisecond/2)
			synctest.Wait()
			if got, state := probe(t, h, http.MethodGet); got != 503 || state != string(ready.Jeopardy) {
				t.Errorf("answered %d, %q", got, state)
			}
			a.Heal()
			return nil
		}))
	})
}

// TestLeast: how much must be left is an option.
func TestLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.New(t)
		h := ready.New(&ready.Options{Least: time.Hour})
		err := cluster.Client("a").Client.Run(t.Context(), "x", nil, h.Lead(func(context.Context, *tenure.Lease) error {
			if got, state := probe(t, h, http.MethodGet); got != 503 || state != string(ready.Jeopardy) {
				t.Errorf("answered %d, %q", got, state)
			}
			return nil
		}))
		if err != nil {
			t.Error(err)
		}
	})
}

func TestMethods(t *testing.T) {
	h := ready.New(nil)
	for method, code := range map[string]int{"POST": 405, "DELETE": 405, "HEAD": 503, "GET": 503} {
		if got, _ := probe(t, h, method); got != code {
			t.Errorf("%s: answered %d, want %d", method, got, code)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a negative least was taken")
		}
	}()
	ready.New(&ready.Options{Least: -1})
}
