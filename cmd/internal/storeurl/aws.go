// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	tables "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	buckets "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"github.com/tenurelock/tenure/cmd/internal/pattern"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/s3store"
)

var regionName = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)

// account is the beginning of the parameters of a service of AWS. What is not there is the
// environment's, or the profile's.
func account(more ...parameter) []parameter {
	return append([]parameter{
		{name: "region", read: func(_ *place, value string) (string, error) {
			if !regionName().MatchString(value) {
				return "", fmt.Errorf("region=%.40s is not a region: write one such as eu-central-1", shown(value))
			}
			return value, nil
		}},
		{name: "endpoint", read: func(_ *place, value string) (string, error) { return readEndpoint(value) }},
		{name: "profile"},
	}, more...)
}

func readEndpoint(text string) (string, error) {
	const write = "write endpoint=http://HOST:PORT or endpoint=https://HOST"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return "", errors.New("endpoint= is not the address of a server: " + write)
	case u.User != nil:
		return "", errors.New("endpoint= has a user or a password: leave them out, " + write)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", errors.New(`endpoint= ends with its own "?" or "#": ` + write)
	}
	u.Host = strings.ToLower(u.Host)
	return strings.TrimRight(u.String(), "/"), nil
}

// readAWSName reads the name of a table or a bucket, and refuses other contents.
func (p *place) readAWSName(what, authority, path string) error {
	switch {
	case authority == "":
		return fmt.Errorf("the %s is missing: %s", what, p.write)
	case strings.Contains(authority+path, "@"):
		return errors.New("it contains a user or a password: credentials come from AWS_PROFILE, " +
			"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the machine's role; " + p.write)
	case strings.HasPrefix(authority, "localhost"), strings.Contains(authority, ":"):
		return fmt.Errorf("a host or a port is in the place of the %s's name: %s&endpoint=http://HOST:PORT", what, p.write)
	}
	p.name = authority
	return nil
}

func awsHost(p *place) string {
	if u, err := url.Parse(p.values["endpoint"]); err == nil && u.Hostname() != "" {
		return u.Hostname()
	}
	if region := p.values["region"]; region != "" {
		return p.scheme + "." + region + ".amazonaws.com"
	}
	return ""
}

// endpoint returns the endpoint of the URL, otherwise another one.
func (p *place) endpoint(other *string) *string {
	if named := p.values["endpoint"]; named != "" {
		return &named
	}
	return other
}

// awsClient returns a client with credentials and a region, and notes the client's settings in
// the place. It sends requests only for the credentials. Makes also returns the endpoint of the
// client that it makes, nil for the endpoint of AWS.
func awsClient[C any](ctx context.Context, p *place, makes func(aws.Config) (C, *string)) (client C, err error) {
	// A failure is reported once, by the error that the caller gets.
	options := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{})}
	if region := p.values["region"]; region != "" {
		options = append(options, config.WithRegion(region))
	}
	if profile := p.values["profile"]; profile != "" {
		options = append(options, config.WithSharedConfigProfile(profile))
	}
	if loopback(p.values["endpoint"]) {
		// Not for the sake of AWS_DEFAULTS_MODE=auto, either.
		options = append(options, config.WithEC2IMDSClientEnableState(imds.ClientDisabled))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		if missing := (config.SharedConfigProfileNotExistError{}); errors.As(err, &missing) {
			return client, fmt.Errorf("profile %q does not exist; see profile= in the URL, AWS_PROFILE, and ~/.aws/config",
				missing.Profile)
		}
		return client, fmt.Errorf("the configuration for AWS cannot be read; see ~/.aws/config, and the AWS_... variables: %w",
			err)
	}
	if _, endpoint := makes(cfg); loopback(aws.ToString(endpoint)) { // the environment may name it
		cfg.Credentials = p.credentialsAtHand(cfg)
	}
	if cfg.Region == "" {
		return client, errors.New("no region is named; write region= in the URL, or set AWS_REGION")
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		const advice = "there are no credentials for AWS; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and " +
			"AWS_SECRET_ACCESS_KEY, or give the machine a role"
		if strings.Contains(err.Error(), "no EC2 IMDS role found") { // the last resort: there were no others
			return client, &briefError{advice, err}
		}
		return client, fmt.Errorf("%s: %w", advice, err)
	}
	client, endpoint := makes(cfg)
	p.values["region"] = cfg.Region
	// An endpoint of the environment with a password is left out: no URL may hold it.
	p.values["endpoint"] = aws.ToString(endpoint)
	if _, err := readEndpoint(p.values["endpoint"]); err != nil {
		delete(p.values, "endpoint")
	}
	return client, nil
}

// loopback reports whether an endpoint is on this machine, as an emulator's is.
func loopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Hostname() != "" && driver.Near(u.Hostname())
}

// credentialsAtHand returns the credentials for an endpoint on this machine: the keys in
// the environment or in the profile, or otherwise placeholders. An emulator requires
// credentials, and accepts any. No other service is asked, neither for the machine's role
// nor for keys: that would take seconds, and make a laptop wait for a network that it does
// not need.
func (p *place) credentialsAtHand(cfg aws.Config) aws.CredentialsProvider {
	keys := aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}
	for _, source := range slices.Backward(cfg.ConfigSources) { // the first one counts
		switch source := source.(type) {
		case config.EnvConfig:
			if source.Credentials.HasKeys() && p.values["profile"] == "" { // a profile that is named comes first
				keys = source.Credentials
			}
		case config.SharedConfig:
			if source.Credentials.HasKeys() {
				keys = source.Credentials
			}
		}
	}
	return credentials.StaticCredentialsProvider{Value: keys}
}

// The rule of tableName is DynamoDB's own.
var (
	tableName = pattern.Lazy(`^[A-Za-z0-9_.-]+$`)
	tableARN  = pattern.Lazy(
		`^arn:aws[a-z-]*:dynamodb:([a-z]+(?:-[a-z]+)+-[0-9]):[0-9]{12}:table/([A-Za-z0-9_.-]+)$`)
)

func dynamodb() *engine {
	return &engine{
		scheme: "dynamodb", usage: "dynamodb://TABLE?region=REGION", write: "write dynamodb://TABLE?region=REGION",
		begin: func(p *place, table, path string) error {
			if arn := tableARN().FindStringSubmatch(table + path); arn != nil {
				return fmt.Errorf("an ARN is in the place of the table's name: write dynamodb://%s?region=%s", arn[2], arn[1])
			}
			err := p.readAWSName("table", table, path)
			switch {
			case err != nil:
				return err
			case path != "":
				return errors.New("a path follows the table's name: leave it out; " + p.write)
			case len(table) < 3 || len(table) > 255 || !tableName().MatchString(table):
				return fmt.Errorf("table name %.40q: it must have 3 to 255 letters, digits, and the characters _ . -", table)
			}
			return nil
		},
		parameters: account(
			parameter{name: "dialect", preset: dynamostore.Java.String(), read: readDialect},
			toggle("shared", "true"),
			parameter{name: "partition-key", preset: dynamostore.DefaultPartitionKey},
			parameter{name: "sort-key"}, parameter{name: "sort-value"},
			toggle("eventual-replicas", "true"), toggle("ttl", "true"), toggle("unshare", "true"),
		),
		check: func(p *place) error {
			if (p.values["sort-key"] == "") != (p.values["sort-value"] == "") {
				return errors.New("sort-key= and sort-value= go together: the name of the table's sort key, " +
					"and its value for the locks of this store")
			}
			return nil
		},
		host: awsHost, open: openTable, unasked: unaskedTable, probed: true,
	}
}

func readDialect(_ *place, value string) (string, error) {
	if _, err := dynamostore.ParseDialect(value); err != nil {
		return "", errors.New("dialect= is neither java nor dynamolock: leave it out, " +
			"or write the dialect of the other lock client of this table")
	}
	return value, nil
}

func (p *place) tableOptions() *dynamostore.Options {
	o := &dynamostore.Options{
		PartitionKey: p.values["partition-key"], SortKey: p.values["sort-key"], SortValue: p.values["sort-value"],
		SharedTable: p.is("shared"), EventualReplicas: p.is("eventual-replicas"),
		TimeToLive: p.is("ttl"), Unshare: p.is("unshare"), Dialect: dynamostore.Java,
	}
	if p.is("dialect") {
		o.Dialect = dynamostore.Dynamolock
	}
	return o
}

const (
	// An answer that says "not now" is asked for again so often.
	openAttempts = 3
	openPause    = 300 * time.Millisecond
)

func openTable(ctx context.Context, p *place, ask bool) (driver.Store, error) {
	client, err := p.tableClient(ctx)
	switch {
	case err != nil:
		return nil, err
	case !ask:
		return dynamostore.New(client, p.name, p.tableOptions())
	}
	for attempt := 1; ; attempt++ {
		store, err := dynamostore.Open(ctx, client, p.name, p.tableOptions())
		answered := smithy.APIError(nil)
		if attempt == openAttempts || !errors.As(err, &answered) || errors.Is(err, driver.ErrPermanent) {
			return store, err
		}
		select {
		case <-time.After(openPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (p *place) tableClient(ctx context.Context) (*tables.Client, error) {
	client, err := awsClient(ctx, p, func(cfg aws.Config) (*tables.Client, *string) {
		client := tables.NewFromConfig(cfg, func(o *tables.Options) { o.BaseEndpoint = p.endpoint(o.BaseEndpoint) })
		return client, client.Options().BaseEndpoint
	})
	if err != nil {
		return nil, fmt.Errorf("dynamodb table %q: %w", p.name, err)
	}
	return client, nil
}

func unaskedTable(p *place) (driver.Store, error) {
	return dynamostore.New(tables.New(tables.Options{Region: p.values["region"]}), p.name, p.tableOptions())
}

// bucketName is what S3 and other servers have for the name of a bucket, but for its length.
var bucketName = pattern.Lazy(`^[a-z0-9][a-z0-9.-]*[a-z0-9]$`)

const maxBucketName = 63

// IsBucket reports whether a URL names a store that is paid for by the request, and that
// answers in tens of milliseconds. Such stores have longer leases by default.
func IsBucket(url string) bool { return strings.HasPrefix(url, "s3:") }

func s3() *engine {
	return &engine{
		scheme: "s3", usage: "s3://BUCKET/PREFIX", write: "write s3://BUCKET/PREFIX?region=REGION",
		begin: func(p *place, bucket, path string) error {
			if err := p.readAWSName("bucket", bucket, path); err != nil {
				return err
			}
			if len(bucket) < 3 || len(bucket) > maxBucketName || !bucketName().MatchString(bucket) {
				return fmt.Errorf("bucket %.70q: it must have 3 to %d lower-case letters, digits, dots and dashes",
					bucket, maxBucketName)
			}
			return p.readPath(path)
		},
		// path_style puts the bucket into the path, not into the name of the host.
		parameters: account(toggle("path_style", "1"), toggle("trust", "1")),
		host:       awsHost, open: openBucket, unasked: unaskedBucket, probed: true,
	}
}

func (p *place) bucketOptions() *s3store.Options {
	o := &s3store.Options{TrustServer: p.is("trust")}
	if p.path != "" {
		o.Prefix = p.path + "/"
	}
	return o
}

// openBucket returns a store whose bucket exists and can be read. The first write tests the
// server: a command that only reads need not.
func openBucket(ctx context.Context, p *place, ask bool) (driver.Store, error) {
	client, err := awsClient(ctx, p, func(cfg aws.Config) (*buckets.Client, *string) {
		client := buckets.NewFromConfig(cfg, func(o *buckets.Options) {
			o.BaseEndpoint, o.UsePathStyle = p.endpoint(o.BaseEndpoint), p.is("path_style")
		})
		return client, client.Options().BaseEndpoint
	})
	if err != nil {
		return nil, fmt.Errorf("bucket %q: %w", p.name, err)
	}
	store, err := s3store.New(client, p.name, p.bucketOptions())
	if err != nil || !ask {
		return store, err
	}
	_, err = store.Get(ctx, driver.OwnPrefix+"open", driver.Strong)
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

func unaskedBucket(p *place) (driver.Store, error) {
	return s3store.New(buckets.New(buckets.Options{Region: p.values["region"]}), p.name, p.bucketOptions())
}
