// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server/dashboard"
)

// leastKey is how long the key of the page is at least, in bytes.
const leastKey = 32

// dashboard makes the pages, unless they are not wanted.
func (f *serviceFlags) dashboard(s *service) error {
	if f.NoPage {
		if f.PageKey != "" {
			return fmt.Errorf("--page-key and --no-page exclude each other")
		}
		return nil
	}
	var key []byte
	var err error
	if f.PageKey != "" {
		if key, err = pageKey(f.PageKey); err != nil {
			return err
		}
	}
	s.pages, err = dashboard.New(dashboard.Options{
		Server: s.server, Key: key, Title: f.PageTitle, Doctor: examine(s.location, s.client.Options()),
	})
	return err
}

// examine makes the checks of the options and the engine for the page: the checks of tenure
// doctor that need no separate store.
func examine(at storeurl.Location, o tenure.Options) func(context.Context) []driver.Finding {
	return func(ctx context.Context) []driver.Finding {
		return append(doctor.Numbers(o), doctor.Look(ctx, doctor.Patient{Diagnose: at.Diagnose, Options: o})...)
	}
}

// pageKey reads the key that encrypts the cookies of the page.
func pageKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--page-key: %w", err)
	}
	if len(key) < leastKey {
		return nil, fmt.Errorf("--page-key: %s has %d bytes, and must have %d or more: openssl rand -out %s %d",
			path, len(key), leastKey, path, leastKey)
	}
	return key, nil
}
