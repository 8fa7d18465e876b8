// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/server/access"
)

// listening serves the pages on a listener of the loopback interface.
func listening(t *testing.T) (*site, *httptest.Server) {
	t.Helper()
	s := newSite(t)
	server := httptest.NewServer(s.pages)
	t.Cleanup(server.Close)
	t.Cleanup(s.pages.Shutdown)
	return s, server
}

// open opens a stream.
func (s *site) open(server *httptest.Server, query, cookie string) *http.Response {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	s.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/live?"+query, nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Cookie", cookie)
	answer, err := server.Client().Do(r)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { answer.Body.Close() })
	return answer
}

// events reads a stream until one has the text; its name is returned, or "" at the end of the
// stream.
func events(r io.Reader, text string) string {
	name, data := "", ""
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "event: "):
			name, data = line[len("event: "):], ""
		case strings.HasPrefix(line, "data:"):
			data += line[len("data:"):] + "\n"
		case line == "" && name != "" && strings.Contains(name+data, text):
			return name
		}
	}
	return ""
}

func TestLive(t *testing.T) {
	s, server := listening(t)
	stream := s.open(server, "view=now", s.signIn(aliceToken))
	if got := stream.Header.Get("Content-Type"); stream.StatusCode != http.StatusOK || got != "text/event-stream" {
		t.Fatalf("%s, %s", stream.Status, got)
	}
	body := bufio.NewReader(stream.Body)
	if got := events(body, "There are no locks yet."); got != "live" {
		t.Fatalf("first event %q", got)
	}
	s.holds("team/x", "web-1")
	if got := events(body, "<bdi>team/x</bdi>"); got != "live" {
		t.Errorf("event %q", got)
	}
	s.pages.Shutdown()
	if rest, err := io.ReadAll(body); err != nil {
		t.Errorf("the end: %v after %d bytes", err, len(rest))
	}
}

// TestLiveOfAVisitor ends when the visitor is none any more, and shows what it may see.
func TestLiveOfAVisitor(t *testing.T) {
	s, server := listening(t)
	s.holds("team/x", "web-1")
	s.holds("secret/y", "web-2")
	body := bufio.NewReader(s.open(server, "view=now", s.signIn(askerToken)).Body)
	if events(body, "1 lock") != "live" {
		t.Fatal("no list")
	}
	if err := s.users.set(askerToken, access.Grant{Right: access.Read, Prefix: "secret/"}); err != nil {
		t.Fatal(err)
	}
	if events(body, "<bdi>secret/y</bdi>") != "live" {
		t.Error("a right that was given does not show")
	}
	if err := s.users.set(askerToken); err != nil {
		t.Fatal(err)
	}
	if events(body, "out") != "out" {
		t.Error("the stream of a principal that is gone goes on")
	}
}

func TestLiveRefuses(t *testing.T) {
	s, server := listening(t)
	cookie := s.signIn(aliceToken)
	for query, want := range map[string]int{"view=nothing": http.StatusBadRequest, "": http.StatusBadRequest} {
		if got := s.open(server, query, cookie); got.StatusCode != want {
			t.Errorf("%q: %s", query, got.Status)
		}
	}
	if got := s.open(server, "view=now", ""); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a cookie: %s", got.Status)
	}
	// One principal cannot have all streams.
	for i := range 32 {
		if got := s.open(server, fmt.Sprint("view=now&n=", i), cookie); got.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %s", i, got.Status)
		}
	}
	if got := s.open(server, "view=now", cookie); got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %s", got.Status)
	}
	if got := s.open(server, "view=now", s.signIn(readerToken)); got.StatusCode != http.StatusOK {
		t.Errorf("another principal: %s", got.Status)
	}
}

// TestLiveNeverRead leaves a stream that nobody reads, and is served all the same.
func TestLiveNeverRead(t *testing.T) {
	s, server := listening(t)
	cookie := s.signIn(aliceToken)
	for i := range 30 {
		s.holds(fmt.Sprintf("team/%02d", i), strings.Repeat("o", 500))
	}
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /live?view=now HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nCookie: %s\r\n\r\n", cookie)
	body := bufio.NewReader(s.open(server, "view=now", cookie).Body)
	for range 3 { // as the ages of the locks go on
		if events(body, "30 locks") != "live" {
			t.Fatal("another stream is held up")
		}
	}
}

// TestLivePacked compresses a stream, and sends each event at once.
func TestLivePacked(t *testing.T) {
	s, server := listening(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/live?view=doctor", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", s.signIn(aliceToken))
	a, err := server.Client().Do(r) // it unpacks by itself
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if !a.Uncompressed {
		t.Error("the stream is not compressed")
	}
	if events(a.Body, "Reads take") != "live" {
		t.Error("no event")
	}
}
