// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// identity makes a certificate that is its own authority, for this machine. The text is
// the certificate and its key.
func identity(t *testing.T) (pair tls.Certificate, text []byte) {
	t.Helper()
	c, err := enginetest.NewCertificate("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Certificate, append(c.Key, c.Text...)
}

// TestEncryption has a server that accepts only encrypted connections from clients with a
// certificate.
func TestEncryption(t *testing.T) {
	server, serverText := identity(t)
	client, clientText := identity(t)
	dir := t.TempDir()
	files := map[string][]byte{"server.pem": serverText, "clients.pem": clientText}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port := enginetest.FreePort(t)
	enginetest.StartZooKeeper(
		t, 1, "forceSync=no", fmt.Sprintf("secureClientPort=%d", port), "secureClientPortAddress=127.0.0.1",
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory", "ssl.clientAuth=need",
		"ssl.keyStore.type=PEM", "ssl.keyStore.location="+filepath.Join(dir, "server.pem"),
		"ssl.trustStore.type=PEM", "ssl.trustStore.location="+filepath.Join(dir, "clients.pem"),
	)
	roots := x509.NewCertPool()
	roots.AddCert(server.Leaf)
	open := func(config *tls.Config, patience time.Duration) (*Store, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return Open(ctx, []string{fmt.Sprintf("127.0.0.1:%d", port)}, &Options{TLS: config, User: "app", Password: "secret"})
	}
	s, err := open(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{client}, MinVersion: tls.VersionTLS12}, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rec := mustClaim(t, s, "lock")
	hints, stop := enginetest.Watched(t, s, "lock")
	defer stop()
	if _, err := s.Swap(t.Context(), rec, released(rec)); err != nil {
		t.Error(err)
	}
	enginetest.WantHint(t, hints, "a release")
	if now, err := s.Get(t.Context(), "lock", driver.Strong); err != nil || now.State != driver.Released {
		t.Errorf("%+v, %v", now, err)
	}

	var trying sync.WaitGroup
	for name, c := range map[string]struct {
		config *tls.Config
		says   string
	}{
		"an authority that is not trusted": {&tls.Config{Certificates: []tls.Certificate{client}}, "unknown authority"},
		"another host's certificate":       {&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{client}, ServerName: "elsewhere"}, "elsewhere"},
		"no certificate of its own":        {&tls.Config{RootCAs: roots}, "certificate"},
		"no encryption":                    {nil, "no session"},
	} {
		trying.Go(func() {
			if s, err := open(c.config, 5*time.Second); s != nil || err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	trying.Wait()
}
