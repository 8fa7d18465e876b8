// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tenurelock/tenure/fence"
)

// put makes a request as any client might, with the headers as given.
func put(h http.Handler, path, body string, header ...string) *http.Response {
	r := httptest.NewRequest(http.MethodPut, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHandlerStatuses(t *testing.T) {
	writes := 0
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writes++
		if r.URL.Path == "/precondition" { // a status that the handler has uses for itself
			w.WriteHeader(http.StatusPreconditionFailed)
		}
	})
	gate := fence.NewGate(nil)
	if err := gate.Admit(t.Context(), "ledger", 7); err != nil {
		t.Fatal(err)
	}
	h := fence.Handler(gate, next, &fence.HandlerOptions{
		MaxBody: 4,
		Lock:    func(*http.Request) string { return "ledger" },
	})
	const lock, token = fence.LockHeader, fence.TokenHeader
	for _, c := range []struct {
		name    string
		path    string
		body    string
		header  []string
		status  int
		refused error // matched by what the client makes of it
		says    []string
	}{
		{"current", "/", "1234", []string{lock, "ledger", token, "7"}, 200, nil, nil},
		{"next's own 412", "/precondition", "", []string{lock, "ledger", token, "7"}, 412, nil, nil},
		{"stale", "/", "", []string{lock, "ledger", token, "6"}, 412, fence.ErrStale, []string{`"token":6`, `"highest":7`, `"resource":"ledger"`}},
		{"no headers", "/", "", nil, 428, fence.ErrNoToken, []string{lock, token, "NewTransport"}},
		{"no token", "/", "", []string{lock, "ledger"}, 428, fence.ErrNoToken, []string{"header " + token + " is missing"}},
		{"no lock", "/", "", []string{token, "7"}, 428, fence.ErrNoToken, []string{"header " + lock + " is missing"}},
		{"empty token", "/", "", []string{lock, "ledger", token, ""}, 428, fence.ErrNoToken, nil},
		{"zero", "/", "", []string{lock, "ledger", token, "0"}, 400, fence.ErrNoToken, []string{"above 0"}},
		{"no number", "/", "", []string{lock, "ledger", token, "7x"}, 400, fence.ErrNoToken, []string{`7x`}},
		{"negative", "/", "", []string{lock, "ledger", token, "-7"}, 400, fence.ErrNoToken, nil},
		{"too high to be one", "/", "", []string{lock, "ledger", token, "18446744073709551616"}, 400, fence.ErrNoToken, nil},
		{"two tokens", "/", "", []string{lock, "ledger", token, "6", token, "8"}, 400, fence.ErrNoToken, []string{"2 times"}},
		{"two tokens joined", "/", "", []string{lock, "ledger", token, "6, 8"}, 400, fence.ErrNoToken, nil},
		{"two locks joined", "/", "", []string{lock, "ledger, other", token, "7"}, 400, fence.ErrNoToken, []string{"percent-encode"}},
		{"bad escape", "/", "", []string{lock, "100%", token, "7"}, 400, fence.ErrNoToken, []string{"%25"}},
		{"another lock", "/", "", []string{lock, "other", token, "900"}, 403, fence.ErrWrongLock, []string{"ledger", "other"}},
		{"body too long", "/", "12345", []string{lock, "ledger", token, "8"}, 413, errAny, []string{"4 bytes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := writes
			r := put(h, c.path, c.body, c.header...)
			if r.StatusCode != c.status {
				t.Errorf("status %d, want %d", r.StatusCode, c.status)
			}
			err := fence.Refusal(r)
			if !errors.Is(err, c.refused) && (c.refused != errAny || err == nil) { //nolint:errorlint // the mark of the table itself
				t.Errorf("refusal is %v, want %v", err, c.refused)
			}
			if (c.refused == nil) != (writes == before+1) {
				t.Errorf("%d writes", writes-before)
			}
			body := text(t, r) // Refusal has left it as it was
			for _, s := range c.says {
				if !strings.Contains(body, s) {
					t.Errorf("%q is not in the answer %s", s, body)
				}
			}
			if stale := (*fence.StaleError)(nil); errors.As(err, &stale) && *stale != (fence.StaleError{Resource: "ledger", Token: 6, Highest: 7}) {
				t.Errorf("the client reads %+v", stale)
			}
		})
	}
	if highest, _ := gate.Highest("ledger"); highest != 7 {
		t.Errorf("a request that was refused has raised the token to %d", highest)
	}
	if gate.Len() != 1 {
		t.Errorf("the gate knows %d resources", gate.Len())
	}
}

// errAny stands for an error without a sentinel.
var errAny = errors.New("any")

// Every name comes through the header as it is, and as text that a header may
// carry.
func TestLockNamesTravel(t *testing.T) {
	for _, name := range []string{"ledger", "reports/daily", " a ", "a,b", "100%", "%41", "Zürich 🔒", "a\nTenure-Token: 9", strings.Repeat("é", 512)} {
		h := http.Header{}
		fence.SetHeader(h, fence.Fixed(name, 12))
		grant, err := fence.ParseHeader(h)
		if err != nil || grant.Name() != name || grant.Token() != 12 {
			t.Errorf("%q travels as %q and arrives as %v, %v", name, h.Get(fence.LockHeader), grant, err)
		}
		if strings.ContainsFunc(h.Get(fence.LockHeader), func(c rune) bool { return c <= ' ' || c > '~' || c == ',' }) {
			t.Errorf("%q travels as %q", name, h.Get(fence.LockHeader))
		}
	}
	h := http.Header{}
	fence.SetHeader(h, fence.Fixed("reports/daily", 1))
	if got := h.Get(fence.LockHeader); got != "reports/daily" { // as a shell script would send it
		t.Errorf("got %q", got)
	}
}

// A sender that is paused halfway through its body must not block its
// successor, and is refused when it goes on.
func TestHandlerReadsTheBodyFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written []string
		h := fence.Handler(fence.NewGate(nil), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			written = append(written, string(b))
		}), nil)
		body, sender := io.Pipe()
		old := httptest.NewRequest(http.MethodPut, "/", body)
		fence.SetHeader(old.Header, fence.Fixed("ledger", 1))
		answer := httptest.NewRecorder()
		ended := make(chan struct{})
		go func() {
			h.ServeHTTP(answer, old)
			close(ended)
		}()
		_, _ = io.WriteString(sender, "half ")
		synctest.Wait()

		ctx, cancel := context.WithCancel(t.Context())
		next := httptest.NewRequestWithContext(ctx, http.MethodPut, "/", strings.NewReader("new"))
		fence.SetHeader(next.Header, fence.Fixed("ledger", 2))
		done := make(chan *httptest.ResponseRecorder, 1)
		go func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, next)
			done <- w
		}()
		synctest.Wait()
		cancel() // a request that still waits, waits for the sender
		if w := <-done; w.Code != http.StatusOK {
			t.Errorf("the successor is answered %d: %s", w.Code, w.Body)
		}
		_, _ = io.WriteString(sender, "and half")
		_ = sender.Close()
		<-ended
		if answer.Code != http.StatusPreconditionFailed || !slices.Equal(written, []string{"new"}) {
			t.Errorf("status %d, written: %q", answer.Code, written)
		}
	})
}

// fakeGuard is a guard that fails, before the write or after it.
type fakeGuard struct {
	before, after error
	write         error // the result of the write
}

func (g *fakeGuard) Do(ctx context.Context, _ string, _ uint64, write func(context.Context) error) error {
	if g.before != nil {
		return g.before
	}
	if g.write = write(ctx); g.write != nil {
		return g.write
	}
	return g.after
}

// The client gets success only when the guard has committed, and an error
// says whether something may have been written.
func TestHandlerOverAGuardThatFails(t *testing.T) {
	broken := errors.New("database password is swordfish")
	for _, c := range []struct {
		name   string
		guard  fakeGuard
		status int
	}{
		{"before", fakeGuard{before: broken}, http.StatusServiceUnavailable},
		{"commit", fakeGuard{after: broken}, http.StatusInternalServerError},
		{"not at all", fakeGuard{}, http.StatusCreated},
	} {
		var told error
		h := fence.Handler(&c.guard, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/written")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("Too", "late")
			_, _ = io.WriteString(w, "written")
		}), &fence.HandlerOptions{OnError: func(_ *http.Request, err error) { told = err }})
		r := put(h, "/", "", fence.LockHeader, "ledger", fence.TokenHeader, "1")
		failed := c.status != http.StatusCreated
		if r.StatusCode != c.status || (fence.Refusal(r) != nil) != failed || (r.Header.Get("Location") == "") != failed || r.Header.Get("Too") != "" {
			t.Errorf("%s: status %d, header %v", c.name, r.StatusCode, r.Header)
		}
		if body := text(t, r); strings.Contains(body, "swordfish") || (body == "written") == failed {
			t.Errorf("%s: the client is told %s", c.name, body)
		}
		if errors.Is(told, broken) != failed {
			t.Errorf("%s: the server is told %v", c.name, told)
		}
	}
	// A handler that answers with an error has not written: the guard hears it.
	g := &fakeGuard{}
	r := put(fence.Handler(g, http.NotFoundHandler(), nil), "/", "", fence.LockHeader, "ledger", fence.TokenHeader, "1")
	if g.write == nil || r.StatusCode != http.StatusNotFound || fence.Refusal(r) != nil {
		t.Errorf("the guard got %v, the client %d", g.write, r.StatusCode)
	}
}

func TestHandlerByPath(t *testing.T) {
	gate := fence.NewGate(nil)
	h := fence.Handler(gate, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), &fence.HandlerOptions{
		Lock:     func(*http.Request) string { return "reports" },
		Resource: func(r *http.Request) string { return r.URL.Path },
	})
	for _, c := range []struct {
		path, token string
		status      int
	}{{"/may", "2", 200}, {"/may", "1", 412}, {"/june", "1", 200}} { // as the comment of Resource warns
		if r := put(h, c.path, "", fence.LockHeader, "reports", fence.TokenHeader, c.token); r.StatusCode != c.status {
			t.Errorf("%s under %s: %d, want %d", c.path, c.token, r.StatusCode, c.status)
		}
	}
}

func TestHandlerPanics(t *testing.T) {
	gate, next := fence.NewGate(nil), http.NotFoundHandler()
	for name, build := range map[string]func(){
		"no guard":   func() { fence.Handler(nil, next, nil) },
		"no handler": func() { fence.Handler(gate, nil, nil) },
		"resource without lock": func() {
			fence.Handler(gate, next, &fence.HandlerOptions{Resource: func(*http.Request) string { return "" }})
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: accepted", name)
				}
			}()
			build()
		}()
	}
}
