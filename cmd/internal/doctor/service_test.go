// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/server"
)

const principals = `
all    5kzAq8Wn3RtALL7y    admin:
reader 9mXvREAD4cHu2Lp6  read:
holder 2wHOLDzT7nKe5Qb8  hold:
`

// newService returns the handler of a lock service on a store of its own.
func newService(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.WithoutCancel(t.Context())) }) // it holds nothing
	if o.Principals, err = server.ParsePrincipals(principals); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// examine returns what is found of a service behind the handler, in lines.
func examine(t *testing.T, h http.Handler, token string) (lines []string, bad bool) {
	t.Helper()
	l := httptest.NewServer(h)
	defer l.Close()
	bad, err := doctor.ExamineService(t.Context(), doctor.Service{
		URL: l.URL, Token: token, Lock: "doctor",
		Tell: func(f driver.Finding) {
			lines = append(lines, string(f.Level)+" "+f.Check+": "+f.Finding+"; "+f.Advice)
			if f.Level != driver.LevelOK && f.Advice == "" {
				t.Errorf("%q does not say what to do", f)
			}
		},
	})
	if err != nil {
		t.Error(err)
	}
	return lines, bad
}

// wants fails unless a line begins with each text that is wanted.
func wants(t *testing.T, lines []string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("no line %q in\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

func TestServiceThatIsWell(t *testing.T) {
	s := newService(t, server.Options{})
	lines, bad := examine(t, s, "5kzAq8Wn3RtALL7y")
	if bad {
		t.Error("it is bad")
	}
	wants(t, lines, "ok server: answers", "ok ready: its store answers", "ok version: version 1",
		"ok host: a call with a wrong Host header is refused",
		"ok token: a call without a token is refused", "ok token: the token is known",
		`ok hold: the token may hold "doctor": "doctor:doctor-trial" was granted`, "ok latency: heartbeats take",
		"ok lease: lease 15s, heartbeat every 3s", "ok lease: the service may be away for 7.6",
		"ok ask: a holder gets a request", `ok release: "doctor:doctor-trial" was released, and its record was deleted`)
	left := httptest.NewRecorder()
	list := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v1/locks", nil)
	list.Header.Set("Authorization", "Bearer 5kzAq8Wn3RtALL7y")
	if s.ServeHTTP(left, list); !strings.HasPrefix(left.Body.String(), `{"locks":[]`) {
		t.Errorf("it leaves %s", left.Body)
	}
	again, bad := examine(t, s, "5kzAq8Wn3RtALL7y")
	if bad {
		t.Errorf("a second time it is bad:\n%s", strings.Join(again, "\n"))
	}
}

func TestServiceByRights(t *testing.T) {
	s := newService(t, server.Options{})
	lines, bad := examine(t, s, "2wHOLDzT7nKe5Qb8")
	wants(t, lines, "ok ask: the token may not ask", "ok release:")
	more, alsoBad := examine(t, s, "9mXvREAD4cHu2Lp6")
	wants(t, more, "ok token: the token is known", `warn hold: the token may not hold "doctor"`)
	if bad || alsoBad {
		t.Error("a token with few rights is bad")
	}
	unknown, bad := examine(t, s, "NONENONENONENONENONE")
	wants(t, unknown, "bad token: the token is not known: 401 unauthenticated")
	if !bad {
		t.Error("an unknown token is not bad")
	}
	none, bad := examine(t, s, "")
	wants(t, none, "warn token: no token was given")
	if bad {
		t.Error("to try no lock is bad")
	}
}

func TestServiceThatIsOpen(t *testing.T) {
	lines, bad := examine(t, newService(t, server.Options{Hosts: []string{"*"}}), "5kzAq8Wn3RtALL7y")
	wants(t, lines, "warn host: a call with a wrong Host header is not refused")
	if bad {
		t.Error("it is bad")
	}
	s := newService(t, server.Options{})
	lines, bad = examine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer 5kzAq8Wn3RtALL7y") // as some proxy might
		s.ServeHTTP(w, r)
	}), "5kzAq8Wn3RtALL7y")
	wants(t, lines, "bad token: a call without a token is not refused as unauthenticated")
	if !bad {
		t.Error("it is not bad that a proxy has a token for everybody")
	}
}

func TestServiceIsAnotherServer(t *testing.T) {
	lines, bad := examine(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>Welcome</html>"))
	}), "5kzAq8Wn3RtALL7y")
	wants(t, lines, "bad version:", "bad token: a call without a token is not refused as unauthenticated: 200 OK, which is not an "+
		"answer of tenured")
	if !bad {
		t.Error("it is not bad")
	}
}

func TestServiceThatShutsDown(t *testing.T) {
	s := newService(t, server.Options{})
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines, bad := examine(t, s, "5kzAq8Wn3RtALL7y")
	wants(t, lines, "bad ready: it is not ready: 503 unavailable", "bad hold: an acquire failed: 503 unavailable")
	if !bad {
		t.Error("it is not bad")
	}
}

// Replicas that have a store each answer one heartbeat, and not the next.
func TestServiceOnTwoStores(t *testing.T) {
	replicas := []http.Handler{newService(t, server.Options{}), newService(t, server.Options{})}
	var turn atomic.Int64
	lines, bad := examine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		replicas[turn.Add(1)%2].ServeHTTP(w, r)
	}), "5kzAq8Wn3RtALL7y")
	wants(t, lines, "bad heartbeat: a heartbeat failed: 410 lost")
	if !bad {
		t.Error("it is not bad")
	}
}

func TestServiceThatIsSlow(t *testing.T) {
	enginetest.MakeVerify(t)
	s := newService(t, server.Options{})
	lines, bad := examine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/heartbeat" { // above a quarter of what a client allows
			select {
			case <-time.After(400 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
		s.ServeHTTP(w, r)
	}), "2wHOLDzT7nKe5Qb8")
	wants(t, lines, "warn latency: heartbeats take")
	if bad {
		t.Error("it is bad")
	}
}

func TestServiceOutOfReach(t *testing.T) {
	l := httptest.NewServer(http.NotFoundHandler())
	l.Close()
	var told []string
	_, err := doctor.ExamineService(t.Context(), doctor.Service{
		URL: l.URL, Lock: "doctor",
		Tell: func(f driver.Finding) { told = append(told, string(f.Level)+" "+f.Check) },
	})
	if !errors.Is(err, doctor.ErrNoService) || !slices.Contains(told, "bad server") {
		t.Errorf("%v, %q", err, told)
	}
	for _, url := range []string{
		"", "127.0.0.1:8368", "ftp://host", "https://", "https://user:secret@host",
		"http://host/path", "http://host?x=y",
	} {
		_, err := doctor.ExamineService(t.Context(), doctor.Service{URL: url, Lock: "doctor", Tell: func(driver.Finding) {}})
		if err == nil || errors.Is(err, doctor.ErrNoService) ||
			!strings.Contains(err.Error(), "not an address of a lock service") {
			t.Errorf("%q: %v", url, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}
