// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// cluster is what the URLs of etcd and ZooKeeper have in common:
//
//	//USER@HOST:PORT,HOST:PORT/PATH?ca=FILE&cert=FILE&key=FILE&password_file=FILE
type cluster struct {
	servers
	path string // without slashes around it that are not its own
	// ca, cert and key are PEM files. ca "": those that the system trusts.
	ca, cert, key string
}

func (c *cluster) parameters() []parameter {
	return append([]parameter{file("ca", &c.ca), file("cert", &c.cert), file("key", &c.key)}, c.servers.parameters()...)
}

// read reads what follows the colon. Write says how such a URL looks, port is that of a host
// that has none, and parameters are also the engine's own.
func (c *cluster) read(rest, write, port string, parameters ...parameter) error {
	authority, path, query, err := cut(rest, write)
	if err != nil {
		return err
	}
	if c.servers, err = readServers(authority, write); err != nil {
		return err
	}
	for i := range c.hosts {
		h := &c.hosts[i]
		if h.name == "" || strings.Contains(h.name, "/") {
			return errors.New("a host is missing, or cannot be read: " + write)
		}
		if h.port == "" {
			h.port = port
		}
	}
	if c.path, err = readPath(path); err != nil {
		return err
	}
	c.path = strings.TrimSuffix(c.path, "/")
	if err := readParameters(query, append(c.parameters(), parameters...)); err != nil {
		return err
	}
	if (c.cert == "") != (c.key == "") {
		return errors.New("cert= and key= go together: the client's certificate, and its key")
	}
	return c.check()
}

// url returns the URL, with the engine's own parameters, too.
func (c cluster) url(scheme string, secrets bool, parameters ...parameter) string {
	text := scheme + "://" + c.authority(secrets)
	if behind, slash := strings.CutPrefix(c.path, "/"); slash { // it is the prefix's own
		text += "/%2F" + escape(behind)
	} else if c.path != "" {
		text += "/" + escape(c.path)
	}
	return withParameters(text, append(c.parameters(), parameters...))
}

// addresses are the hosts with their ports, as they are dialled.
func (c cluster) addresses() (all []string) {
	for _, h := range c.hosts {
		all = append(all, net.JoinHostPort(h.name, h.port))
	}
	return all
}

// reachable returns why no host takes a connection, one that is encrypted if there is a config
// for that. The clients of some engines try on and on, and do not tell.
func (c cluster) reachable(ctx context.Context, config *tls.Config) error {
	var first error
	refused := false
	for _, address := range c.addresses() {
		dialing, cancel := context.WithTimeout(ctx, openPatience/time.Duration(len(c.hosts)+1))
		conn, err := dial(dialing, address, config)
		cancel()
		if err == nil {
			_ = conn.Close() // it has served
			return nil
		}
		refused = refused || errors.As(err, new(*tls.CertificateVerificationError))
		first = errors.Join(first, err)
	}
	what, see := "none of the hosts can be reached", "see that the engine runs, and that the addresses are right"
	if len(c.hosts) == 1 {
		what, see = c.addresses()[0]+" cannot be reached", "see that the engine runs, and that the address is right"
	}
	if refused {
		see = "its certificate is not good for this client"
	}
	return fmt.Errorf("%s: %s: %w", what, see, first)
}

// dial makes a connection, encrypted if there is a config for that.
func dial(ctx context.Context, address string, config *tls.Config) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil || config == nil {
		return conn, err
	}
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
		config.ServerName, _, _ = strings.Cut(config.ServerName, "%") // a certificate has no zone
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // nothing was sent that matters
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return secure, nil
}

// encryption returns how the client checks the servers, and shows who it is itself; nil if
// neither the scheme nor a file asks for that.
func (c cluster) encryption(asked bool) (*tls.Config, error) {
	if !asked && c.ca == "" && c.cert == "" {
		return nil, nil //nolint:nilnil // as in the configurations of the engines
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.ca != "" {
		text, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, driver.Permanent(fmt.Errorf("ca=: %w", err))
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, driver.Permanent(fmt.Errorf("ca=%s has no certificate in the form of PEM", c.ca))
		}
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, driver.Permanent(fmt.Errorf("cert=, key=: %w", err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
