// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// workerURL is the variable of the test binary as a process of this test: the server.
const workerURL = "GCSSTORE_TEST_URL"

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

// The log of what was counted is one object, which is written without a condition.
const counted = "counted"

// count adds to a log under a lock, again and again. It reads and writes it in two steps: two
// holders would write the same line.
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
			_, _ = upload(ctx, o.handle.Object(counted), []byte(text))
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

// TestFakeGCSProcessesKilled has twenty processes count, and kills one after the other.
func TestFakeGCSProcessesKilled(t *testing.T) {
	url := enginetest.StartFakeGCS(t, "locks").URL
	o := newObjects(siteAt(url).client(t), "locks", nil)
	enginetest.CountUnderKills(t, []string{workerURL + "=" + url}, func(ctx context.Context) (int, []enginetest.Counted, error) {
		text, err := logAt(ctx, o)
		if err != nil {
			return 0, nil, err
		}
		log, err := enginetest.ReadCounted(text)
		return len(log), log, err
	})
}
