// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// certify makes an authority and what it has signed:
//
//	certify DNSNAME CLIENT
//
// in ca.pem, server.pem with server.key, and client.pem with client.key. The server's is
// for 127.0.0.1 too.
func certify() error {
	ca, err := enginetest.NewCertificate("authority", nil)
	if err != nil {
		return err
	}
	err = ca.WriteFiles("ca.pem", "ca.key")
	for file, name := range map[string]string{"server": os.Args[1], "client": os.Args[2]} {
		c, failed := enginetest.NewCertificate(name, ca)
		if failed != nil {
			return failed
		}
		err = errors.Join(err, c.WriteFiles(file+".pem", file+".key"))
	}
	return err
}

// clientTLS is the configuration of a client that trusts the authority in a file, and
// sends a certificate if there is one.
func clientTLS(ca, cert, key string) (*tls.Config, error) {
	if ca == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate in " + ca)
	}
	if cert == "" {
		return config, nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	config.Certificates = []tls.Certificate{pair}
	return config, err
}
