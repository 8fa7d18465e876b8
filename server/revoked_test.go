// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/server"
)

// inWorldWithFile runs a test with principals that stand in a file, which it may change.
func inWorldWithFile(t *testing.T, text string, test func(w *world, change func(text string))) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	change := func(text string) { testutil.Want(t, os.WriteFile(path, []byte(text), 0o600), nil) }
	change(text)
	inWorld(t, func(w *world) { test(w, change) }, func(o *server.Options) {
		o.Principals = testutil.Must(server.OpenPrincipals(path, nil))(t)
	})
}

// A call that waits while its principal is removed takes nothing, whichever form its answer
// has; nor does a call whose principal only lost its right.
func TestAWaiterThatWasRemovedTakesNothing(t *testing.T) {
	for change, kind := range map[string]string{
		"alice " + alice + " admin:\n":                                 "unauthenticated",
		"alice " + alice + " admin:\nci " + ci + " read:jobs/\n":       "forbidden",
		"alice " + alice + " admin:\nci secret-of-ci-new-0123 hold:\n": "unauthenticated",
	} {
		for _, accept := range []string{"application/json", "text/event-stream"} {
			// Long before the lock is free, and at the last moment.
			for _, before := range []time.Duration{7 * time.Second, 1500 * time.Millisecond} {
				inWorldWithFile(t, principalsText, func(w *world, write func(string)) {
					h := w.acquire(alice, "jobs/a", "web-7")
					h.beats()
					r := request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 20000})
					r.Header.Set("Accept", accept)
					s := w.open(r)
					time.Sleep(2 * time.Second)
					write(change)
					time.Sleep(before)
					w.want(h.release(), 200, "")
					<-s.ended
					got := ""
					if accept == "application/json" {
						got = s.answer().kind()
					} else {
						_, last := s.events()
						got = last["problem"].kind()
					}
					if got != kind {
						w.Errorf("%s after %v: it got %s, want %s", accept, before, s, kind)
					}
					time.Sleep(time.Second)
					if st := w.get("/v1/status?name=jobs/a", alice); st.string("state") != "released" {
						w.Errorf("%s after %v: the lock is %s", accept, before, st.text)
					}
				})
			}
		}
	}
}

// A request that waits for the death of a holder is not carried out for a principal that was
// removed meanwhile.
func TestARequestOfAPrincipalThatWasRemoved(t *testing.T) {
	inWorldWithFile(t, principalsText, func(w *world, write func(string)) {
		w.acquire(alice, "jobs/a", "web-7").beats() // its last sign of life
		s := w.open(request("POST", "/v1/requests", ops, object{"name": "jobs/a", "kind": "release-dead", "reason": "x"}))
		time.Sleep(2 * time.Second)
		write("alice " + alice + " admin:\n")
		w.want(s.answer(), 401, "unauthenticated")
		time.Sleep(lease)
		if st := w.get("/v1/status?name=jobs/a", alice); st.string("state") == "released" {
			w.Errorf("the lock is %s", st.text)
		}
	})
}

// A certificate that was good at the handshake is not for ever: neither when it has expired nor
// when its authority is one no more.
func TestACertificateOfAConnectionThatStays(t *testing.T) {
	batch := testutil.Must(url.Parse("spiffe://corp/batch"))(t)
	good := true
	verified := func(o *server.Options) { o.Verified = func(*http.Request) bool { return good } }
	inWorld(t, func(w *world) {
		leaf := &x509.Certificate{URIs: []*url.URL{batch}, NotAfter: time.Now().Add(time.Hour)}
		between := &x509.Certificate{NotAfter: time.Now().Add(time.Minute)}
		call := func() answer {
			r := request("GET", "/v1/locks", "", nil)
			r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf, between}}}
			return w.do(r)
		}
		ended := func() {
			w.Helper()
			if a := w.want(call(), 401, "unauthenticated"); a.header.Get("Connection") != "close" {
				w.Errorf("the connection goes on: %v", a.header)
			}
		}
		w.want(call(), 200, "")
		good = false
		ended()
		good = true
		w.want(call(), 200, "")
		time.Sleep(2 * time.Minute)
		ended()
		between.NotAfter = leaf.NotAfter
		w.want(call(), 200, "")
		time.Sleep(time.Hour)
		ended()
	}, verified)
}
