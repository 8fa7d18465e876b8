// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"
)

// certificates are the TLS files, which are read again when they have changed. If a changed
// file is not valid, that is logged, and the previous files stay in use.
type certificates struct {
	cert, key, clientCA string
	log                 *slog.Logger

	mu      sync.Mutex
	config  *tls.Config
	stamps  [3]stamp
	checked time.Time
}

// stamp identifies a version of a file.
type stamp struct {
	changed time.Time
	size    int64
}

// recheck is how long read files are used before they are checked again.
const recheck = time.Second

// newCertificates reads the files. ClientCA may be empty: then no client is asked for a
// certificate.
func newCertificates(cert, key, clientCA string, log *slog.Logger) (*certificates, error) {
	c := &certificates{cert: cert, key: key, clientCA: clientCA, log: log}
	c.stamps, c.checked = c.look(), time.Now()
	config, err := c.read()
	c.config = config
	return c, err
}

// server returns the configuration of a listener.
func (c *certificates) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			config := c.current()
			if conn := limitedOf(hello.Conn); conn != nil {
				conn.authorities.Store(config.ClientCAs)
			}
			return config, nil
		},
	}
}

// verified says whether the authorities of client certificates are still those that verified
// the connection of a call.
func (c *certificates) verified(r *http.Request) bool {
	conn, _ := r.Context().Value(connKey{}).(*limitedConn)
	return conn == nil || conn.authorities.Load().Equal(c.current().ClientCAs)
}

// current returns the configuration for a new connection.
func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < recheck {
		return c.config
	}
	c.checked = time.Now()
	now := c.look()
	if now == c.stamps {
		return c.config
	}
	c.stamps = now
	config, err := c.read()
	if err != nil {
		c.log.Error("the changed TLS files cannot be used: the previous ones stay in use", "error", err)
		return c.config
	}
	c.log.Info("the TLS files were read again", "cert", c.cert)
	c.config = config
	return config
}

func (c *certificates) look() (all [3]stamp) {
	for i, file := range []string{c.cert, c.key, c.clientCA} {
		if info, err := os.Stat(file); err == nil {
			all[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return all
}

func (c *certificates) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", c.cert, c.key, err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{pair},
	}
	if c.clientCA == "" {
		return config, nil
	}
	pem, err := os.ReadFile(c.clientCA)
	if err != nil {
		return nil, fmt.Errorf("certificates of --client-ca: %w", err)
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no certificate in PEM format: --client-ca names the authorities that sign "+
			"client certificates", c.clientCA)
	}
	// A client without one may have a token.
	config.ClientAuth = tls.VerifyClientCertIfGiven
	return config, nil
}

// names returns the hosts that the certificate is for: they are what clients call this
// server.
func (c *certificates) names() []string {
	leaf := c.config.Certificates[0].Leaf
	if leaf == nil {
		return nil
	}
	all := leaf.DNSNames
	for _, ip := range leaf.IPAddresses {
		all = append(all, ip.String())
	}
	return all
}
