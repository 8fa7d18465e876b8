// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/tokenfile"
)

// serverFlags are those of an examination of a lock service.
type serverFlags struct {
	Server    *string
	TokenFile *string
	CAFile    *string `name:"ca-file"`
	Lock      string  `default:"doctor"`
}

// service returns what is to be examined.
func (f *serverFlags) service() (doctor.Service, error) {
	s := doctor.Service{URL: *f.Server, Lock: f.Lock}
	if err := checkTaken(tenure.Options{}, f.Lock); err != nil {
		return s, fmt.Errorf("--lock: %w", err)
	}
	if f.CAFile != nil {
		pem, err := os.ReadFile(*f.CAFile)
		if err != nil {
			return s, usage("--ca-file: %w", err)
		}
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
		if !s.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return s, usage("--ca-file: %s has no certificate in it, in PEM", *f.CAFile)
		}
	}
	var err error
	s.Token, err = f.token()
	return s, err
}

// token reads the token: from the file that is named, or the one that tenured has made for
// this user, if there is one.
func (f *serverFlags) token() (string, error) {
	if f.TokenFile == nil {
		path, err := tokenfile.Own()
		if err != nil {
			return "", nil //nolint:nilerr // there is none, which the doctor tells
		}
		secret, err := tokenfile.Secret(path)
		if errors.Is(err, os.ErrNotExist) {
			return "", nil
		}
		return secret, err
	}
	text, err := os.ReadFile(*f.TokenFile)
	if err != nil {
		return "", usage("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\n") {
		return "", usage("--token-file: %s must have a token in it, and nothing else", *f.TokenFile)
	}
	return token, nil
}

// examineServer is tenure doctor --server.
func (f *doctorCmd) examineServer(c *console) error {
	s, err := f.service()
	if err != nil {
		return err
	}
	ctx, stop := catchSignals().cancel(context.Background())
	defer stop()
	r := report{c: c}
	s.Tell = r.tell
	bad, err := doctor.ExamineService(ctx, s)
	if err != nil && !errors.Is(err, doctor.ErrNoService) && context.Cause(ctx) == nil {
		return usage("%w", err)
	}
	return r.end(ctx, bad, err)
}
