// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// workerURL is the variable of the test binary as a process of this test: the container.
const workerURL = "AZBLOBSTORE_TEST_URL"

func TestMain(m *testing.M) {
	if url := os.Getenv(workerURL); url != "" {
		if err := count(context.Background(), url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	enginetest.DefaultSignals()
	os.Exit(m.Run())
}

// The log of what was counted is one blob, which is written without a condition.
const counted = "counted"

func workerClient(url string) (*container.Client, *objects, error) {
	key, err := container.NewSharedKeyCredential(enginetest.AzureAccount, enginetest.AzureKey)
	if err != nil {
		return nil, nil, err
	}
	client, err := container.NewClientWithSharedKeyCredential(url, key, nil)
	if err != nil {
		return nil, nil, err
	}
	o, err := newObjects(client, nil)
	return client, o, err
}

// count adds to a log under a lock, again and again. It reads and writes it in two steps: two
// holders would write the same line.
func count(ctx context.Context, url string) error {
	raw, o, err := workerClient(url)
	if err != nil {
		return err
	}
	s, err := New(raw, nil)
	if err != nil {
		return err
	}
	client, err := tenure.New(s, &tenure.Options{LeaseDuration: 3 * time.Second})
	if err != nil {
		return err
	}
	for {
		err := client.Run(ctx, "counter", nil, func(ctx context.Context, lease *tenure.Lease) error {
			text, err := logAt(ctx, o)
			if err != nil || lease.Check() != nil {
				return nil //nolint:nilerr // the next holder goes on
			}
			text += fmt.Sprintf("%d %d %d\n", strings.Count(text, "\n")+1, os.Getpid(), lease.Token())
			// Once: what comes later would be a write without a lock.
			once := policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
			_, _ = raw.NewBlockBlobClient(counted).Upload(once, newBody([]byte(text)), nil)
			return nil
		})
		if errors.Is(err, driver.ErrPermanent) {
			return err
		}
	}
}

func logAt(ctx context.Context, o *objects) (string, error) {
	text, _, err := o.Get(ctx, counted)
	if errors.Is(err, driver.ErrNotFound) {
		return "", nil
	}
	return string(text), err
}

// TestAzuriteProcessesKilled has twenty processes count, and kills one after the other.
func TestAzuriteProcessesKilled(t *testing.T) {
	s := azurite(t)
	o := s.objects(t)
	enginetest.CountUnderKills(t, []string{workerURL + "=" + s.url}, func(ctx context.Context) (int, []enginetest.Counted, error) {
		text, err := logAt(ctx, o)
		if err != nil {
			return 0, nil, err
		}
		log, err := enginetest.ReadCounted(text)
		return len(log), log, err
	})
}
