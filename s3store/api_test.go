// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// TestAPI runs the tests of package tenure, with their faults, on prefixes: each of their
// worlds has one for itself.
func TestAPI(t *testing.T) { runAPI(t, newSite(t)) }

func TestVersitygwAPI(t *testing.T) {
	runAPI(t, siteAt(enginetest.StartVersitygw(t, 1, "locks")[0].URL))
}

func runAPI(t *testing.T, s site) {
	client := s.client(t)
	worlds := buckets.Worlds(newObjects(client, s.bucket), s.open(t, "").KeepsTokens(), func(prefix string, pageSize int) (driver.Store, error) {
		return Open(t.Context(), client, s.bucket, &Options{Prefix: prefix, PageSize: pageSize})
	})
	enginetest.RunAPI(t, enginetest.BuildAPI(t), worlds)
}
