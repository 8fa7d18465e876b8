// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tenurelock/tenure/internal/testutil"
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
spiffe://corp/batch cert hold:batch/
`
)

// object is a body.
type object map[string]any

// with returns the body with more in it.
func (o object) with(more ...object) object {
	for _, m := range more {
		maps.Copy(o, m)
	}
	return o
}

// request returns a call; a body that is text is sent as it is.
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

// answer is what a call got.
type answer struct {
	status int
	header http.Header
	text   string
	json   object
}

func answerOf(t *testing.T, res *http.Response) answer {
	t.Helper()
	a := answer{status: res.StatusCode, header: res.Header, text: string(testutil.Must(io.ReadAll(res.Body))(t))}
	if strings.Contains(a.header.Get("Content-Type"), "json") && a.text != "" {
		if err := json.Unmarshal([]byte(a.text), &a.json); err != nil {
			t.Errorf("the answer is no JSON: %v: %q", err, a.text)
		}
	}
	if a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("the answer may be cached or sniffed: %v", a.header)
	}
	return a
}

// kind returns the kind of the problem, or "" if the answer is not a problem.
func (a answer) kind() string { return strings.TrimPrefix(a.string("type"), "urn:tenure:problem:") }

func (a answer) string(name string) string {
	s, _ := a.json[name].(string)
	return s
}

func (a answer) number(name string) float64 {
	n, _ := a.json[name].(float64)
	return n
}

func (w *world) post(path, secret string, body any) answer {
	w.Helper()
	return w.do(request(http.MethodPost, path, secret, body))
}

func (w *world) get(path, secret string) answer {
	w.Helper()
	return w.do(request(http.MethodGet, path, secret, nil))
}

// want fails the test if the answer differs; kind is the kind of a problem, or "".
func (w *world) want(a answer, status int, kind string) answer {
	w.Helper()
	if a.status != status || a.kind() != kind {
		w.Fatalf("got %d %q: %s, want %d %q", a.status, a.kind(), a.text, status, kind)
	}
	return a
}

// hand is a holder behind the server, as a client of it keeps it.
type hand struct {
	w            *world
	secret, name string
	token        float64
	beat         string
	n            int
}

// hand returns the holder to which an answer has granted the lock.
func (w *world) hand(secret, name string, granted answer) *hand {
	return &hand{w: w, secret: secret, name: name, token: granted.number("token"), beat: granted.string("beat")}
}

// acquire takes a lock that is free.
func (w *world) acquire(secret, name, owner string) *hand {
	w.Helper()
	a := w.post("/v1/acquire", secret, object{"name": name, "owner": owner, "host": "web-7"})
	return w.hand(secret, name, w.want(a, 200, ""))
}

// body returns what a call says of the holder, and more.
func (h *hand) body(more ...object) object {
	return object{"name": h.name, "token": h.token, "after": h.beat}.with(more...)
}

// next returns a beat that may follow.
func (h *hand) next() string {
	h.n++
	term, _, _ := strings.Cut(h.beat, "-")
	return fmt.Sprintf("%s-%013d", term, h.n)
}

func (h *hand) heartbeat(next string) answer {
	h.w.Helper()
	return h.w.post("/v1/heartbeat", h.secret, h.body(object{"next": next}))
}

// beats confirms one heartbeat.
func (h *hand) beats() answer {
	h.w.Helper()
	next := h.next()
	a := h.w.want(h.heartbeat(next), 200, "")
	h.beat = next
	return a
}

func (h *hand) release(more ...object) answer {
	h.w.Helper()
	return h.w.post("/v1/release", h.secret, h.body(more...))
}

// stream is a call in a bubble, whose answer comes in pieces.
type stream struct {
	*httptest.ResponseRecorder // its Code is 0 until there is one
	t                          *testing.T
	broken                     atomic.Bool // nothing can be sent any more
	ended                      chan struct{}
	cancel                     context.CancelFunc
}

// call makes a call, and waits for its answer.
func (w *world) call(r *http.Request) answer {
	w.Helper()
	s := &stream{ResponseRecorder: httptest.NewRecorder()}
	w.carryOut(r, s)
	return answerOf(w.T, s.Result())
}

// open makes a call in the background.
func (w *world) open(r *http.Request) *stream {
	ctx, cancel := context.WithCancel(r.Context())
	s := &stream{ResponseRecorder: httptest.NewRecorder(), t: w.T, ended: make(chan struct{}), cancel: cancel}
	s.Code = 0
	go func() {
		defer close(s.ended)
		w.carryOut(r.WithContext(ctx), s)
	}()
	return s
}

func (w *world) carryOut(r *http.Request, s *stream) {
	body := takeBody(r)
	w.ServeHTTP(s, r)
	if !s.broken.Load() {
		note(r, body, s.Code, s.Header(), s.Body.Bytes())
	}
}

func (s *stream) Write(p []byte) (int, error) {
	if s.broken.Load() {
		return 0, io.ErrClosedPipe
	}
	return s.ResponseRecorder.Write(p)
}

func (s *stream) FlushError() error {
	if s.broken.Load() {
		return io.ErrClosedPipe
	}
	s.Flush()
	return nil
}

// String returns what has come, when everything else has come to rest.
func (s *stream) String() string {
	synctest.Wait()
	return s.Body.String()
}

// answer waits for the end of the call.
func (s *stream) answer() answer {
	s.t.Helper()
	<-s.ended
	return answerOf(s.t, s.Result())
}

// leave ends the call, as a client does that goes away.
func (s *stream) leave() {
	s.cancel()
	<-s.ended
}

// events returns the names of the events that have come, and the last one of each.
func (s *stream) events() (names []string, last map[string]answer) {
	s.t.Helper()
	last = map[string]answer{}
	for event := range strings.SplitSeq("\n"+s.String(), "\nevent: ") {
		if name, data, found := strings.Cut(event, "\ndata: "); found {
			var a answer
			a.text, _, _ = strings.Cut(data, "\n")
			testutil.Want(s.t, json.Unmarshal([]byte(a.text), &a.json), nil)
			names, last[name] = append(names, name), a
		}
	}
	return names, last
}
