// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/server"
)

// calls are one good call of each route that wants a right, and the right that it wants.
func calls(name string) []struct {
	right string
	r     func(secret string) *http.Request
} {
	post := func(path string, body object) func(string) *http.Request {
		body["name"] = name
		return func(secret string) *http.Request { return request("POST", path, secret, body) }
	}
	get := func(path string) func(string) *http.Request {
		return func(secret string) *http.Request { return request("GET", path+"?name="+name, secret, nil) }
	}
	beat := object{"token": 1, "after": "a-0000000000000", "next": "a-0000000000001"}
	type row = struct {
		right string
		r     func(secret string) *http.Request
	}
	return []row{
		{"hold", post("/v1/acquire", object{"owner": "web-7"})},
		{"hold", post("/v1/heartbeat", beat)},
		{"hold", post("/v1/release", object{"token": 1, "after": "a-0000000000000"})},
		{"ask", post("/v1/requests", object{"kind": "step-down", "reason": "x"})},
		{"ask", post("/v1/requests", object{"kind": "hand-over", "to": "y", "reason": "x"})},
		{"ask", post("/v1/requests", object{"kind": "release-dead", "reason": "x"})},
		{"revoke", post("/v1/requests", object{"kind": "revoke", "reason": "x"})},
		{"read", post("/v1/fence-check", object{"token": 1})},
		{"read", get("/v1/status")},
		{"read", get("/v1/history")},
		{"read", get("/v1/leader")},
		{"read", get("/v1/once")},
		{"read", get("/v1/events")},
	}
}

// Each call needs its own right to the name, and no other right will do.
func TestEachCallNeedsItsRight(t *testing.T) {
	included := map[string][]string{
		"read": {"read"}, "hold": {"hold", "read"}, "ask": {"ask"}, "revoke": {"revoke"},
		"admin": {"read", "hold", "ask", "revoke"},
	}
	text := ""
	for right := range included {
		text += fmt.Sprintf("%s secret-of-%s-0123456789 %s:jobs/\n", right, right, right)
	}
	options := func(o *server.Options) {
		o.Principals = testutil.Must(server.ParsePrincipals(text))(t)
		o.Limits.FailedTokens = 1000
	}
	inWorld(t, func(w *world) {
		for right, covers := range included {
			secret := "secret-of-" + right + "-0123456789"
			for _, c := range calls("jobs/a") {
				may := strings.Contains(fmt.Sprint(covers), c.right)
				s := w.open(c.r(secret))
				time.Sleep(50 * time.Millisecond)
				s.cancel() // what waits
				<-s.ended
				if got := s.Code == http.StatusForbidden; got == may {
					w.Errorf("right %s, %s: status %d: %s", right, c.r("").URL, s.Code, s)
				}
			}
			for _, c := range calls("web/a") { // another prefix
				w.want(w.do(c.r(secret)), 403, "forbidden")
			}
			for _, c := range calls("tenure/session/a") { // Tenure's own
				w.want(w.do(c.r(secret)), 400, "bad-request")
			}
			for _, c := range calls("jobs/a") {
				w.want(w.do(c.r("")), 401, "unauthenticated")
				w.want(w.do(c.r("secret-of-nobody")), 401, "unauthenticated")
			}
		}
	}, options)
}

func TestTokensThatAreRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, headers := range [][]string{
			{},
			{""},
			{"Bearer"},
			{"Bearer "},
			{"Basic " + ci},
			{"Bearer x"},
			{"Bearer " + ci, "Bearer " + ci},
			{ci},
		} {
			r := request("GET", "/v1/locks", "", nil)
			r.Header["Authorization"] = headers
			a := w.want(w.do(r), 401, "unauthenticated")
			if a.header.Get("WWW-Authenticate") == "" {
				w.Errorf("%q: no WWW-Authenticate", headers)
			}
		}
		r := request("GET", "/v1/locks?access_token="+ci, "", nil)
		r.Header.Set("Cookie", "Authorization=Bearer "+ci)
		w.want(w.do(r), 401, "unauthenticated")
		r = request("GET", "/v1/locks", "", nil)
		r.Header.Set("Authorization", "bearer  "+ci)
		w.want(w.do(r), 200, "")
	})
}

func TestHostsThatAreRefused(t *testing.T) {
	hosts := func(o *server.Options) { o.Hosts = []string{"Locks.example.com", "10.0.0.5"} }
	inWorld(t, func(w *world) {
		for host, ok := range map[string]bool{
			"localhost": true, "localhost:7070": true, "127.0.0.1:7070": true, "[::1]:7070": true, "[::1]": true,
			"locks.example.com": true, "LOCKS.example.com:443": true, "locks.example.com.": true, "10.0.0.5:80": true,
			"": false, "evil.example": false, "evil.example:7070": false, "localhost.evil.example": false,
			"127.0.0.1.evil.example": false, "10.0.0.50": false,
		} {
			r := request("GET", "/v1/locks", ci, nil)
			r.Host = host
			a := w.do(r)
			if got := a.status != 421; got != ok {
				w.Errorf("host %q: %d", host, a.status)
			}
			r = request("GET", "/healthz", "", nil)
			r.Host = host
			w.want(w.do(r), 200, "") // by whatever name a probe has
		}
	}, hosts)
}

func TestBodiesThatAreRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		const good = `{"name":"jobs/a","owner":"web-7"}`
		for _, c := range []struct {
			body   string
			status int
			kind   string
			change func(*http.Request)
		}{
			{good, 415, "unsupported-media-type", func(r *http.Request) { r.Header.Del("Content-Type") }},
			{good, 415, "unsupported-media-type", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }},
			{good, 415, "unsupported-media-type", func(r *http.Request) {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}},
			{good, 415, "unsupported-media-type", func(r *http.Request) {
				r.Header.Set("Content-Type", "application/json; charset=utf-16")
			}},
			{good, 415, "unsupported-media-type", func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }},
			{`{"name":"jobs/a","owner":"web-7","ttl":5}`, 400, "bad-request", nil},
			{`{"name":"jobs/a","owner":7}`, 400, "bad-request", nil},
			{`{"name":"jobs/a","owner":"web-7","wait_ms":1.5}`, 400, "bad-request", nil},
			{`{"name":"jobs/a","owner":"web-7","wait_ms":20001}`, 400, "bad-request", nil},
			{`{"name":"jobs/a","owner":"web-7","data":"!"}`, 400, "bad-request", nil},
			{good + good, 400, "bad-request", nil},
			{good[:10], 400, "bad-request", nil},
			{"", 400, "bad-request", nil},
			{"null", 400, "bad-request", nil},
			{"[]", 400, "bad-request", nil},
			{strings.Repeat("[", 100_000), 400, "bad-request", nil},
			{"{\"name\":\"jobs/\xff\",\"owner\":\"web-7\"}", 400, "bad-request", nil},
			{`{"name":"jobs/a","owner":""}`, 400, "bad-request", nil},
			{`{"name":"jobs/a\u0000","owner":"web-7"}`, 400, "bad-request", nil},
			{`{"name":"jobs/a","owner":"web\u202e7"}`, 400, "bad-request", nil},
			{`{"name":"jobs/` + strings.Repeat("x", 1020) + `","owner":"web-7"}`, 400, "bad-request", nil},
			{`{"name":"jobs/a","owner":"` + strings.Repeat("x", 1025) + `"}`, 400, "bad-request", nil},
			{`{"name":"jobs/a","owner":"web-7","host":"` + strings.Repeat("x", 1023) + `"}`, 400, "bad-request", nil},
			{`{"name":"jobs/a","owner":"web-7","data":"` + strings.Repeat("AAAA", 90_000) + `"}`, 400, "bad-request", nil},
			{`{"name":"` + strings.Repeat("x", 1<<20), 413, "too-large", nil},
		} {
			r := request("POST", "/v1/acquire", ci, c.body)
			if c.change != nil {
				c.change(r)
			}
			if a := w.do(r); a.status != c.status || a.kind() != c.kind || a.string("detail") == "" {
				w.Errorf("%.60q: %d %s, want %d %s", c.body, a.status, a.text, c.status, c.kind)
			}
		}
		if st := w.get("/v1/status?name=jobs/a", ci); st.status != 404 {
			w.Errorf("something was done: %s", st.text)
		}
		r := request("POST", "/v1/acquire", ci, good)
		r.Header.Set("Content-Type", `application/json; charset="UTF-8"`)
		w.want(w.do(r), 200, "")
	})
}

// What no name can be, or begin with, is no name that merely nobody has.
func TestQueriesThatAreRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.acquire(alice, "jobs/a", "web-7").beats()
		long := strings.Repeat("x", 1024)
		w.want(w.get("/v1/locks?prefix="+long, alice), 200, "")
		w.want(w.get("/v1/locks?after="+long+"x", alice), 200, "") // a page may end at a foreign record
		w.want(w.get("/v1/leader?name=jobs/a&me="+long, alice), 503, "no-leader")
		for _, call := range []string{
			"locks?prefix=", "locks?after=", "leader?name=jobs/a&me=", "leader?name=",
			"events?name=", "events?prefix=", "status?name=",
		} {
			w.want(w.get("/v1/"+call+"jobs/%ff", alice), 400, "bad-request")
			if !strings.Contains(call, "after") {
				w.want(w.get("/v1/"+call+long+"x", alice), 400, "bad-request")
			}
		}
	})
}

// What one reader of JSON takes for something else than another is refused: a proxy that looks
// at the body, and a client, then mean what the server does.
func TestUnclearBodies(t *testing.T) {
	inWorld(t, func(w *world) {
		for body, says := range map[string]string{
			`{"name":"jobs/a","owner":"web-7","name":"jobs/b"}`:             "twice",
			`{"name":"jobs/a","owner":"web-7","n\u0061me":"jobs/b"}`:        "twice",
			`{"name":"jobs/a","owner":"web-7","NAME":"jobs/b"}`:             "in the wrong case",
			`{"Name":"jobs/a","owner":"web-7"}`:                             "in the wrong case",
			`{"name":"jobs/a","owner":"web-7","ho\u017ft":"h"}`:             "in the wrong case",
			"{\"name\":\"jobs/a\",\"owner\":\"web-7\",\"ho\u017ft\":\"h\"}": "in the wrong case",
		} {
			if a := w.want(w.post("/v1/acquire", ci, body), 400, "bad-request"); !strings.Contains(a.text, says) {
				w.Errorf("%s: it says %s", body, a.text)
			}
		}
		h := w.acquire(ci, "jobs/a", "web-7")
		lock := fmt.Sprintf(`{"name":"jobs/a","token":%v,"after":%q,"next":%q}`, h.token, h.beat, h.next())
		for _, body := range []string{
			`{"locks":[` + strings.Replace(lock, "token", "Token", 1) + `]}`,
			`{"locks":[` + strings.Replace(lock, `"next"`, `"after":"x","next"`, 1) + `]}`,
		} {
			w.want(w.post("/v1/heartbeats", ci, body), 400, "bad-request")
		}
		w.want(w.post("/v1/heartbeats", ci, `{"locks":[`+lock+`]}`), 200, "")
	})
}

// A table that all clients share: half of a surrogate pair is no character, and all halves would
// become the same one.
func TestNamesAreText(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "clients", "testdata", "names.json"))
	if err != nil {
		t.Fatal(err)
	}
	var table struct{ Whole, Halves []json.RawMessage }
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	inWorld(t, func(w *world) {
		for _, name := range table.Whole {
			w.want(w.post("/v1/acquire", ci, fmt.Sprintf(`{"name":%s,"owner":"web-7"}`, name)), 200, "")
		}
		for _, name := range table.Halves {
			for _, body := range []string{
				`{"name":%s,"owner":"web-7"}`, `{"name":"jobs/x","owner":%s}`,
				`{"name":"jobs/x","owner":"web-7","label":%s}`,
			} {
				a := w.want(w.post("/v1/acquire", ci, fmt.Sprintf(body, name)), 400, "bad-request")
				if !strings.Contains(a.text, "half of a character") {
					w.Errorf("%s: it says %s", name, a.text)
				}
			}
		}
		if len(table.Whole) == 0 || len(table.Halves) == 0 {
			w.Error("the table is empty")
		}
	})
}

// A field is left out or has a value: null is what a client sends that lacks one.
func TestNullIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, call := range []struct{ path, body string }{
			{"acquire", `{"name":"jobs/a","owner":"web-7","wait_ms":null}`},
			{"acquire", `{"name":"jobs/a","owner":"web-7","data":null}`},
			{"acquire", `null`},
			{"heartbeats", `{"locks":[null]}`},
			{"requests", `{"name":"jobs/a","kind":"step-down","reason":"x","to":null}`},
		} {
			a := w.want(w.post("/v1/"+call.path, alice, call.body), 400, "bad-request")
			if !strings.Contains(a.text, "null") {
				w.Errorf("%s: it says %s", call.body, a.text)
			}
		}
		w.want(w.get("/v1/status?name=jobs/a", alice), 404, "not-found")
		w.want(w.post("/v1/acquire", alice, `{"name":"jobs/null","owner":"\"null\", null"}`), 200, "")
	})
}

func TestBeatsThatAreRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		term, _, _ := strings.Cut(h.beat, "-")
		for _, next := range []string{
			"", h.beat, "x", term, term + "-", term + "-123456789012", term + "-12345678901234",
			term + "-12345678901_3", "other-1234567890123",
		} {
			w.want(h.heartbeat(next), 400, "bad-request")
		}
		for _, change := range []object{{"token": 0}, {"after": ""}, {"after": strings.Repeat("x", 100)}} {
			body := h.body(object{"next": h.next()}, change)
			w.want(w.post("/v1/heartbeat", ci, body), 400, "bad-request")
			delete(body, "next")
			w.want(w.post("/v1/release", ci, body), 400, "bad-request")
		}
		h.beats()
	})
}

// What one principal uses up is not there for itself, and there for all others.
func TestLimits(t *testing.T) {
	small := server.Limits{Waits: 3, Calls: 10, Beats: 5, BeatsAtOnce: 4, FailedTokens: 6}
	inSmall := func(name string, test func(*world)) {
		t.Run(name, func(t *testing.T) {
			inWorld(t, test, func(o *server.Options) { o.Limits = small })
		})
	}
	retried := func(w *world, a answer) {
		w.Helper()
		w.want(a, 429, "limited")
		if a.header.Get("Retry-After") == "" {
			w.Error("no Retry-After")
		}
	}
	inSmall("calls", func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		for range 19 {
			w.want(w.get("/v1/locks", ci), 200, "")
		}
		retried(w, w.get("/v1/locks", ci))
		h.beats() // has a budget of its own
		w.want(w.get("/v1/locks", alice), 200, "")
		time.Sleep(100 * time.Millisecond)
		w.want(w.get("/v1/locks", ci), 200, "")
		retried(w, w.get("/v1/locks", ci))
	})
	inSmall("records", func(w *world) {
		w.fill("jobs/", 1_000)
		w.want(w.get("/v1/locks?limit=1000", ci), 200, "") // counts as ten calls
		for range 10 {
			w.want(w.get("/v1/locks?limit=1", ci), 200, "")
		}
		retried(w, w.get("/v1/locks?limit=1", ci))
	})
	inSmall("terms", func(w *world) {
		for range 300 {
			l := testutil.Must(w.client.Acquire(w.Context(), "jobs/a", &tenure.AcquireOptions{History: true}))(w.T)
			testutil.Want(w.T, l.Release(w.Context()), nil)
		}
		w.want(w.get("/v1/history?name=jobs/a&limit=1", ci), 200, "") // counts as three calls
		for range 17 {
			w.want(w.get("/v1/status?name=jobs/a", ci), 200, "")
		}
		retried(w, w.get("/v1/status?name=jobs/a", ci))
	})
	inSmall("heartbeats", func(w *world) {
		h, other := w.acquire(ci, "jobs/a", "web-7"), w.acquire(alice, "jobs/b", "web-8")
		for range 10 {
			h.beats()
		}
		retried(w, h.heartbeat(h.next()))
		retried(w, h.release())
		retried(w, w.post("/v1/heartbeats", ci, object{"locks": []object{
			{"name": "jobs/a", "token": 1, "after": h.beat, "next": h.next()},
		}}))
		other.beats()
		time.Sleep(200 * time.Millisecond)
		h.beats()
	})
	inSmall("heartbeats in one call", func(w *world) {
		other := w.acquire(alice, "jobs/b", "web-8")
		batch := func(n int) *stream {
			var locks []object
			for i := range n {
				locks = append(locks, object{
					"name": "jobs/a" + strconv.Itoa(i), "token": 1, "after": "x-1",
					"next": "x-1234567890123",
				})
			}
			return w.open(request("POST", "/v1/heartbeats", ci, object{"locks": locks}))
		}
		w.want(batch(8).answer(), 200, "")
		retried(w, batch(3).answer()) // of 2·5
		w.want(batch(2).answer(), 200, "")
		other.beats()
		time.Sleep(2 * time.Second)
		w.client.Partition()
		under := batch(3)
		time.Sleep(10 * time.Millisecond)
		retried(w, batch(2).answer()) // of 4 at once
		w.client.Heal()
		under.leave()
	})
	inSmall("heartbeats at once", func(w *world) {
		h, other := w.acquire(ci, "jobs/a", "web-7"), w.acquire(alice, "jobs/b", "web-8")
		w.client.Partition()
		var under []*stream
		for range 4 {
			under = append(under, w.open(request("POST", "/v1/heartbeat", ci,
				h.body(object{"next": h.next()}))))
		}
		time.Sleep(10 * time.Millisecond)
		retried(w, h.heartbeat(h.next()))
		w.client.Heal()
		other.beats()
		for _, s := range under {
			s.leave()
		}
		h.heartbeat(h.next()) // of those, or a new one
	})
	inSmall("waits", func(w *world) {
		h := w.acquire(alice, "jobs/a", "web-7")
		h.beats()
		wait := func(secret string) *stream {
			return w.open(request("POST", "/v1/acquire", secret, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 20000}))
		}
		all := []*stream{
			wait(ci), w.follow(ci, "name=jobs/a", "text/event-stream"),
			w.follow(ci, "prefix=", "text/event-stream"),
		}
		time.Sleep(time.Second)
		retried(w, wait(ci).answer())
		retried(w, w.get("/v1/events?name=jobs/a", ci))
		all = append(all, wait(alice))
		time.Sleep(time.Second)
		testutil.Pending(w.T, "the wait of another principal", all[3].ended)
		for _, s := range all {
			s.leave()
		}
		h.beats()
		w.want(w.post("/v1/acquire", ci, object{
			"name": "jobs/a", "owner": "web-8", "wait_ms": 1000,
		}), 409, "held") // there is room again
	})
	inSmall("tokens that fail", func(w *world) {
		for range 6 {
			w.want(w.get("/v1/locks", "wrong-secret-0123456789"), 401, "unauthenticated")
		}
		retried(w, w.get("/v1/locks", "wrong-secret-0123456789"))
		w.want(w.get("/v1/locks", ci), 200, "") // from the same address
		r := request("GET", "/v1/locks", "wrong-secret-0123456789", nil)
		r.RemoteAddr = "192.0.2.9:1"
		w.want(w.do(r), 401, "unauthenticated")
		if n := strings.Count(w.logged(), "unknown token or certificate"); n != 7 ||
			strings.Contains(w.logged(), "wrong-secret") {
			w.Errorf("%d lines, want 7 without the token:\n%s", n, w.logged())
		}
		time.Sleep(10 * time.Second)
		w.want(w.get("/v1/locks", "wrong-secret-0123456789"), 401, "unauthenticated")
	})
	inSmall("guesses", func(w *world) {
		from := func(address, secret string) answer {
			r := request("GET", "/v1/locks", secret, nil)
			r.RemoteAddr = address + ":1"
			return w.do(r)
		}
		w.want(from("192.0.2.1", ci), 200, "")
		for range 100 { // a program that has an old token
			from("192.0.2.2", "wrong-secret-0123456789")
		}
		w.want(from("192.0.2.2", alice), 200, "")
		var wrong answer
		for i := range 20 {
			wrong = from("192.0.2.1", fmt.Sprintf("wrong-secret-%010d", i))
		}
		w.want(wrong, 429, "limited")
		right := from("192.0.2.1", alice)
		retried(w, right)
		if right.text != wrong.text {
			w.Errorf("a guesser can tell %s from %s", right.text, wrong.text)
		}
		w.want(from("192.0.2.1", ci), 200, "") // is known there
		w.want(from("192.0.2.3", alice), 200, "")
		time.Sleep(10 * time.Second)
		w.want(from("192.0.2.1", alice), 200, "")
	})
	inSmall("a network of IPv6", func(w *world) { // which one customer has
		from := func(address, path, secret string) answer {
			r := request("GET", path, secret, nil)
			r.RemoteAddr = "[" + address + "]:1"
			return w.do(r)
		}
		var guess, open answer
		for i := range 21 {
			guess = from(fmt.Sprintf("2001:db8:0:1::%x", i), "/v1/locks", fmt.Sprintf("wrong-secret-%010d", i))
			open = from(fmt.Sprintf("2001:db8:0:1::%x", i), "/openapi.json", "")
		}
		retried(w, guess)
		retried(w, open)
		retried(w, from("2001:db8:0:1:a:b:c:d", "/v1/locks", alice))
		w.want(from("2001:db8:0:2::1", "/v1/locks", alice), 200, "")
		w.want(from("::ffff:192.0.2.1", "/v1/locks", "wrong-secret-0123456789"), 401, "unauthenticated")
		w.want(from("::ffff:192.0.2.2", "/v1/locks", "wrong-secret-0123456789"), 401, "unauthenticated")
		if n := w.Addresses(); n != 4 {
			w.Errorf("%d addresses are remembered, want 2 networks of IPv6 and 2 addresses of IPv4", n)
		}
	})
	inSmall("pages", func(w *world) {
		p, ok := w.Principal(request("GET", "/", ci, nil))
		if !ok {
			w.Fatal("nobody")
		}
		admit := func(secret string) time.Duration { return w.Admit(request("GET", "/", "", nil), p, secret) }
		for range 10 {
			w.want(w.get("/v1/locks", ci), 200, "")
			if wait := admit(""); wait != 0 {
				w.Fatalf("a page must wait for %v", wait)
			}
		}
		if admit("") == 0 {
			w.Error("pages do not count as calls")
		}
		retried(w, w.get("/v1/locks", ci))
		time.Sleep(time.Minute)
		r := request("POST", "/login", "", nil)
		r.RemoteAddr = "192.0.2.7:1"
		for i := range 20 {
			w.WrongToken(r, fmt.Sprintf("wrong-secret-%010d", i))
		}
		if w.Admit(r, p, ci) == 0 || w.Admit(r, p, "") != 0 {
			w.Error("guesses at the page are not counted, or hold up a visitor with a cookie")
		}
	})
	inSmall("calls without a token", func(w *world) {
		for range 20 {
			w.want(w.get("/openapi.json", ""), 200, "")
		}
		retried(w, w.get("/openapi.json", ""))
		for range 100 {
			w.want(w.get("/healthz", ""), 200, "")
			w.want(w.get("/readyz", ""), 200, "")
		}
		retried(w, w.get("/v1/leader?name=jobs/a", ""))
		w.want(w.get("/v1/locks", ci), 200, "")
	})
	inSmall("addresses are forgotten", func(w *world) {
		for i := range 10_100 {
			r := request("GET", "/v1/locks", "wrong-secret-0123456789", nil)
			r.RemoteAddr = fmt.Sprintf("[2001:db8:0:%x::1]:1", i)
			w.do(r)
		}
		if n := w.Addresses(); n != 10_000 {
			w.Errorf("%d addresses are remembered", n)
		}
	})
}

func TestOptionsThatAreRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		principals := w.Principals()
		for _, c := range []struct {
			o    server.Options
			want string
		}{
			{server.Options{}, "no principals"},
			{server.Options{Principals: principals, Hosts: []string{"a:80"}}, "has a port"},
			{server.Options{Principals: principals, Hosts: []string{""}}, "a host is empty"},
			{server.Options{Principals: principals, Hosts: []string{"http://a/"}}, "not a host name"},
			{server.Options{Principals: principals, Hosts: []string{"*.example.com"}}, "not a host name"},
			{server.Options{Principals: principals, Public: []string{""}}, "public prefix is empty"},
			{server.Options{Principals: principals, Public: []string{"tenure/x"}}, "records of Tenure itself"},
			{server.Options{Principals: principals, Public: []string{"a:once"}}, `derived from "a"`},
			{server.Options{Principals: principals, Limits: server.Limits{Calls: -1}}, "must not be negative"},
		} {
			if _, err := server.New(w.client.Client, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				w.Errorf("%+v: %v, want an error with %q", c.o, err, c.want)
			}
		}
		if _, err := server.New(nil, server.Options{Principals: principals}); err == nil {
			w.Error("a server without a client")
		}
	})
}

func TestAPanicIsAnUnknownOutcome(t *testing.T) {
	options := func(o *server.Options) {
		o.Pages = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/cut" {
				panic(http.ErrAbortHandler)
			}
			panic(tenure.ErrClosed)
		})
	}
	inWorld(t, func(w *world) {
		w.want(w.get("/", ""), 503, "unknown")
		if !strings.Contains(w.logged(), "a call panicked") {
			w.Errorf("the log says %s", w.logged())
		}
		defer func() {
			if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // it is that very value
				w.Errorf("a page that cuts its connection ends with %v", v)
			}
		}()
		w.get("/cut", "")
	}, options)
}
