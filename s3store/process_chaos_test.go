// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// workerURLs is the variable of the test binary as a process of this test: the servers, of
// which each process takes one.
const workerURLs = "S3STORE_TEST_URLS"

func TestMain(m *testing.M) { enginetest.Main(m, workerURLs, count) }

func workerClient(url string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &url, Region: enginetest.S3Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(enginetest.S3Key, enginetest.S3Secret, ""),
	})
}

func count(ctx context.Context, urls string) error {
	all := strings.Fields(urls)
	raw := workerClient(all[os.Getpid()%len(all)])
	s, err := New(raw, "locks", nil)
	if err != nil {
		return err
	}
	return buckets.Count(ctx, s, newObjects(raw, "locks"), func(ctx context.Context, text []byte) {
		in := &s3.PutObjectInput{Bucket: aws.String("locks"), Key: aws.String(buckets.Counted), Body: bytes.NewReader(text)}
		_, _ = raw.PutObject(ctx, in, func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
	})
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
	buckets.CountUnderKills(t, []string{workerURLs + "=" + strings.Join(urls, " ")}, newObjects(workerClient(urls[0]), "locks"))
}
