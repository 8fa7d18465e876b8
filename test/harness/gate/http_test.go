// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gate

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/test/harness/wait"
)

// shop is a server that counts its requests.
type shop struct {
	mu    sync.Mutex
	asked []string // bodies, or URIs of requests without one
}

func (s *shop) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, string(body)+r.URL.Query().Get("q"))
	rw.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(rw, `{"served":%d}`, len(s.asked))
}

func (s *shop) served(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, asked := range s.asked {
		if asked == text {
			n++
		}
	}
	return n
}

// newFixture returns a gate in front of a shop.
func newFixture(t *testing.T, w Weather) (*HTTP, *shop, string) {
	t.Helper()
	s := &shop{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	g := NewWeathered([]string{server.URL}, w, 1, func(r *http.Request) bool { return r.Method == http.MethodPost })
	t.Cleanup(g.Close)
	return g, s, g.Address()
}

// ask returns the status and the body that a caller gets, and an error if the connection
// ends before.
func ask(t *testing.T, method, url, body string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	// No connection is used twice: net/http would send some calls again by itself.
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return fmt.Sprintf("%d %s", response.StatusCode, text), err
}

// TestFaults: what the caller gets, and how often the server was asked, by when the caller
// has its answer and in the end.
func TestFaults(t *testing.T) {
	const late = 50 * time.Millisecond
	for _, c := range []struct {
		fault     Fault
		want      string // the beginning of what the caller gets; empty: no answer, or half of one
		then, end int
	}{
		{None, `200 {"served":1}`, 1, 1},
		{LoseRequest, "", 0, 0},
		{LoseAnswer, "", 1, 1},
		{Delay, `200 {"served":1}`, 1, 1},
		{DelayAnswer, `200 {"served":1}`, 1, 1},
		{Double, `200 {"served":`, 1, 2},
		{Again, `200 {"served":1}`, 1, 2},
		{BadGateway, "502 <html>", 1, 1},
		{GaveUp, "504 <html>", 0, 1},
		{Cut, "", 1, 1},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			t.Parallel()
			p, s, url := newFixture(t, Weather{Late: late, Again: 2 * late})
			struck := false
			p.Strike(func(call Call) (Fault, time.Duration) {
				if struck || call.Path != "/buy" {
					return None, 0
				}
				struck = true
				return c.fault, 0
			})
			got, err := ask(t, http.MethodPost, url+"/buy", "milk")
			if (err != nil) != (c.want == "") || err == nil && !strings.HasPrefix(got, c.want) {
				t.Errorf("the caller gets %q, %v; want %q", got, err, c.want)
			}
			if n := s.served("milk"); n < c.then {
				t.Errorf("the server was asked %d times, want %d at least", n, c.then)
			}
			if err := wait.Until(t.Context(), "all is carried out",
				func() bool { return s.served("milk") == c.end }); err != nil {
				t.Errorf("the server was asked %d times in the end, want %d", s.served("milk"), c.end)
			}
			if p.Counts()[c.fault] != 1 {
				t.Errorf("counted are %v", p.Counts())
			}
			// The strike was for one call, and other paths have never had it.
			if got, err := ask(t, http.MethodPost, url+"/buy", "bread"); err != nil ||
				!strings.HasPrefix(got, "200 ") {
				t.Errorf("the next call gets %q, %v", got, err)
			}
		})
	}
}
