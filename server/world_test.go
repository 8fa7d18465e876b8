// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/server"
)

// The principals of these tests.
const (
	ci    = "secret-of-ci-0123456789"
	web   = "secret-of-web-0123456789"
	ops   = "secret-of-ops-0123456789"
	alice = "secret-of-alice-0123456789"

	principalsText = `
ci    ` + ci + `    hold:jobs/
web   ` + web + `   read:web/ hold:web/
ops   ` + ops + `   read,ask:jobs/
alice ` + alice + ` admin:
`
)

const lease = 15 * time.Second

// world is a server on a store in memory.
type world struct {
	*testing.T
	store  driver.Store
	faults *faultstore.Store // nil but with worldOptions.faults
	client *tenure.Client
	*server.Server
	log *logBuffer
}

type worldOptions struct {
	store   driver.Store // nil: a new one in memory
	faults  bool         // faults can be put in front of it
	owner   string
	options func(*server.Options)
}

// inWorld runs a test in a bubble of virtual time, with a server.
func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	inWorldWith(t, worldOptions{}, test)
}

func inWorldWith(t *testing.T, o worldOptions, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(newWorld(t, o))
	})
}

func newWorld(t *testing.T, o worldOptions) *world {
	t.Helper()
	w := &world{T: t, store: o.store, log: &logBuffer{}}
	if w.store == nil {
		w.store = memstore.New()
	}
	if o.faults {
		w.faults = faultstore.New(w.store, nil)
		w.store = w.faults.Driver()
	}
	if o.owner == "" {
		o.owner = "tenured-1"
	}
	var err error
	w.client, err = tenure.New(w.store, &tenure.Options{
		LeaseDuration: lease, Owner: o.owner, Host: "rack-1",
		HistoryLimit: 1_000, Clock: tenure.MonotonicClock(),
	})
	if err != nil {
		t.Fatal(err)
	}
	principals, err := server.ParsePrincipals(principalsText)
	if err != nil {
		t.Fatal(err)
	}
	options := server.Options{Principals: principals, Logger: slog.New(slog.NewTextHandler(w.log, nil))}
	if o.options != nil {
		o.options(&options)
	}
	if w.Server, err = server.New(w.client, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// close ends the server and the client, as a program does.
func (w *world) close() {
	ctx := context.WithoutCancel(w.Context())
	if err := w.Shutdown(ctx); err != nil {
		w.Error(err)
	}
	if err := w.client.Close(ctx); err != nil {
		w.Error(err)
	}
	if w.faults != nil {
		if err := w.faults.Close(); err != nil {
			w.Error(err)
		}
	}
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// answer is what a call got.
type answer struct {
	status int
	header http.Header
	text   string
	json   map[string]any
}

// kind returns the kind of the problem, or "" if it is none.
func (a answer) kind() string {
	kind, _ := a.json["type"].(string)
	return strings.TrimPrefix(kind, "urn:tenure:problem:")
}

func (a answer) string(name string) string {
	s, _ := a.json[name].(string)
	return s
}

func (a answer) number(name string) float64 {
	n, ok := a.json[name].(float64)
	if !ok {
		return -1
	}
	return n
}

func request(method, path, secret string, body any) *http.Request {
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			panic(err)
		}
		reader = bytes.NewReader(text)
	}
	r := httptest.NewRequest(method, path, reader)
	r.Host = "localhost"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	return r
}

// do makes a call, and waits for its answer.
func (w *world) do(r *http.Request) answer {
	w.Helper()
	rec := httptest.NewRecorder()
	body := takeBody(r)
	w.ServeHTTP(rec, r)
	note(r, body, rec.Code, rec.Header(), rec.Body.Bytes())
	return answerOf(w.T, rec.Code, rec.Header(), rec.Body.Bytes())
}

func answerOf(t *testing.T, status int, header http.Header, body []byte) answer {
	t.Helper()
	a := answer{status: status, header: header, text: string(body)}
	if strings.Contains(header.Get("Content-Type"), "json") && len(body) > 0 {
		if err := json.Unmarshal(body, &a.json); err != nil {
			t.Errorf("the answer is no JSON: %v: %q", err, body)
		}
	}
	if header.Get("Cache-Control") != "no-store" || header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("the answer may be cached or sniffed: %v", header)
	}
	return a
}

func (w *world) post(path, secret string, body any) answer {
	w.Helper()
	return w.do(request(http.MethodPost, path, secret, body))
}

func (w *world) get(path, secret string) answer {
	w.Helper()
	return w.do(request(http.MethodGet, path, secret, nil))
}

// want fails the test if the answer is another one; kind is that of a problem, or "".
func (w *world) want(a answer, status int, kind string) answer {
	w.Helper()
	if a.status != status || a.kind() != kind {
		w.Fatalf("got %d %q: %s, want %d %q", a.status, a.kind(), a.text, status, kind)
	}
	return a
}

// object is a body.
type object map[string]any

// hand is a holder behind the server, as a client of it keeps it.
type hand struct {
	w            *world
	secret, name string
	token        float64
	beat         string
	n            int
}

// acquire takes a lock that is free.
func (w *world) acquire(secret, name, owner string) *hand {
	w.Helper()
	a := w.want(w.post("/v1/acquire", secret, object{"name": name, "owner": owner, "host": "web-7"}), 200, "")
	return &hand{w: w, secret: secret, name: name, token: a.number("token"), beat: a.string("beat")}
}

// next returns a beat that may follow.
func (h *hand) next() string {
	h.n++
	term, _, _ := strings.Cut(h.beat, "-")
	return fmt.Sprintf("%s-%013d", term, h.n)
}

func (h *hand) heartbeat(next string) answer {
	h.w.Helper()
	return h.w.post("/v1/heartbeat", h.secret, object{"name": h.name, "token": h.token, "after": h.beat, "next": next})
}

// beats confirms one heartbeat.
func (h *hand) beats() answer {
	h.w.Helper()
	next := h.next()
	a := h.w.want(h.heartbeat(next), 200, "")
	h.beat = next
	return a
}

func (h *hand) release() answer {
	h.w.Helper()
	return h.w.post("/v1/release", h.secret, object{"name": h.name, "token": h.token, "after": h.beat})
}

// stream is a call whose answer comes in pieces.
type stream struct {
	mu      sync.Mutex
	header  http.Header
	status  int
	text    bytes.Buffer
	fail    error // of a client that does not take it
	dropped *int  // how often something came that is not kept; nil: it is kept
	ended   chan struct{}
	cancel  context.CancelFunc
}

// open makes a call in the background.
func (w *world) open(r *http.Request) *stream {
	ctx, cancel := context.WithCancel(r.Context())
	s := &stream{header: http.Header{}, ended: make(chan struct{}), cancel: cancel}
	body := takeBody(r)
	go func() {
		defer close(s.ended)
		w.ServeHTTP(s, r.WithContext(ctx))
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fail == nil {
			note(r, body, s.status, s.header, s.text.Bytes())
		}
	}()
	return s
}

func (s *stream) Header() http.Header { return s.header }

func (s *stream) WriteHeader(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return 0, s.fail
	}
	if s.status == 0 {
		s.status = http.StatusOK
	}
	if s.dropped != nil {
		*s.dropped++
		return len(p), nil
	}
	return s.text.Write(p)
}

func (s *stream) FlushError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fail
}

func (s *stream) breaks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = io.ErrClosedPipe
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *stream) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// drop has what comes be counted only.
func (s *stream) drop() *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = new(int)
	return s
}

// pieces returns how many pieces have come to a stream of lines, some of which are dropped.
func (s *stream) pieces() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.dropped + bytes.Count(s.text.Bytes(), []byte("\n"))
}

// answer waits for the end of the call.
func (s *stream) answer(t *testing.T) answer {
	t.Helper()
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	return answerOf(t, s.status, s.header, s.text.Bytes())
}

// events returns the names of the events that have come.
func (s *stream) events() []string {
	var names []string
	for line := range strings.Lines(s.String()) {
		if name, found := strings.CutPrefix(strings.TrimSpace(line), "event: "); found {
			names = append(names, name)
		}
	}
	return names
}

// data returns the data of the last event of that name.
func (s *stream) data(t *testing.T, event string) map[string]any {
	t.Helper()
	_, rest, found := cutLast(s.String(), "event: "+event+"\ndata: ")
	if !found {
		t.Fatalf("no event %q in %q", event, s.String())
	}
	line, _, _ := strings.Cut(rest, "\n")
	var data map[string]any
	if err := json.Unmarshal([]byte(line), &data); err != nil {
		t.Fatal(err)
	}
	return data
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// fill writes n free locks into the store, past the server.
func (w *world) fill(prefix string, n int) {
	w.Helper()
	for i := range n {
		rec := driver.Record{
			Key: fmt.Sprintf("%s%06d", prefix, i), Version: fmt.Sprintf("v%d-0", i), Beat: fmt.Sprintf("v%d-0",
				i), Owner: "web-7",
			State: driver.Held, Lease: lease, Heartbeat: lease / 5, Since: time.Now(),
		}
		if _, _, err := w.store.Claim(w.Context(), rec); err != nil {
			w.Fatal(err)
		}
	}
}
