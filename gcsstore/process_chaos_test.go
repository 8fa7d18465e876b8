// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore

import (
	"context"
	"testing"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// workerURL is the variable of the test binary as a process of this test: the server.
const workerURL = "GCSSTORE_TEST_URL"

func TestMain(m *testing.M) { enginetest.Main(m, workerURL, count) }

func count(ctx context.Context, url string) error {
	raw, err := storage.NewClient(ctx, option.WithEndpoint(url+"/storage/v1/"), option.WithoutAuthentication())
	if err != nil {
		return err
	}
	o := newObjects(raw, "locks", nil)
	s, err := New(raw, o.bucket, nil)
	if err != nil {
		return err
	}
	return buckets.Count(ctx, s, o, func(ctx context.Context, text []byte) {
		_, _ = upload(ctx, o.handle.Object(buckets.Counted), text)
	})
}

// TestFakeGCSProcessesKilled has twenty processes count, and kills one after the other.
func TestFakeGCSProcessesKilled(t *testing.T) {
	url := enginetest.StartFakeGCS(t, "locks").URL
	buckets.CountUnderKills(t, []string{workerURL + "=" + url}, newObjects(siteAt(url).client(t), "locks", nil))
}
