// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// selfSigned writes a certificate that has signed itself, for whatever use, and its key.
func selfSigned(t *testing.T, cert, key string) tls.Certificate {
	t.Helper()
	c, err := enginetest.NewCertificate("self", nil)
	if err == nil {
		err = c.WriteFiles(cert, key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c.Certificate
}

// A connection that stays open was verified by the authorities of its handshake. When those
// of --client-ca are others, it is verified no more; a new certificate of the server's own
// changes nothing for it.
func TestAuthoritiesOfAConnectionThatStays(t *testing.T) {
	enginetest.MakeVerify(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	host, client := selfSigned(t, file("cert"), file("key")), selfSigned(t, file("ca"), file("client.key"))
	files, err := newCertificates(file("cert"), file("key"), file("ca"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, err := listen(address{network: "tcp", where: "127.0.0.1:0"}, files.server(), 16)
	if err != nil {
		t.Fatal(err)
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.VerifiedChains) == 0 || !files.verified(r) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	h := serveHTTP(&http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(handler)},
		[]listener{l}, slog.New(slog.DiscardHandler))
	t.Cleanup(h.stop)
	pool := x509.NewCertPool()
	pool.AddCert(host.Leaf)
	for _, two := range []bool{false, true} {
		config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{client}}
		transport := &http.Transport{ForceAttemptHTTP2: two, TLSClientConfig: config}
		t.Cleanup(transport.CloseIdleConnections)
		call := func() int {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			a, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, a.Body)
			_ = a.Body.Close()
			if got := a.ProtoMajor == 2; got != two {
				t.Fatal(a.Proto)
			}
			return a.StatusCode
		}
		if got := call(); got != http.StatusOK {
			t.Fatalf("at first: %d", got)
		}
		selfSigned(t, file("cert"), file("key")) // read again, and known by no client
		for end := time.Now().Add(2 * recheck); time.Now().Before(end); <-time.After(recheck / 10) {
			if got := call(); got != http.StatusOK {
				t.Fatalf("after the certificate of the server has changed: %d", got)
			}
		}
		before, err := os.ReadFile(file("ca"))
		if err != nil {
			t.Fatal(err)
		}
		selfSigned(t, file("ca"), file("other.key"))
		for end := time.Now().Add(time.Minute); call() != http.StatusUnauthorized; <-time.After(recheck / 10) {
			if time.Now().After(end) {
				t.Fatal("the authority has changed, and the connection is verified still")
			}
		}
		host = selfSigned(t, file("cert"), file("key"))
		pool = x509.NewCertPool()
		pool.AddCert(host.Leaf)
		if err := os.WriteFile(file("ca"), before, 0o600); err != nil {
			t.Fatal(err)
		}
		again := authorities(t, before)
		for end := time.Now().Add(time.Minute); !files.current().ClientCAs.Equal(again); <-time.After(recheck / 10) {
			if time.Now().After(end) {
				t.Fatal("the files are not read again")
			}
		}
	}
}

// authorities returns the authorities in a text.
func authorities(t *testing.T, text []byte) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatal("no certificate")
	}
	return pool
}
