// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/dashboard"
)

// leastKey is how long the key of the page is at least, in bytes.
const leastKey = 32

// pages makes the dashboard, unless it is not wanted.
func (f *serviceFlags) pages(s *service, log *slog.Logger) (http.Handler, error) {
	if f.NoPage {
		if f.PageKey != "" {
			return nil, fmt.Errorf("--page-key and --no-page exclude each other")
		}
		return nil, nil
	}
	var key []byte
	if f.PageKey != "" {
		var err error
		if key, err = pageKey(f.PageKey); err != nil {
			return nil, err
		}
	}
	d, err := dashboard.New(dashboard.Options{
		Client: s.client, Access: s.principals, Key: key, Title: f.PageTitle, Audit: access.Audit(log),
		Doctor:  newEngineDoctor(s.location, s.client.Options()).look,
		ErrorID: func(err error) string { return s.server.ErrorID(err) },
		Admit: func(r *http.Request, p access.Principal, secret string) time.Duration {
			return s.server.Admit(r, p, secret)
		},
		Wrong:        func(r *http.Request, secret string) time.Duration { return s.server.WrongToken(r, secret) },
		Authenticate: func(r *http.Request) (access.Principal, bool) { return s.server.Principal(r) },
	})
	if err != nil {
		return nil, err
	}
	s.pages = d
	return d, nil
}

// pageKey reads the key that seals the cookies of the page.
func pageKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--page-key: %w", err)
	}
	if len(key) < leastKey {
		return nil, fmt.Errorf("--page-key: %s has %d bytes, and must have %d or more: openssl rand -out %s %d", path, len(key), leastKey, path, leastKey)
	}
	return key, nil
}
