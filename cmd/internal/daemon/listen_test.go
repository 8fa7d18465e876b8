// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/server"
)

// A request that is not read to its end has an answer to its end: net/http ends the writing
// of such a connection before it closes it, so that what was read too little resets nothing.
func TestAnswerToARequestThatIsTooLong(t *testing.T) {
	for _, a := range []address{
		{network: "tcp", where: "127.0.0.1:0"}, {network: "unix", where: filepath.Join(t.TempDir(), "s")},
	} {
		l, err := listen(a, nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{MaxHeaderBytes: 16 << 10, ReadHeaderTimeout: time.Minute}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		for range 2 { // the second one when the first has ended
			c, err := new(net.Dialer).DialContext(t.Context(), a.network, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", 64<<10)); err != nil {
				t.Fatal(err)
			}
			if answer, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 431 ") {
				t.Errorf("%s: %q, %v", a.network, answer, err)
			}
			_ = c.Close()
		}
		if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}
}

// served is a service on a listener for 16 connections.
func served(t *testing.T) (at string, l *limited) {
	t.Helper()
	client, err := tenure.New(memstore.New(), &tenure.Options{Owner: "tenured-1"})
	if err != nil {
		t.Fatal(err)
	}
	principals, err := server.ParsePrincipals("tester 3q7vXb9TzK2mWp5c admin:\n")
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(client, server.Options{Principals: principals, Known: knownConn})
	if err != nil {
		t.Fatal(err)
	}
	on, err := listen(address{network: "tcp", where: "127.0.0.1:0"}, nil, 16)
	if err != nil {
		t.Fatal(err)
	}
	h := serveHTTP(s.HTTPServer(), []listener{on}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = h.server.Close()
		h.stop()
		if err := errors.Join(s.Shutdown(ctx), client.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return on.Addr().String(), on.Listener.(*limited)
}

// say opens a connection, on which it says something.
func say(t *testing.T, at, text string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
	if err == nil {
		_, err = io.WriteString(c, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// calls makes a call on a connection of its own.
func calls(t *testing.T, at, method, path, body string) map[string]any {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+at+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer 3q7vXb9TzK2mWp5c")
	r.Header.Set("Content-Type", "application/json")
	a, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(a.Body)
	if err = errors.Join(err, a.Body.Close()); err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s, %v", path, a.StatusCode, text, err)
	}
	answer := map[string]any{}
	_ = json.Unmarshal(text, &answer) // that of /healthz is text
	return answer
}

// Four times as many connections as there may be, which say nothing or announce a body that
// never comes, keep out neither a probe nor a holder that opens a connection for each call.
func TestConnectionsThatSayNothingKeepNobodyOut(t *testing.T) {
	for name, text := range map[string]string{
		"silent": "", "no body": "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			at, _ := served(t)
			flood := func() {
				for range 66 {
					say(t, at, text)
				}
			}
			flood()
			g := calls(t, at, "POST", "/v1/acquire", `{"name":"a","owner":"b"}`)
			after := g["beat"].(string)
			for i := range 3 {
				flood()
				next := after[:strings.Index(after, "-")+1] + fmt.Sprintf("%013d", i)
				calls(t, at, "POST", "/v1/heartbeat", fmt.Sprintf(`{"name":"a","token":1,"after":%q,"next":%q}`, after, next))
				after = next
				calls(t, at, "GET", "/healthz", "")
			}
		})
	}
}

// A connection that has shown a good token stays when others come that have not, and those
// have a quarter of all from one address.
func TestAConnectionWithAGoodTokenStays(t *testing.T) {
	at, l := served(t)
	known := say(t, at, "")
	reader := bufio.NewReader(known)
	ask := func() {
		t.Helper()
		if _, err := io.WriteString(known, "GET /v1/locks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+
			"3q7vXb9TzK2mWp5c\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		a, err := http.ReadResponse(reader, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, a.Body)
		}
		if err != nil || a.StatusCode != http.StatusOK {
			t.Fatal(a, err)
		}
	}
	ask()
	for range 40 {
		say(t, at, "")
	}
	ask()
	calls(t, at, "GET", "/healthz", "")
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.count(func(c *limitedConn) bool { return !c.known }); n > 4 {
		t.Errorf("%d of 16 connections from one address without a token", n)
	}
}

// Through a proxy come many: it has no part of its own, and one customer of IPv6 has one
// for all its addresses.
func TestNetworkOfAConnection(t *testing.T) {
	l := newLimited(nil, 16, netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48"))
	for address, want := range map[string]string{
		"10.1.2.3": "", "::ffff:10.1.2.3": "", "2001:db8:1::7": "",
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1",
		"2001:db8:2:3:4::5": "2001:db8:2:3::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := l.network(net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 1))); got != want {
			t.Errorf("%s is of %q, want %q", address, got, want)
		}
	}
	if got := l.network(&net.UnixAddr{Name: "s", Net: "unix"}); got != "" {
		t.Errorf("a socket is of %q", got)
	}
}

// Connections that are idle give way at the limit, whatever they have shown.
func TestIdleConnectionsGiveWay(t *testing.T) {
	at, _ := served(t)
	for range 20 {
		c := say(t, at, "GET /v1/locks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 3q7vXb9TzK2mWp5c\r\n\r\n")
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || a.StatusCode != http.StatusOK {
			t.Fatal(a, err)
		}
	}
	calls(t, at, "GET", "/healthz", "")
}
