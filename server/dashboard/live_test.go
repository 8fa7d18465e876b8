// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// stream is what a page that is open is sent, compressed.
type stream struct {
	*httptest.ResponseRecorder
	in  *io.PipeWriter
	out *io.PipeReader
}

func (s stream) Write(b []byte) (int, error) { return s.in.Write(b) }

func (s stream) Flush() {}

// open opens a stream, which ends with the test.
func (s *site) open(query, cookie string) stream {
	ctx, cancel := context.WithCancel(s.Context())
	r := httptest.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:8080/live?"+query, nil)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set("Cookie", cookie)
	of := stream{ResponseRecorder: httptest.NewRecorder()}
	of.out, of.in = io.Pipe()
	go func() {
		s.pages.ServeHTTP(of, r)
		of.in.Close()
	}()
	s.Cleanup(func() {
		cancel()
		of.out.Close()
	})
	return of
}

// read unpacks what comes, and waits for the first of it.
func (s *site) read(of stream) *bufio.Scanner {
	s.Helper()
	body, err := gzip.NewReader(of.out)
	if err != nil {
		s.Fatal(err)
	}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	return lines
}

// follows reads a stream until an event has the text, and fails the test if that has another name.
func (s *site) follows(lines *bufio.Scanner, want, text string) {
	s.Helper()
	name, data := "", ""
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "event: "):
			name, data = line[len("event: "):], ""
		case strings.HasPrefix(line, "data:"):
			data += line[len("data:"):] + "\n"
		case line == "" && name != "" && strings.Contains(name+data, text):
			if name != want {
				s.Fatalf("event %q, not %q, with %q", name, want, text)
			}
			return
		}
	}
	s.Fatalf("no event with %q: %v", text, lines.Err())
}

// An open page shows what its visitor may see, until that visitor may see nothing.
func TestLive(t *testing.T) {
	inSite(t, func(s *site) {
		stream := s.open("view=now", s.signIn(requester))
		lines := s.read(stream)
		if kind := stream.Header().Get("Content-Type"); kind != "text/event-stream" {
			s.Errorf("it is %s", kind)
		}
		s.follows(lines, "live", "There is no lock that requester may read.")
		s.holds("team/x", "web-1")
		s.holds("secret/y", "web-2")
		s.follows(lines, "live", "<bdi>team/x</bdi>")
		s.set("requester " + requester + " read:secret/\n")
		s.follows(lines, "live", "<bdi>secret/y</bdi>")
		s.set("alice " + alice + " admin:\n")
		s.follows(lines, "out", "out")

		lines = s.read(s.open("view=doctor", s.signIn(alice)))
		s.follows(lines, "live", "Reads take")
		s.shutdown()
		for lines.Scan() {
		}
		if err := lines.Err(); err != nil {
			s.Errorf("the end: %v", err)
		}
	})
}

func TestLiveRefuses(t *testing.T) {
	inSite(t, func(s *site) {
		cookie := s.signIn(alice)
		opens := func(query, cookie string, want int) {
			t.Helper()
			stream := s.open(query, cookie)
			s.read(stream)
			if stream.Code != want {
				t.Errorf("%q: %d, want %d", query, stream.Code, want)
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
	})
}

// A stream that nobody reads holds up no other one.
func TestLiveNeverRead(t *testing.T) {
	inSite(t, func(s *site) {
		cookie := s.signIn(alice)
		for i := range 30 {
			s.holds(fmt.Sprintf("team/%02d", i), strings.Repeat("o", 500)+fmt.Sprint(i))
		}
		s.open("view=now", cookie)
		time.Sleep(time.Second)
		lines := s.read(s.open("view=now", cookie))
		for range 3 { // as the ages of the locks go on
			s.follows(lines, "live", "30 locks")
		}
	})
}
