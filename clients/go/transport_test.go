// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/server"
)

// service returns two servers on one store.
func service(t *testing.T) [2]*server.Server {
	t.Helper()
	store := memstore.New()
	var all [2]*server.Server
	for i := range all {
		c := testutil.Must(tenure.New(store.Open(), &tenure.Options{LeaseDuration: time.Minute}))(t)
		all[i] = testutil.Must(server.New(c, server.Options{Principals: testutil.Must(server.ParsePrincipals("ci " + secret + " admin:\n"))(t)}))(t)
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			testutil.Want(t, errors.Join(all[i].Shutdown(ctx), c.Close(ctx)), nil)
		})
	}
	return all
}

func dial(t *testing.T, o Options) *Client {
	t.Helper()
	if o.TokenFile == "" && o.Token == "" {
		o.Token = secret
	}
	c := testutil.Must(New(o))(t)
	t.Cleanup(func() { testutil.Want(t, c.Close(context.WithoutCancel(t.Context())), nil) })
	return c
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// holds takes a lock, shows that another client does not get it, and releases it while that waits.
func holds(t *testing.T, c *Client) {
	t.Helper()
	ctx := t.Context()
	l := testutil.Must(c.Acquire(ctx, "a", nil))(t)
	testutil.Want(t, l.Check(), nil)
	_, err := c.TryAcquire(ctx, "a", nil)
	testutil.Want(t, err, ErrHeld)
	met := make(chan string, 9)
	waited := testutil.Go(func() error {
		l, err := c.Acquire(ctx, "a", &AcquireOptions{Waiting: func(h *HeldError) { met <- h.Owner }})
		if err != nil {
			return err
		}
		return errors.Join(l.Check(), l.Release(ctx))
	})
	if owner := <-met; owner != c.Owner() {
		t.Errorf("it waits for %q", owner)
	}
	testutil.Want(t, l.Release(ctx), nil)
	testutil.Want(t, <-waited, nil)
}

func TestOverHTTP(t *testing.T) {
	both := service(t)
	one, two := serve(t, both[0]), serve(t, both[1])
	c := dial(t, Options{Servers: []string{one.URL, two.URL}})
	holds(t, c)

	// A server that has gone is passed over.
	l := testutil.Must(c.Acquire(t.Context(), "b", nil))(t)
	s := testutil.Must(c.OpenSession(t.Context()))(t)
	set := testutil.Must(s.AcquireAll(t.Context(), []string{"c", "d"}, nil))(t)
	one.CloseClientConnections()
	one.Close()
	testutil.Want(t, errors.Join(l.Check(), l.Release(t.Context()), set.Check(), set.Lease("d").Release(t.Context())), nil)
	_, err := c.TryAcquire(t.Context(), "c", nil)
	testutil.Want(t, err, ErrHeld)
	testutil.Want(t, s.Close(t.Context()), nil)
	testutil.Want(t, set.Check(), ErrSessionClosed)
	holds(t, c)
}

// The path of an address is before /v1, as behind a proxy; redirects are no answers.
func TestAPathAndARedirect(t *testing.T) {
	s := service(t)[0]
	mux := http.NewServeMux()
	mux.Handle("/locks/", http.StripPrefix("/locks", s))
	mux.Handle("/moved/", http.RedirectHandler("/locks/", http.StatusTemporaryRedirect))
	at := serve(t, mux).URL
	holds(t, dial(t, Options{Servers: []string{at + "/locks/"}}))
	_, err := dial(t, Options{Servers: []string{at + "/moved"}}).TryAcquire(t.Context(), "a", nil)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "307") {
		t.Errorf("got %v", err)
	}
}

func TestOverAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Skip(err)
	}
	s := httptest.NewUnstartedServer(service(t)[0])
	s.Listener = listener
	s.Start()
	defer s.Close()
	holds(t, dial(t, Options{Servers: []string{"unix:" + path}}))
}

// A server whose certificate is refused, or that speaks no TLS, answers no later call either.
func TestOverTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(service(t)[0])
	s.Config.ErrorLog = log.New(discard{}, "", 0)
	s.StartTLS()
	defer s.Close()
	plain := serve(t, service(t)[0])
	trusted := x509.NewCertPool()
	trusted.AddCert(s.Certificate())
	holds(t, dial(t, Options{Servers: []string{s.URL}, TLS: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}))
	for name, at := range map[string]string{
		"authority": s.URL, "plain": strings.Replace(s.URL, "https", "http", 1), "no TLS": strings.Replace(plain.URL, "http", "https", 1),
	} {
		_, err := dial(t, Options{Servers: []string{at}}).Acquire(t.Context(), "a", nil)
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	demanding := httptest.NewUnstartedServer(service(t)[0])
	demanding.Config.ErrorLog = s.Config.ErrorLog
	demanding.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	demanding.StartTLS()
	defer demanding.Close()
	trusted.AddCert(demanding.Certificate())
	_, err := dial(t, Options{Servers: []string{demanding.URL}, TLS: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}).Acquire(t.Context(), "a", nil)
	testutil.Want(t, err, ErrUnavailable)
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// The file of a token is read again for each call, and a file that cannot be read leaves the token as it was.
func TestATokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) { testutil.Want(t, os.WriteFile(file, []byte(text), 0o600), nil) }
	_, err := New(Options{Servers: []string{"http://127.0.0.1:1"}, TokenFile: file})
	testutil.Want(t, err, os.ErrNotExist)
	write("another\n")
	c := dial(t, Options{Servers: []string{serve(t, service(t)[0]).URL}, TokenFile: file})
	_, err = c.TryAcquire(t.Context(), "a", nil)
	var p *ProblemError
	if !errors.As(err, &p) || p.Kind != "unauthenticated" {
		t.Errorf("got %v", err)
	}
	write(secret + "\n")
	holds(t, c)
	write("")
	holds(t, c)
	testutil.Want(t, os.Remove(file), nil)
	holds(t, c)
}

// The servers of clients/test: tenured, on one store, by TCP and by a socket.
func TestTenured(t *testing.T) {
	servers := os.Getenv("TENURE_TEST_SERVERS")
	if servers == "" {
		t.Skip("clients/test runs it")
	}
	all := append(strings.Split(servers, ","), os.Getenv("TENURE_TEST_TLS"))
	ca := testutil.Must(os.ReadFile(os.Getenv("TENURE_TEST_CA")))(t)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca)
	for _, some := range [][]string{all, {all[0]}, {all[2]}, {all[3]}, {"http://127.0.0.1:1", all[1]}} {
		c := dial(t, Options{
			Servers: some, TokenFile: os.Getenv("TENURE_TEST_TOKEN_FILE"), TLS: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12},
		})
		holds(t, c)
		s := testutil.Must(c.OpenSession(t.Context()))(t)
		set := testutil.Must(s.AcquireAll(t.Context(), []string{"b", "a", "c"}, nil))(t)
		testutil.Want(t, errors.Join(set.Check(), set.Lease("b").Release(t.Context())), nil)
		_, err := c.TryAcquire(t.Context(), "a", nil)
		testutil.Want(t, err, ErrHeld)
		testutil.Want(t, s.Close(t.Context()), nil)
		holds(t, c)
	}
}
