// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/tenurelock/tenure/server"
)

func public(o *server.Options) {
	o.Public, o.PublicMetrics = []string{"pub/"}, true
	o.Limits = server.Limits{Calls: 5, FailedTokens: 6}
}

// Public paths answer the calls of load balancers and Prometheus: by an address, without a
// host, to OPTIONS. A name that someone else has pointed at the server is still refused, as are
// all other paths.
func TestHowLoadBalancersAsk(t *testing.T) {
	inWorld(t, func(w *world) {
		w.acquire(alice, "pub/a", "web-7").beats()
		ask := func(method, host, path, secret string) answer {
			r := request(method, path, secret, nil)
			r.Host = host
			if method != http.MethodOptions {
				return w.do(r)
			}
			rec := httptest.NewRecorder() // openapi.json has it not: no program asks so
			w.ServeHTTP(rec, r)
			return answerOf(w.T, rec.Result())
		}
		for _, host := range []string{"localhost", "10.0.0.7", "10.0.0.7:8368", "[2001:db8::1]:8368", ""} {
			for _, path := range []string{"/v1/leader?name=pub/a", "/metrics"} {
				for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
					w.want(ask(method, host, path, ""), 200, "")
				}
				w.want(ask("POST", host, path, ""), 405, "method-not-allowed")
				w.want(ask("GET", "evil.example", path, ""), 421, "misdirected")
				time.Sleep(time.Second)
			}
		}
		w.want(ask("GET", "10.0.0.7", "/v1/leader?name=pub/b", ""), 503, "no-leader")
		w.want(ask("GET", "10.0.0.7", "/v1/leader?name=jobs/a", ""), 421, "misdirected")
		w.want(ask("GET", "", "/v1/leader?name=jobs/a", ""), 421, "misdirected")
		w.want(ask("GET", "10.0.0.7", "/v1/leader?name=pub/a", alice), 421, "misdirected")
		w.want(ask("GET", "10.0.0.7", "/openapi.json", ""), 421, "misdirected")
		w.want(ask("OPTIONS", "localhost", "/v1/leader?name=jobs/a", ""), 405, "method-not-allowed")
	}, public)
}

// A load balancer's own check is answered, whatever strangers who come through it ask.
func TestLoadBalancersAreNeverToldToWait(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(alice, "pub/a", "web-7")
		h.beats()
		n := tally{}
		w.want(w.get("/v1/leader?name=pub/a", ""), 200, "")
		for i := range 50 {
			for j := range 20 {
				w.get("/openapi.json", "")
				n.add(w.get(fmt.Sprintf("/v1/leader?name=pub/%d/%d", i, j), ""))
			}
			w.want(w.get("/v1/leader?name=pub/a", ""), 200, "")
			w.want(w.get("/v1/leader?name=pub/a&me=web-8", ""), 503, "no-leader")
			if i%3 == 0 {
				h.beats()
			}
			time.Sleep(time.Second)
		}
		if n["429 limited"] == 0 {
			w.Errorf("strangers are not limited: %s", n)
		}
		w.want(h.release(), 200, "")
		time.Sleep(time.Second)
		w.want(w.get("/v1/leader?name=pub/a", ""), 503, "no-leader")
	}, public)
}

// Behind a trusted proxy the limits of an address apply to its client; a caller that is not a
// trusted proxy cannot choose an address.
func TestTrustedProxies(t *testing.T) {
	options := func(o *server.Options) {
		o.Limits.FailedTokens = 6
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}
	}
	inWorld(t, func(w *world) {
		n := 0
		wrong := func(peer string, forwarded ...string) int {
			n++
			r := request("GET", "/v1/locks", fmt.Sprintf("wrong-secret-%010d", n), nil)
			r.RemoteAddr = peer
			r.Header["X-Forwarded-For"] = forwarded
			return w.do(r).status
		}
		use := func(peer string, forwarded ...string) {
			for range 20 {
				wrong(peer, forwarded...)
			}
		}
		use("10.0.0.1:1", "192.0.2.1")
		for want, all := range map[int][][]string{
			// The peer, and what it says: the last address that is not a proxy counts.
			429: {
				{"10.0.0.2:1", "192.0.2.1"},
				{"10.0.0.1:1", "192.0.2.9, 192.0.2.1"},
				{"10.0.0.1:1", "192.0.2.1, 10.9.9.9"},
				{"10.0.0.1:1", "192.0.2.9", "192.0.2.1"},
				{"[2001:db8:1::1]:1", "::ffff:192.0.2.1"},
				{"192.0.2.1:1"},
			},
			401: {
				{"10.0.0.1:1", "192.0.2.1, 192.0.2.2"},
				{"10.0.0.3:1"},
				{"10.0.0.4:1", "nonsense"},
				{"192.0.2.3:1", "192.0.2.1"},
				{"10.0.0.1:1", "192.0.2.1, [::1]:5, 10.0.0.9"},
			},
		} {
			for _, c := range all {
				if got := wrong(c[0], c[1:]...); got != want {
					w.Errorf("%q: %d, want %d", c, got, want)
				}
			}
		}
		use("192.0.2.4:1", "192.0.2.5")
		if got := wrong("10.0.0.1:1", "192.0.2.5"); got != 401 {
			w.Errorf("a caller that is no proxy has used up the limit of another: %d", got)
		}
	}, options)
}
