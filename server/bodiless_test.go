// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/server"
)

// pages stands for the dashboard: a form that is parsed, a form that is not, and pages.
func pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			http.Error(w, "the form cannot be read", http.StatusBadRequest)
		}
	})
	mux.HandleFunc("POST /logout", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSeeOther) })
	mux.HandleFunc("GET /page", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })
	return mux
}

// A body that is announced and never comes holds nothing for longer than a body may take,
// whatever the path, the method, the token and the answer are; and what is refused without a
// look at the body has its answer at once, and ends the connection.
func TestABodyThatNeverComes(t *testing.T) {
	type row struct {
		first, headers string
		atOnce         bool
	}
	const token, form = "Authorization: Bearer " + ci + "\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"
	rows := []row{
		{"POST /v1/acquire", "", true},
		{"POST /v1/acquire", "Authorization: Bearer wrong-secret-0123456789\r\n", true},
		{"POST /v1/acquire", token, true}, // of a type that is refused
		{"POST /v1/acquire", token + "Content-Type: application/json\r\n", false},
		{"POST /v1/acquire", "Origin: https://evil.example\r\n", true},
		{"POST /v1/locks", token, true},
		{"GET /v1/locks", token, true},
		{"POST /v1/nothing", token, true},
		{"POST /healthz", "", true},
		{"GET /healthz", "", true},
		{"GET /readyz", "", true},
		{"GET /openapi.json", "", true},
		{"GET /metrics", token, true},
		{"POST /login", form, false},
		{"POST /logout", form, true},
		{"GET /page", "", true},
		{"POST /nothing", form, true},
		{"DELETE /v1/acquire", "", true},
	}
	for _, length := range []string{"Content-Length: 1000\r\n", "Transfer-Encoding: chunked\r\n"} {
		for _, host := range []string{"localhost", "evil.example"} {
			for _, atOnce := range []bool{true, false} {
				w := newReal(t, loopback(t), nil, func(o *server.Options) { o.Pages = pages() })
				bodyTimeout := 100 * time.Millisecond
				if atOnce {
					bodyTimeout = 10 * patient // the answer waits for none of it
				}
				w.SetTimeouts(bodyTimeout, patient)
				w.SetLinger(10 * time.Millisecond)
				for _, row := range rows {
					if host == "evil.example" && !atOnce || host == "localhost" && row.atOnce != atOnce {
						continue
					}
					t.Run(fmt.Sprintf("%s, %q, %q, host %s", row.first, row.headers, length, host), func(t *testing.T) {
						c := w.dial()
						c.write(row.first + " HTTP/1.1\r\nHost: " + host + "\r\n" + row.headers + length + "\r\n")
						if status, ended := c.answer(); !strings.HasPrefix(status, "HTTP/1.1 ") || !ended {
							t.Errorf("answer %q; the connection is closed: %v", status, ended)
						}
					})
				}
			}
		}
	}
}

// What is refused waits for nothing of the body: not for the moment that its rest has.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	w := newReal(t, loopback(t), nil)
	w.SetTimeouts(10*patient, patient)
	w.SetLinger(10 * patient)
	c := w.dial()
	c.write("POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 401 ") {
		t.Errorf("%q, %v", line, err)
	}
	_ = c.Close()
}

// Of the answer to a body that nobody reads the client has all, however late the body comes;
// and a body that is read leaves the connection open, for longer than a body may take.
func TestAConnectionGoesOnAfterABody(t *testing.T) {
	w := newReal(t, loopback(t), nil, func(o *server.Options) { o.Pages = pages() })
	w.SetTimeouts(patient, patient)
	c := w.dial()
	reader := bufio.NewReader(c)
	call := func(text string) *http.Response {
		t.Helper()
		c.write(text)
		a, err := http.ReadResponse(reader, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, a.Body)
		}
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	const json = "Host: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer " + ci + "\r\n"
	for range 2 {
		if a := call("POST /v1/acquire HTTP/1.1\r\n" + json + "Content-Length: 2\r\n\r\n{}"); a.StatusCode != 400 || a.Close {
			t.Fatalf("%d, closes: %v", a.StatusCode, a.Close)
		}
		if a := call("POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
			"application/x-www-form-urlencoded\r\nContent-Length: 3\r\n\r\na=b"); a.StatusCode != 200 || a.Close {
			t.Fatalf("%d, closes: %v", a.StatusCode, a.Close)
		}
	}
	// The bound of a body that has come does not end the wait that follows.
	w.SetTimeouts(50*time.Millisecond, patient)
	other := w.post("/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-7"})
	body := `{"name":"jobs/a","owner":"web-8","wait_ms":500}`
	if a := call(fmt.Sprintf("POST /v1/acquire HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s", json, len(body),
		body)); a.StatusCode != 409 {
		t.Errorf("a wait that is longer than a body may take: %d", a.StatusCode)
	}
	if a := call("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); a.StatusCode != 200 || a.Close {
		t.Errorf("%d, closes: %v", a.StatusCode, a.Close)
	} else if len(a.Header["Strict-Transport-Security"]) > 0 {
		t.Error("TLS is required on a connection without TLS")
	}
	w.post("/v1/release", ci, object{"name": "jobs/a", "token": 1, "after": other.string("beat")})
}

// The same over HTTP/2, whose streams end, while the connection goes on.
func TestAStreamWhoseBodyNeverComes(t *testing.T) {
	ours := newAuthority(t)
	host := ours.issue(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	w := newReal(t, loopback(t), &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{host}},
		func(o *server.Options) { o.Pages = pages() })
	w.SetTimeouts(100*time.Millisecond, patient)
	transport := w.http.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ours.pool()}
	transport.ForceAttemptHTTP2 = true
	for _, path := range []string{"/v1/acquire", "/login", "/logout", "/healthz", "/page"} {
		never, out := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), "POST", w.url+path, never)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if path == "/login" {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		if path == "/v1/acquire" {
			r.Header.Set("Authorization", "Bearer "+ci)
		}
		a, err := w.http.Do(r)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		_, _ = io.Copy(io.Discard, a.Body)
		_, _ = a.Body.Close(), out.Close()
		if a.ProtoMajor != 2 {
			t.Fatalf("%s: %s", path, a.Proto)
		}
		if a.Header.Get("Strict-Transport-Security") == "" {
			t.Errorf("%s: a browser may come without TLS next time", path)
		}
	}
}

// A page that nobody reads is cut off, as an answer of the service is.
func TestAPageThatIsNeverRead(t *testing.T) {
	left := make(chan error, 1)
	w := newReal(t, small{loopback(t)}, nil, func(o *server.Options) {
		o.Pages = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, err := io.Copy(w, io.LimitReader(endless{}, 64<<20))
			left <- err
		})
	})
	w.SetTimeouts(patient, 100*time.Millisecond)
	w.dial().write("GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select {
	case err := <-left:
		if err == nil {
			t.Error("all of it was taken")
		}
	case <-time.After(patient):
		t.Error("it waits for the reader")
	}
}
