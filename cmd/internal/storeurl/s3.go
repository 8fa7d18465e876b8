// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	service "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/s3store"
)

// s3 is what the URL of a store in a bucket says:
//
//	s3://BUCKET/PREFIX?region=REGION&endpoint=URL&profile=NAME&path_style=1&trust=1
type s3 struct {
	bucket string
	account
	// pathStyle has the bucket stand in the path, and not in the name of the host.
	pathStyle bool
	options   s3store.Options
}

func (b *s3) parameters() []parameter {
	return append(b.account.parameters(),
		toggle("path_style", "1", &b.pathStyle), toggle("trust", "1", &b.options.TrustServer))
}

// bucketName is what S3 and other servers have for the name of a bucket, but for its length.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*[a-z0-9]$`)

const maxBucketName = 63

// IsBucket reports whether a URL names a store that is paid for by the request, and that
// answers in tens of milliseconds. Such stores have longer leases by default.
func IsBucket(url string) bool { return strings.HasPrefix(url, "s3:") }

func readS3(rest string) (engine, error) {
	const write = "write s3://BUCKET/PREFIX?region=REGION"
	bucket, path, query, err := cut(rest, write)
	if err != nil {
		return nil, err
	}
	if err := awsName("bucket", bucket, path, write); err != nil {
		return nil, err
	}
	if len(bucket) < 3 || len(bucket) > maxBucketName || !bucketName.MatchString(bucket) {
		return nil, fmt.Errorf("bucket %.70q: it must have 3 to %d lower-case letters, digits, dots and dashes",
			bucket, maxBucketName)
	}
	b := s3{bucket: bucket}
	prefix, err := readPath(path)
	if err != nil {
		return nil, err
	}
	if prefix = strings.TrimSuffix(prefix, "/"); prefix != "" {
		b.options.Prefix = prefix + "/"
	}
	if err := readParameters(query, b.parameters()); err != nil {
		return nil, err
	}
	if _, err := b.unasked(); err != nil { // it says which prefix there cannot be
		return nil, errors.New(strings.TrimPrefix(err.Error(), "s3store: "))
	}
	return b, nil
}

func (b s3) text(bool) string {
	text := "s3://" + b.bucket
	if prefix := strings.TrimSuffix(b.options.Prefix, "/"); prefix != "" {
		text += "/" + escape(prefix)
	}
	return withParameters(text, b.parameters())
}

func (b s3) host() string { return b.hostOf("s3") }

// open returns a store whose bucket is there, and can be read. The first write tries the
// server: a command that looks need not.
func (b s3) open(ctx context.Context, f *found) (driver.Store, error) {
	store, err := b.connect(ctx, f)
	if err != nil {
		return nil, err
	}
	_, err = store.Get(ctx, driver.OwnPrefix+"open", driver.Strong)
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

func (b s3) connect(ctx context.Context, f *found) (driver.Store, error) {
	client, at, err := awsClient(ctx, b.account, func(cfg aws.Config) (*service.Client, *string) {
		client := service.NewFromConfig(cfg, func(o *service.Options) {
			if b.endpoint != "" {
				o.BaseEndpoint = &b.endpoint
			}
			o.UsePathStyle = b.pathStyle
		})
		return client, client.Options().BaseEndpoint
	})
	if err != nil {
		return nil, fmt.Errorf("bucket %q: %w", b.bucket, err)
	}
	b.account = at
	f.note(b)
	return s3store.New(client, b.bucket, &b.options)
}

func (b s3) unasked() (driver.Store, error) {
	return s3store.New(service.New(service.Options{Region: b.region}), b.bucket, &b.options)
}
