// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore

import (
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// TestFakeGCSAPI runs the tests of package tenure, with their faults, on prefixes: each of
// their worlds has one for itself.
func TestFakeGCSAPI(t *testing.T) {
	s := siteAt(enginetest.StartFakeGCS(t, "locks").URL)
	client := s.client(t)
	worlds := buckets.Worlds(newObjects(client, s.bucket, nil), s.open(t, "").KeepsTokens(), func(prefix string, pageSize int) (driver.Store, error) {
		return Open(t.Context(), client, s.bucket, &Options{Prefix: prefix, PageSize: pageSize})
	})
	enginetest.RunAPI(t, enginetest.BuildAPI(t), worlds)
}
