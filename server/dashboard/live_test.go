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

	"github.com/tenurelock/tenure/internal/enginetest"
)

// listening serves the pages on a listener of the loopback interface.
func listening(t *testing.T) (*site, *httptest.Server) {
	t.Helper()
	s := newSite(t)
	server := httptest.NewServer(s.pages)
	t.Cleanup(server.Close)
	t.Cleanup(s.shutdown)
	return s, server
}

// open opens a stream, which the client unpacks by itself.
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

// event reads a stream until one has the text; its name is returned, or "" at the end of the stream.
func event(r io.Reader, text string) string {
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

// A page that is open shows what its visitor may see, until that is none any more.
func TestLive(t *testing.T) {
	enginetest.MakeVerify(t)
	s, server := listening(t)
	stream := s.open(server, "view=now", s.signIn(asker))
	kind := stream.Header.Get("Content-Type")
	if stream.StatusCode != 200 || kind != "text/event-stream" || !stream.Uncompressed {
		t.Fatalf("%s, %s, compressed: %v", stream.Status, kind, stream.Uncompressed)
	}
	body := bufio.NewReader(stream.Body)
	follows := func(name, text string) {
		t.Helper()
		if got := event(body, text); got != name {
			t.Fatalf("event %q, not %q, with %q", got, name, text)
		}
	}
	follows("live", "There is no lock that asker may read.")
	s.holds("team/x", "web-1")
	s.holds("secret/y", "web-2")
	follows("live", "<bdi>team/x</bdi>")
	s.set("asker " + asker + " read:secret/\n")
	follows("live", "<bdi>secret/y</bdi>")
	s.set("alice " + alice + " admin:\n")
	follows("out", "out")

	body = bufio.NewReader(s.open(server, "view=doctor", s.signIn(alice)).Body)
	follows("live", "Reads take")
	s.shutdown()
	if rest, err := io.ReadAll(body); err != nil {
		t.Errorf("the end: %v after %d bytes", err, len(rest))
	}
}

func TestLiveRefuses(t *testing.T) {
	s, server := listening(t)
	cookie := s.signIn(alice)
	opens := func(query, cookie string, want int) {
		t.Helper()
		if got := s.open(server, query, cookie); got.StatusCode != want {
			t.Errorf("%q: %s, want %d", query, got.Status, want)
		}
	}
	opens("view=nothing", cookie, 400)
	opens("", cookie, 400)
	opens("view=now", "", 401)
	for i := range 32 { // One principal cannot have all streams.
		opens(fmt.Sprint("view=now&n=", i), cookie, 200)
	}
	opens("view=now", cookie, 503)
	opens("view=now", s.signIn(reader), 200)
}

// A stream that nobody reads holds up no other one.
func TestLiveNeverRead(t *testing.T) {
	enginetest.MakeVerify(t)
	s, server := listening(t)
	cookie := s.signIn(alice)
	for i := range 30 {
		s.holds(fmt.Sprintf("team/%02d", i), strings.Repeat("o", 500)+fmt.Sprint(i))
	}
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /live?view=now HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: %s\r\n\r\n", cookie)
	body := bufio.NewReader(s.open(server, "view=now", cookie).Body)
	for range 3 { // as the ages of the locks go on
		if event(body, "30 locks") != "live" {
			t.Fatal("another stream is held up")
		}
	}
}
