// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/server"
)

var update = flag.Bool("update", false, "write what the attacks got into testdata/attacks.txt")

// TestAttacks attacks the server, and compares what each attack got with testdata/attacks.txt.
// The table is for people: what it says was measured here. Run it with -update after a
// change that is meant, and read the difference.
func TestAttacks(t *testing.T) {
	got := map[string]string{}
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			inWorldWith(t, worldOptions{options: a.options}, func(w *world) { got[a.name] = a.run(w) })
		})
	}
	for _, a := range networkAttacks {
		t.Run(a.name, func(t *testing.T) { got[a.name] = a.run(t) })
	}
	var table strings.Builder
	for _, name := range slices.Sorted(maps.Keys(got)) {
		fmt.Fprintf(&table, "%s\n    %s\n", name, got[name])
	}
	file := filepath.Join("testdata", "attacks.txt")
	if *update {
		if err := os.WriteFile(file, []byte(table.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if row := name + "\n    " + got[name] + "\n"; !strings.Contains(string(want), row) {
			t.Errorf("this is not in %s:\n%s", file, row)
		}
	}
	if n := strings.Count(string(want), "\n") / 2; n != len(attacks)+len(networkAttacks) {
		t.Errorf("%s has %d attacks, and there are %d", file, n, len(attacks)+len(networkAttacks))
	}
}

// attack is one row. Run does it, and says what it got.
type attack struct {
	name    string
	options func(*server.Options)
	run     func(*world) string
}

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

// after says what is left of a lock after an attack on it.
func (h *hand) after() string {
	next := h.next()
	if a := h.heartbeat(next); a.status != 200 {
		return "THE HOLDER HAS LOST IT: " + a.text
	}
	h.beat = next
	return "the holder holds on"
}

var attacks = []attack{
	{name: "no token, at each route that has a right", run: func(w *world) string {
		n := tally{}
		for _, c := range calls("jobs/a") {
			n.add(w.do(c.r("")))
		}
		return n.String()
	}},
	{name: "the name of a principal, its sum, and words of the file as tokens", run: func(w *world) string {
		n := tally{}
		for _, secret := range []string{"ci", "cert", "sha256:", "hold:jobs/", "#", ci[:len(ci)-1], ci + "x", strings.ToUpper(ci)} {
			n.add(w.get("/v1/locks", secret))
		}
		return n.String()
	}},
	{name: "1000 wrong tokens from one address", run: func(w *world) string {
		n := tally{}
		for i := range 1000 {
			n.add(w.get("/v1/locks", fmt.Sprintf("wrong-secret-%010d", i)))
		}
		return fmt.Sprintf("%s; the right one from the same address: %d; %d lines in the log", n, w.get("/v1/locks", ci).status, strings.Count(w.log.String(), "\n"))
	}},
	{name: "1000 wrong tokens under other addresses in X-Forwarded-For", run: func(w *world) string {
		n := tally{}
		for i := range 1000 {
			r := request("GET", "/v1/locks", "wrong-secret-0123456789", nil)
			r.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i%250))
			n.add(w.do(r))
		}
		return n.String()
	}},
	{name: "a token in the query, in a cookie, in the body", run: func(w *world) string {
		n := tally{}
		n.add(w.get("/v1/locks?access_token="+ci, ""))
		r := request("GET", "/v1/locks", "", nil)
		r.Header.Set("Cookie", "Authorization=Bearer "+ci)
		n.add(w.do(r))
		n.add(w.post("/v1/acquire", "", object{"name": "jobs/a", "owner": "x", "token": ci}))
		return n.String()
	}},
	{name: "another principal's prefix, at each route that has a right", run: func(w *world) string {
		n := tally{}
		for _, c := range calls("jobs/a") {
			n.add(w.do(c.r(web)))
		}
		return n.String()
	}},
	{name: "a list and a stream of all names, by whoever may read one prefix", run: func(w *world) string {
		w.acquire(ci, "jobs/secret-name", "web-7")
		list := w.get("/v1/locks?prefix=", web)
		s := w.follow(web, "prefix=", "application/x-ndjson")
		time.Sleep(3 * time.Second)
		s.cancel()
		<-s.ended
		return fmt.Sprintf("%d, %d, the other's name is shown: %v", list.status, s.status, strings.Contains(list.text+s.String(), "secret-name"))
	}},
	{name: "records that Tenure keeps for itself, by whoever may do all", run: func(w *world) string {
		n := tally{}
		for _, name := range []string{"tenure/session/x", "tenure/history/jobs/a/0000000000000000001", "tenure/", "tenure/fence/jobs/a"} {
			for _, c := range calls(name) {
				n.add(w.do(c.r(alice)))
			}
		}
		return n.String()
	}},
	{
		name: "derived names (ledger, slots, partitions), by a right to a prefix that begins them",
		options: func(o *server.Options) {
			o.Principals, _ = server.ParsePrincipals("sly secret-of-sly-0123456789 hold,ask,revoke:nightly: hold,ask,revoke:pool:s hold,ask,revoke:group:p\n")
		},
		run: func(w *world) string {
			n := tally{}
			for _, name := range []string{"nightly:once", "nightly:every", "pool:slot/0", "pool:slots", "group:part/7", "group:part/7:once"} {
				for _, c := range calls(name) {
					n.add(w.do(c.r("secret-of-sly-0123456789")))
				}
			}
			return n.String()
		},
	},
	{name: "a heartbeat is replayed, when the holder is one and two beats further", run: func(w *world) string {
		n := tally{}
		h := w.acquire(ci, "jobs/a", "web-7")
		replay := *h
		next := replay.next()
		h.beats()
		n.add(replay.heartbeat(next))
		h.beats()
		n.add(replay.heartbeat(next))
		return fmt.Sprintf("%s; %s", n, h.after())
	}},
	{name: "heartbeats are replayed for a minute after the holder died", run: func(w *world) string {
		h := w.acquire(ci, "jobs/a", "web-7")
		dead := *h
		next := dead.next()
		h.beats()
		n := tally{}
		begun := time.Now()
		other := w.open(request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 20000}))
		for time.Since(begun) < time.Minute {
			time.Sleep(time.Second)
			n[fmt.Sprint(dead.heartbeat(next).status)]++
			if other.over() {
				break
			}
		}
		return fmt.Sprintf("another holder has it within a lease and a heartbeat of the last beat: %v", time.Since(begun) <= lease+lease/5)
	}},
	{name: "a release is replayed, when another holder has the lock", run: func(w *world) string {
		first := w.acquire(ci, "jobs/a", "web-7")
		first.beats()
		first.release()
		second := w.acquire(ci, "jobs/a", "web-8")
		second.beats()
		n := tally{}
		n.add(first.release())
		return fmt.Sprintf("%s, without effect; %s", n, second.after())
	}},
	{name: "an acquire is replayed", run: func(w *world) string {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		n := tally{}
		n.add(w.post("/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-7", "host": "web-7"}))
		return fmt.Sprintf("%s; %s", n, h.after())
	}},
	{
		name:    "1000 beats are guessed, by whoever may hold the lock and knows its token",
		options: func(o *server.Options) { o.Limits.Beats = 10_000 },
		run: func(w *world) string {
			h := w.acquire(ci, "jobs/a", "web-7")
			h.beats()
			term, _, _ := strings.Cut(h.beat, "-")
			n := tally{}
			for i := range 500 {
				for _, guess := range []string{fmt.Sprintf("%s-%013d", term, i+5), fmt.Sprintf("%013d-%013d", i, i)} {
					own, _, _ := strings.Cut(guess, "-")
					n.add(w.post("/v1/heartbeat", ci, object{"name": "jobs/a", "token": 1, "after": guess, "next": own + "-abcdefghijklm"}))
				}
			}
			return fmt.Sprintf("%s; %s", n, h.after())
		},
	},
	{name: "the beat is looked for in all that the server shows, and in its log", run: func(w *world) string {
		s := w.follow(alice, "prefix=", "application/x-ndjson")
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		time.Sleep(3 * time.Second)
		all := s.String() + w.log.String()
		for _, path := range []string{"/v1/status?name=jobs/a", "/v1/locks", "/v1/history?name=jobs/a", "/v1/leader?name=jobs/a", "/metrics", "/v1/once?name=jobs/a"} {
			all += w.get(path, alice).text
		}
		all += w.post("/v1/acquire", alice, object{"name": "jobs/a", "owner": "x"}).text
		other := *h
		other.beat = "AAAAAAAAAAAAA-0000000000000"
		all += other.heartbeat("AAAAAAAAAAAAA-0000000000001").text
		s.cancel()
		<-s.ended
		term, rest, _ := strings.Cut(h.beat, "-")
		return fmt.Sprintf("found: %v", strings.Contains(all, term) || strings.Contains(all, rest))
	}},
	{
		name:    "one principal waits 2000 times, and asks 2000 times; another one's holder goes on",
		options: func(o *server.Options) { o.Limits = server.Limits{Waits: 100} },
		run: func(w *world) string {
			h := w.acquire(ci, "jobs/a", "web-7")
			h.beats()
			n := tally{}
			var waits []*stream
			for i := range 2000 {
				s := w.open(request("POST", "/v1/acquire", alice, object{"name": "jobs/a", "owner": fmt.Sprint(i), "wait_ms": 20000}))
				waits = append(waits, s)
				if time.Sleep(10 * time.Millisecond); s.over() {
					n.add(s.answer(w.T))
				}
				if i%200 == 0 {
					h.beats()
				}
			}
			for range 2000 {
				n.add(w.get("/v1/status?name=jobs/a", alice))
			}
			result := fmt.Sprintf("%s; %s", n, h.after())
			for _, s := range waits {
				s.cancel()
				<-s.ended
			}
			return result
		},
	},
	{name: "100,000 names, listed and followed", run: func(w *world) string {
		w.fill("jobs/", 100_000)
		list := w.get("/v1/locks?limit=1000", ci)
		s := w.follow(ci, "prefix=", "application/x-ndjson")
		<-s.ended
		n := len(list.json["locks"].([]any))
		return fmt.Sprintf("%d with %d names in %d kB; the stream ends: %s", list.status, n, len(list.text)>>10, strings.Join(s.lines(), ", "))
	}},
	{name: "10,000 names are acquired as fast as can be", run: func(w *world) string {
		n := tally{}
		for i := range 10_000 {
			n.add(w.post("/v1/acquire", ci, object{"name": fmt.Sprintf("jobs/%d", i), "owner": "web-7"}))
		}
		return n.String()
	}},
	{name: "a web page of another site posts to loopback, as browsers send it", run: func(w *world) string {
		n := tally{}
		for _, headers := range []http.Header{
			{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}, "Content-Type": {"text/plain"}},
			{"Sec-Fetch-Site": {"same-site"}, "Origin": {"https://evil.example"}, "Content-Type": {"application/json"}},
			{"Origin": {"https://evil.example"}, "Content-Type": {"application/json"}},
			{"Origin": {"null"}, "Content-Type": {"application/x-www-form-urlencoded"}},
		} {
			r := request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "x"})
			maps.Copy(r.Header, headers)
			n.add(w.do(r))
		}
		r := request("POST", "/v1/acquire", "", `{"name":"jobs/a","owner":"x"}`)
		r.Header.Set("Content-Type", "text/plain") // an old browser, which sends none of these
		n.add(w.do(r))
		return n.String()
	}},
	{name: "a preflight asks whether another site may call", run: func(w *world) string {
		r := request("OPTIONS", "/v1/acquire", "", nil)
		r.Header = http.Header{"Origin": {"https://evil.example"}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"authorization"}}
		a := w.do(r)
		return fmt.Sprintf("%d %s, Access-Control-Allow-Origin: %q", a.status, a.kind(), a.header.Get("Access-Control-Allow-Origin"))
	}},
	{name: "a name that was pointed at 127.0.0.1 (DNS rebinding), with a good token", run: func(w *world) string {
		n := tally{}
		for _, c := range calls("jobs/a") {
			r := c.r(ci)
			r.Host = "evil.example:7070"
			n.add(w.do(r))
		}
		for _, path := range []string{"/", "/metrics", "/openapi.json"} {
			r := request("GET", path, ci, nil)
			r.Host = "evil.example:7070"
			n.add(w.do(r))
		}
		return n.String()
	}},
	{name: "line feeds in names, owners, labels, hosts and reasons", run: func(w *world) string {
		n := tally{}
		const evil = "a\r\nSet-Cookie: x=1\r\n\r\nlevel=ERROR msg=forged"
		for _, field := range []string{"name", "owner", "label", "host"} {
			body := object{"name": "jobs/a", "owner": "x"}
			body[field] = "jobs/" + evil
			n.add(w.post("/v1/acquire", ci, body))
		}
		for _, field := range []string{"name", "reason", "to"} {
			body := object{"name": "jobs/a", "kind": "hand-over", "to": "x", "reason": "y", "wait_ms": 0}
			body[field] = "jobs/" + evil
			a := n.add(w.post("/v1/requests", ops, body))
			if len(a.header["Set-Cookie"]) > 0 {
				return "A HEADER OF THE ATTACKER'S"
			}
		}
		w.get("/v1/status?name="+url.QueryEscape(evil), ci)
		forged := 0
		for line := range strings.Lines(w.log.String()) {
			if strings.HasPrefix(line, "level=ERROR") || !strings.HasPrefix(line, "time=") {
				forged++
			}
		}
		return fmt.Sprintf("%s; forged lines in the log: %d", n, forged)
	}},
	{name: "paths and methods that look like others", run: func(w *world) string {
		n := tally{}
		for _, path := range []string{"//v1/locks", "/v1//locks", "/v1/locks/", "/V1/LOCKS", "/v1/x/../locks", "/v1/locks%00", "/v1/locks;a=b"} {
			n.add(w.get(path, ""))
		}
		for _, method := range []string{"PUT", "DELETE", "PATCH", "TRACE", "get", "X"} {
			r := request(method, "/v1/acquire", ci, object{"name": "jobs/a", "owner": "x"})
			r.Header.Set("X-HTTP-Method-Override", "POST")
			n.add(w.do(r))
		}
		return n.String()
	}},
	{name: "a certificate that nobody has verified", run: func(w *world) string {
		r := request("GET", "/v1/locks", "", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "alice"}}}}
		a := w.do(r)
		return fmt.Sprintf("%d %s", a.status, a.kind())
	}},
}

// networkAttacks want a real connection.
var networkAttacks = []struct {
	name string
	run  func(*testing.T) string
}{
	{"a body that comes byte by byte, and never ends", func(t *testing.T) string {
		w := newReal(t, loopback(t), nil)
		w.SetTimeouts(200*time.Millisecond, time.Second)
		c := w.dial()
		c.write("POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer " + ci + "\r\nContent-Length: 100000\r\n\r\n{")
		go func() {
			for range 100_000 {
				if _, err := c.Write([]byte(" ")); err != nil {
					return
				}
				<-time.After(20 * time.Millisecond)
			}
		}()
		status, ended := c.answer()
		return fmt.Sprintf("%s; the connection is closed: %v", status, ended)
	}},
	{"headers that come byte by byte", func(t *testing.T) string {
		w := newReal(t, loopback(t), nil, func(s *http.Server) { s.ReadHeaderTimeout /= 20 })
		c := w.dial()
		c.write("POST /v1/acquire HTTP/1.1\r\nHost: local")
		status, ended := c.answer()
		return fmt.Sprintf("%s; the connection is closed: %v", status, ended)
	}},
	{"a header of 10 MB", func(t *testing.T) string {
		w := newReal(t, loopback(t), nil)
		c := w.dial()
		go func() {
			_, _ = io.WriteString(c, "GET /v1/locks HTTP/1.1\r\nHost: localhost\r\nX: ")
			_, _ = c.Write(bytes.Repeat([]byte("x"), 10<<20)) // cut off somewhere
		}()
		status, ended := c.answer()
		return fmt.Sprintf("%s; the connection is closed: %v", status, ended)
	}},
	{"20 bodies of 10 MB at once, with their length and without", func(t *testing.T) string {
		w := newReal(t, loopback(t), nil)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var all sync.WaitGroup
		var refused atomic.Int32
		for i := range 20 {
			all.Go(func() {
				if w.refusesBody(i%2 == 0) {
					refused.Add(1)
				}
			})
		}
		all.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		return fmt.Sprintf("refused: %d of 20; no memory is left behind: %v", refused.Load(), after.HeapAlloc < before.HeapAlloc+16<<20)
	}},
	{"a stream of events that is never read", func(t *testing.T) string {
		w := newReal(t, small{loopback(t)}, nil)
		w.SetTimeouts(time.Second, 300*time.Millisecond)
		(&world{T: t, store: w.store}).fill("jobs/", 10_000)
		c := w.dial()
		c.write("GET /v1/events?prefix=jobs/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + ci + "\r\nAccept: text/event-stream\r\n\r\n")
		waits := func(n string) bool {
			return strings.Contains(w.do("GET", "/metrics", ci, nil, nil).text, `tenure_server_waits{for="events"} `+n)
		}
		w.until("it follows", func() bool { return waits("1") })
		w.until("it is cut off", func() bool { return waits("0") })
		w.until("its feed has ended", func() bool { return w.Feeds() == 0 })
		w.holds(ci, "jobs/other")
		return "cut off; others are served, and its feed has ended"
	}},
	{"an answer that is never read", func(t *testing.T) string {
		w := newReal(t, small{loopback(t)}, nil)
		w.SetTimeouts(time.Second, 300*time.Millisecond)
		(&world{T: t, store: w.store}).fill("jobs/", 10_000)
		c := w.dial()
		c.write("GET /v1/locks?limit=1000 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + ci + "\r\n\r\n")
		w.until("it is answered", func() bool {
			return strings.Contains(w.do("GET", "/metrics", ci, nil, nil).text, `tenure_server_calls_total{route="/v1/locks",status="200"} 1`)
		})
		return "cut off"
	}},
}

// refusesBody sends a body of 10 MB. The server answers 413, or cuts the connection before
// the client has read that, because it reads no further.
func (w *real) refusesBody(told bool) bool {
	body := io.MultiReader(strings.NewReader(`{"name":"`), io.LimitReader(endless{}, 10<<20))
	r, err := http.NewRequestWithContext(w.Context(), "POST", w.url+"/v1/acquire", body)
	if err != nil {
		w.Error(err)
		return false
	}
	if told {
		r.ContentLength = 9 + 10<<20
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+ci)
	res, err := w.http.Do(r)
	if err != nil {
		return true
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusRequestEntityTooLarge
}

// small is a listener whose connections take little before somebody reads it.
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
