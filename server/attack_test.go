// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// tally counts what many calls got, as "429 limited x 3".
type tally map[string]int

func (n tally) add(a answer) answer {
	n[strings.TrimSpace(fmt.Sprintf("%d %s", a.status, a.kind()))]++
	return a
}

func (n tally) String() string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(n)) {
		all = append(all, fmt.Sprintf("%s x %d", what, n[what]))
	}
	return strings.Join(all, ", ")
}

// A beat is a secret: a client that has it can act in place of the holder.
func TestTheBeatIsShownNowhere(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.follow(alice, "prefix=", "application/x-ndjson")
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		time.Sleep(3 * time.Second)
		all := s.String() + w.logged()
		for _, path := range []string{
			"/v1/status?name=jobs/a", "/v1/locks", "/v1/history?name=jobs/a",
			"/v1/leader?name=jobs/a", "/metrics", "/v1/once?name=jobs/a",
		} {
			all += w.get(path, alice).text
		}
		all += w.post("/v1/acquire", alice, object{"name": "jobs/a", "owner": "x"}).text
		other := *h
		other.beat = "AAAAAAAAAAAAA-0000000000000"
		all += other.heartbeat("AAAAAAAAAAAAA-0000000000001").text
		s.leave()
		if term, rest, _ := strings.Cut(h.beat, "-"); strings.Contains(all, term) || strings.Contains(all, rest) {
			w.Error("the beat is shown")
		}
	})
}

// A web page of another site posts to loopback as browsers send it, or asks whether it may.
func TestOtherSites(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, headers := range []http.Header{
			{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}, "Content-Type": {"text/plain"}},
			{"Sec-Fetch-Site": {"same-site"}, "Origin": {"https://evil.example"}},
			{"Origin": {"https://evil.example"}},
			{"Origin": {"null"}, "Content-Type": {"application/x-www-form-urlencoded"}},
		} {
			r := request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "x"})
			maps.Copy(r.Header, headers)
			w.want(w.do(r), 403, "forbidden")
		}
		r := request("OPTIONS", "/v1/acquire", "", nil)
		r.Header = http.Header{
			"Origin": {"https://evil.example"}, "Access-Control-Request-Method": {"POST"},
			"Access-Control-Request-Headers": {"authorization"},
		}
		if a := w.want(w.do(r), 405, "method-not-allowed"); a.header.Get("Access-Control-Allow-Origin") != "" {
			w.Errorf("another site may call: %v", a.header)
		}
	})
}

// A stream that nobody reads is cut off, and ends what follows for it.
func TestAStreamThatIsNeverRead(t *testing.T) {
	w := newReal(t, small{loopback(t)}, nil)
	w.SetTimeouts(time.Second, 300*time.Millisecond)
	w.fill("jobs/", 10_000)
	w.dial().write("GET /v1/events?prefix=jobs/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + ci +
		"\r\nAccept: text/event-stream\r\n\r\n")
	waits := func(n string) bool {
		return strings.Contains(w.get("/metrics", ci).text, `tenure_server_waits{for="events"} `+n)
	}
	w.Until("it follows", func() bool { return waits("1") })
	w.Until("it is cut off", func() bool { return waits("0") })
	w.Until("its feed has ended", func() bool { return w.Feeds() == 0 })
	h := w.acquire(ci, "jobs/other", "web-7")
	h.beats()
	w.want(h.release(), 200, "")
}

// small is a listener whose connections buffer little until they are read.
type small struct{ net.Listener }

func (l small) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return c, err
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// raw is a connection on which anything is said.
type raw struct {
	*testing.T
	net.Conn
}

func (w *real) dial() *raw {
	w.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err == nil {
		err = errors.Join(c.(*net.TCPConn).SetReadBuffer(4<<10), c.SetDeadline(time.Now().Add(patient)))
	}
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return &raw{w.T, c}
}

func (c *raw) write(text string) {
	c.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.Fatal(err)
	}
}

// answer returns the first line of an answer, and whether the connection ended after it,
// within a time that is not the test's own.
func (c *raw) answer() (status string, ended bool) {
	c.Helper()
	reader := bufio.NewReader(c)
	line, err := reader.ReadString('\n')
	status = strings.TrimSpace(line)
	for err == nil {
		_, err = reader.Discard(1)
	}
	if status == "" {
		status = "no answer"
	}
	return status, !errors.Is(err, os.ErrDeadlineExceeded)
}
