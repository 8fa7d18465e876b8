// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// workerURLs is the variable of the test binary as a process of this test: the servers, of
// which each process takes one.
const workerURLs = "S3STORE_TEST_URLS"

func TestMain(m *testing.M) {
	if urls := os.Getenv(workerURLs); urls != "" {
		all := strings.Fields(urls)
		if err := count(context.Background(), all[os.Getpid()%len(all)]); err != nil {
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

func workerClient(url string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &url, Region: enginetest.S3Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(enginetest.S3Key, enginetest.S3Secret, ""),
	})
}

// count adds to a log under a lock, again and again. It reads and writes it in two steps: two
// holders would write the same line.
func count(ctx context.Context, url string) error {
	raw := workerClient(url)
	s, err := New(raw, "locks", nil)
	if err != nil {
		return err
	}
	client, err := tenure.New(s, &tenure.Options{LeaseDuration: 3 * time.Second})
	if err != nil {
		return err
	}
	for {
		err := client.Run(ctx, "counter", nil, func(ctx context.Context, lease *tenure.Lease) error {
			text, err := logAt(ctx, raw)
			if err != nil || lease.Check() != nil {
				return nil //nolint:nilerr // the server is being killed: the next holder goes on
			}
			text += fmt.Sprintf("%d %d %d\n", strings.Count(text, "\n")+1, os.Getpid(), lease.Token())
			// Once: what comes later would be a write without a lock.
			_, _ = raw.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String("locks"), Key: aws.String(counted), Body: bytes.NewReader([]byte(text))}, func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
			return nil
		})
		if errors.Is(err, driver.ErrPermanent) {
			return err
		}
	}
}

func logAt(ctx context.Context, client *s3.Client) (string, error) {
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("locks"), Key: aws.String(counted)})
	if absent := (*types.NoSuchKey)(nil); errors.As(err, &absent) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(out.Body)
	return string(body), errors.Join(err, out.Body.Close())
}

// TestVersitygwProcessesKilled has twenty processes count, half of them through each of two
// gateways over one folder, and kills one after the other; and the gateways in turn, which
// start again.
func TestVersitygwProcessesKilled(t *testing.T) {
	gateways := enginetest.StartVersitygw(t, 2, "locks")
	var urls []string
	for _, g := range gateways {
		urls = append(urls, g.URL)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Second):
			}
			g := gateways[n%len(gateways)]
			g.Kill()
			g.Start()
			g.Await()
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	client := workerClient(urls[0])
	enginetest.CountUnderKills(t, []string{workerURLs + "=" + strings.Join(urls, " ")}, func(ctx context.Context) (int, []enginetest.Counted, error) {
		var text string
		var err error
		for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
			if text, err = logAt(ctx, client); err == nil {
				break
			}
		}
		if err != nil {
			return 0, nil, err
		}
		log, err := enginetest.ReadCounted(text)
		return len(log), log, err
	})
}
