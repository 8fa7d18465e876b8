// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore

import (
	"context"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// workerURL is the variable of the test binary as a process of this test: the container.
const workerURL = "AZBLOBSTORE_TEST_URL"

func TestMain(m *testing.M) { enginetest.Main(m, workerURL, count) }

func count(ctx context.Context, url string) error {
	key, err := container.NewSharedKeyCredential(enginetest.AzureAccount, enginetest.AzureKey)
	if err != nil {
		return err
	}
	client, err := container.NewClientWithSharedKeyCredential(url, key, nil)
	if err != nil {
		return err
	}
	o, err := newObjects(client, nil)
	if err != nil {
		return err
	}
	s, err := New(client, nil)
	if err != nil {
		return err
	}
	return buckets.Count(ctx, s, o, func(ctx context.Context, text []byte) {
		once := policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
		_, _ = client.NewBlockBlobClient(buckets.Counted).Upload(once, newBody(text), nil)
	})
}

// TestAzuriteProcessesKilled has twenty processes count, and kills one after the other.
func TestAzuriteProcessesKilled(t *testing.T) {
	s := azurite(t)
	buckets.CountUnderKills(t, []string{workerURL + "=" + s.url}, s.objects(t))
}
