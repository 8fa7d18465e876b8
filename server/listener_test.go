// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/server"
)

// patient bounds what must happen at some time, on however slow a machine.
const patient = time.Minute

// real is a server behind a listener, in real time.
type real struct {
	*testing.T
	*server.Server
	client *tenure.Client
	store  *memstore.Store
	http   *http.Client
	url    string
}

// newReal serves on a listener, with TLS if config is not nil.
func newReal(t *testing.T, l net.Listener, config *tls.Config, changes ...func(*http.Server)) *real {
	t.Helper()
	return newRealWith(t, l, config, func(*server.Options) {}, changes...)
}

func newRealWith(
	t *testing.T, l net.Listener, config *tls.Config, option func(*server.Options), changes ...func(*http.Server),
) *real {
	t.Helper()
	w := &real{T: t, store: memstore.New(), url: "http://" + l.Addr().String()}
	var err error
	if w.client, err = tenure.New(w.store, &tenure.Options{LeaseDuration: lease, Owner: "tenured-1"}); err != nil {
		t.Fatal(err)
	}
	principals, err := server.ParsePrincipals(principalsText + "spiffe://corp/batch cert hold:batch/\n")
	if err != nil {
		t.Fatal(err)
	}
	options := server.Options{Principals: principals}
	option(&options)
	if w.Server, err = server.New(w.client, options); err != nil {
		t.Fatal(err)
	}
	s := w.HTTPServer()
	s.TLSConfig = config
	for _, change := range changes {
		change(s)
	}
	serve := s.Serve
	if config != nil {
		w.url = "https://" + l.Addr().String()
		serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
	}
	ended := make(chan error, 1)
	go func() { ended <- serve(l) }()
	transport := &http.Transport{}
	w.http = &http.Client{Transport: transport, Timeout: patient}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patient)
		defer cancel()
		transport.CloseIdleConnections()
		for _, end := range []func(context.Context) error{w.Shutdown, s.Shutdown, w.client.Close} {
			if err := end(ctx); err != nil {
				t.Error(err)
			}
		}
		if err := <-ended; err != http.ErrServerClosed { //nolint:errorlint // it is returned bare
			t.Error(err)
		}
	})
	return w
}

func loopback(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// do makes a call over the network.
func (w *real) do(method, path, secret string, body any, change func(*http.Request)) answer {
	w.Helper()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			w.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+path, bytes.NewReader(text))
	if err != nil {
		w.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	if change != nil {
		change(r)
	}
	res, err := w.http.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	got, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		w.Fatal(err)
	}
	return answerOf(w.T, res.StatusCode, res.Header, got)
}

// holds acquires, renews and releases a lock.
func (w *real) holds(secret, name string) {
	w.Helper()
	g := w.do("POST", "/v1/acquire", secret, object{"name": name, "owner": "web-7"}, nil)
	if g.status != 200 {
		w.Fatalf("acquire: %d %s", g.status, g.text)
	}
	h := &hand{name: name, token: g.number("token"), beat: g.string("beat")}
	next := h.next()
	if a := w.do("POST", "/v1/heartbeat", secret, object{
		"name": name, "token": h.token, "after": h.beat, "next": next,
	}, nil); a.status != 200 {
		w.Fatalf("heartbeat: %d %s", a.status, a.text)
	}
	if a := w.do("POST", "/v1/release", secret, object{
		"name": name, "token": h.token, "after": next,
	}, nil); a.status != 200 {
		w.Fatalf("release: %d %s", a.status, a.text)
	}
}

// until asks again and again until something has happened.
func (w *real) until(what string, happened func() bool) {
	w.Helper()
	deadline := time.NewTimer(patient)
	defer deadline.Stop()
	for !happened() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline.C:
			w.Fatalf("not within %v: %s", patient, what)
		}
	}
}

// authority makes certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	made := a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	a.key, a.cert = made.PrivateKey.(*ecdsa.PrivateKey), made.Leaf
	return a
}

func (a *authority) issue(template *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// A certificate that the TLS configuration has verified is a principal; one that was merely
// sent is nobody. Both over HTTP/1.1 and over HTTP/2.
func TestClientCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	uri, err := url.Parse("spiffe://corp/batch")
	if err != nil {
		t.Fatal(err)
	}
	batch := &x509.Certificate{URIs: []*url.URL{uri}}
	host := ours.issue(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	for _, c := range []struct {
		name   string
		auth   tls.ClientAuthType
		cert   tls.Certificate
		status int
	}{
		{"verified", tls.VerifyClientCertIfGiven, ours.issue(batch), 200},
		{"not verified", tls.RequestClientCert, theirs.issue(batch), 401},
		{
			"of a principal with a token", tls.VerifyClientCertIfGiven,
			ours.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "ci"}}), 401,
		},
		{"none", tls.VerifyClientCertIfGiven, tls.Certificate{}, 401},
	} {
		for _, two := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				config := &tls.Config{
					MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{host}, ClientAuth: c.auth,
					ClientCAs: ours.pool(),
				}
				w := newReal(t, loopback(t), config)
				transport := w.http.Transport.(*http.Transport)
				transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ours.pool()}
				if c.cert.Certificate != nil {
					transport.TLSClientConfig.GetClientCertificate = func(
						*tls.CertificateRequestInfo,
					) (*tls.Certificate, error) {
						return &c.cert, nil
					}
				}
				transport.ForceAttemptHTTP2 = two
				a := w.do("POST", "/v1/acquire", "", object{"name": "batch/a", "owner": "b-1"}, nil)
				if a.status != c.status {
					t.Fatalf("%d %s, want %d", a.status, a.text, c.status)
				}
				if c.status == 200 {
					if st := w.do("GET", "/v1/status?name=batch/a", "", nil, nil); st.string("host") != "spiffe://corp/batch" {
						t.Errorf("the host is %s", st.text)
					}
					if a := w.do("GET", "/v1/locks", "wrong-secret-0123456789", nil, nil); a.status != 401 {
						t.Errorf("a wrong token beside a certificate: %d", a.status)
					}
					w.do("POST", "/v1/release", "", object{"name": "batch/a", "token": 1, "after": a.string("beat")}, nil)
				}
			})
		}
	}
}
