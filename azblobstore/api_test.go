// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore

import (
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// TestAzuriteAPI runs the tests of package tenure, with their faults, on prefixes: each of
// their worlds has one for itself.
func TestAzuriteAPI(t *testing.T) {
	s := azurite(t)
	client := s.client(t)
	worlds := buckets.Worlds(s.objects(t), s.open(t, "").KeepsTokens(), func(prefix string, pageSize int) (driver.Store, error) {
		return Open(t.Context(), client, &Options{Prefix: prefix, PageSize: pageSize})
	})
	enginetest.RunAPI(t, enginetest.BuildAPI(t), worlds)
}
