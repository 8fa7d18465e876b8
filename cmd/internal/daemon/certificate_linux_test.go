// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
)

// clientTLS is that of a client that trusts the authority in a file, and shows a
// certificate if there is one.
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
