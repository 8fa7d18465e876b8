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
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/s3store"
)

// S3 is what the URL of a store in a bucket says:
//
//	s3://BUCKET/PREFIX?region=REGION&endpoint=URL&path_style=1&profile=NAME&trust=1
type S3 struct {
	Bucket string
	Account
	// PathStyle has the bucket stand in the path, and not in the name of the host.
	PathStyle bool
	Options   s3store.Options

	found *found
}

// s3Parameters are those of a URL, in the order in which they are written.
var s3Parameters = []string{"region", "endpoint", "path_style", "profile", "trust"}

// bucketName is what S3 and other servers have for the name of a bucket, but for its length.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*[a-z0-9]$`)

const maxBucketName = 63

func parseS3(rest string) (Location, error) {
	b, err := readS3(rest)
	if err != nil {
		return Location{}, err
	}
	return Location{engine: b, current: func() string { return b.found.or(b.URL()) }, open: b.open}, nil
}

// IsBucket reports whether a URL names a store that is paid for by the request, and that
// answers in tens of milliseconds. Such stores have longer leases by default.
func IsBucket(url string) bool { return strings.HasPrefix(url, "s3:") }

func readS3(text string) (S3, error) {
	const write = "write s3://BUCKET/PREFIX?region=REGION"
	b := S3{found: new(found)}
	text, slashes := strings.CutPrefix(text, "//")
	path, query, _ := strings.Cut(text, "?")
	bucket, prefix, _ := strings.Cut(path, "/")
	switch {
	case !slashes || bucket == "":
		return b, errors.New("the bucket is missing: " + write)
	case strings.Contains(path, "@"):
		return b, errors.New("a user or a password stands in it: credentials come from AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the machine's role; " + write)
	case strings.HasPrefix(bucket, "localhost"), strings.Contains(bucket, ":"):
		return b, errors.New("a host or a port stands where the bucket's name belongs: write s3://BUCKET/PREFIX?region=REGION&endpoint=https://HOST")
	case strings.Contains(text, "#"):
		return b, errors.New(`it has a "#": write %23 in its place`)
	case len(bucket) < 3 || len(bucket) > maxBucketName || !bucketName.MatchString(bucket):
		return b, fmt.Errorf("bucket %.70q: it must have 3 to %d lower-case letters, digits, dots and dashes", bucket, maxBucketName)
	}
	values, err := readParameters(query, s3Parameters)
	if err != nil {
		return b, err
	}
	if err := pathParts(prefix, prefix); err != nil {
		return b, err
	}
	b.Bucket = bucket
	if err := b.read(values); err != nil {
		return b, err
	}
	if err := readSwitches(values, true, map[string]*bool{"path_style": &b.PathStyle, "trust": &b.Options.TrustServer}); err != nil {
		return b, err
	}
	if prefix = strings.TrimSuffix(prefix, "/"); prefix != "" {
		b.Options.Prefix = prefix + "/"
	}
	// It sends nothing: it says which prefix there cannot be.
	if _, err := s3store.New(s3.New(s3.Options{}), b.Bucket, &b.Options); err != nil {
		return b, errors.New(strings.TrimPrefix(err.Error(), "s3store: "))
	}
	return b, nil
}

// URL returns the URL that says the same: what is a default is left out, and the rest stands
// in one order.
func (b S3) URL() string {
	values := b.values()
	if b.PathStyle {
		values["path_style"] = "1"
	}
	if b.Options.TrustServer {
		values["trust"] = "1"
	}
	text := "s3://" + b.Bucket
	if prefix := strings.TrimSuffix(b.Options.Prefix, "/"); prefix != "" {
		text += "/" + prefix
	}
	return withParameters(text, s3Parameters, values)
}

// open returns a store whose bucket is there, and can be read. The first write tries the
// server: a command that looks need not.
func (b S3) open() (driver.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	store, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := store.Get(ctx, driver.OwnPrefix+"open", driver.Strong); err != nil && !errors.Is(err, driver.ErrNotFound) {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

func (b S3) connect(ctx context.Context) (driver.Store, error) {
	client, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	return s3store.New(client, b.Bucket, &b.Options)
}

func (b S3) unasked() (driver.Store, error) {
	return s3store.New(s3.New(s3.Options{Region: b.Region}), b.Bucket, &b.Options)
}

// client returns one that has credentials and a region. It sends requests only for the
// credentials.
func (b S3) client(ctx context.Context) (*s3.Client, error) {
	make := func(cfg aws.Config) *s3.Client {
		return s3.NewFromConfig(cfg, func(o *s3.Options) {
			if b.Endpoint != "" {
				o.BaseEndpoint = &b.Endpoint
			}
			o.UsePathStyle = b.PathStyle
		})
	}
	cfg, err := b.config(ctx, func(cfg aws.Config) *string { return make(cfg).Options().BaseEndpoint })
	if err != nil {
		return nil, fmt.Errorf("bucket %q: %w", b.Bucket, err)
	}
	client := make(cfg)
	at := b
	at.Account = b.located(client.Options().Region, client.Options().BaseEndpoint)
	b.found.note(at.URL())
	return client, nil
}
