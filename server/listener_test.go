// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/tenuretest"
)

// patient bounds what must happen at some time, on however slow a machine.
const patient = time.Minute

// real is a server behind a listener, in real time.
type real struct {
	*world
	http *http.Client
	url  string
}

// newReal serves on a listener, with TLS if config is not nil.
func newReal(t *testing.T, l net.Listener, config *tls.Config, edit ...func(*server.Options)) *real {
	t.Helper()
	w := &real{url: "http://" + l.Addr().String(), http: &http.Client{Transport: &http.Transport{}, Timeout: patient}}
	w.world = serve(t, tenuretest.New(t), edit...)
	w.do = w.overNetwork
	s := w.HTTPServer()
	s.TLSConfig = config
	listen := s.Serve
	if config != nil {
		w.url = "https://" + l.Addr().String()
		listen = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
	}
	ended := testutil.Go(func() error { return listen(l) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patient)
		defer cancel()
		w.http.CloseIdleConnections()
		testutil.Want(t, errors.Join(w.Shutdown(ctx), s.Shutdown(ctx)), nil)
		testutil.Want(t, <-ended, http.ErrServerClosed)
	})
	return w
}

func loopback(t *testing.T) net.Listener {
	t.Helper()
	return testutil.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
}

// overNetwork makes a call over the network.
func (w *real) overNetwork(r *http.Request) answer {
	w.Helper()
	at := testutil.Must(url.Parse(w.url))(w.T)
	r.RequestURI, r.URL.Scheme, r.URL.Host, r.Host = "", at.Scheme, at.Host, ""
	res := testutil.Must(w.http.Do(r.WithContext(w.Context())))(w.T)
	defer func() { testutil.Want(w.T, res.Body.Close(), nil) }()
	return answerOf(w.T, res)
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

// A certificate that the TLS configuration has verified is a principal; a certificate that was
// only sent is not. Both over HTTP/1.1 and over HTTP/2.
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
				a := w.post("/v1/acquire", "", object{"name": "batch/a", "owner": "b-1"})
				if a.status != c.status {
					t.Fatalf("%d %s, want %d", a.status, a.text, c.status)
				}
				if c.status == 200 {
					if st := w.get("/v1/status?name=batch/a", ""); st.string("host") != "spiffe://corp/batch" {
						t.Errorf("the host is %s", st.text)
					}
					if a := w.get("/v1/locks", "wrong-secret-0123456789"); a.status != 401 {
						t.Errorf("a wrong token beside a certificate: %d", a.status)
					}
					w.post("/v1/release", "", object{"name": "batch/a", "token": 1, "after": a.string("beat")})
				}
			})
		}
	}
}
