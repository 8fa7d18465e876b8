// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
)

const (
	// openPatience bounds the opening of a store on DynamoDB, credentials
	// included. The service that hands them out to a machine may take seconds.
	openPatience = 7 * time.Second
	// An answer that says "not now" is asked for again so often.
	openAttempts = 3
	openPause    = 300 * time.Millisecond
)

// opener opens one store on DynamoDB, as often as it is asked to.
type opener struct {
	d DynamoDB
	// connected is d with the region and the endpoint that were found.
	connected atomic.Pointer[DynamoDB]
}

// open connects, and sees that the table is there and fit for locks.
func (o *opener) open() (driver.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	client, err := o.client(ctx)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		store, err := dynamostore.Open(ctx, client, o.d.Table, &o.d.Options)
		answered := smithy.APIError(nil)
		if err == nil {
			return store, nil
		}
		if attempt == openAttempts || !errors.As(err, &answered) || errors.Is(err, driver.ErrPermanent) {
			return nil, err
		}
		select {
		case <-time.After(openPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (o *opener) connect(ctx context.Context) (driver.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	client, err := o.client(ctx)
	if err != nil {
		return nil, err
	}
	return dynamostore.New(client, o.d.Table, &o.d.Options)
}

func (o *opener) unasked() (driver.Store, error) {
	return dynamostore.New(dynamodb.New(dynamodb.Options{Region: o.d.Region}), o.d.Table, &o.d.Options)
}

// client returns one that has credentials and a region. It sends requests only for the
// credentials.
func (o *opener) client(ctx context.Context) (*dynamodb.Client, error) {
	client, err := o.d.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("dynamodb table %q: %w", o.d.Table, err)
	}
	found := o.d
	found.Region, found.Endpoint = client.Options().Region, aws.ToString(client.Options().BaseEndpoint)
	if _, err := endpoint(found.Endpoint); err != nil {
		found.Endpoint = "" // the environment's, with a password: no URL may hold it, and none is read that does
	}
	o.connected.Store(&found)
	return client, nil
}

func (o *opener) url() string {
	if found := o.connected.Load(); found != nil {
		return found.URL()
	}
	return o.d.URL()
}

func (d DynamoDB) connect(ctx context.Context) (*dynamodb.Client, error) {
	make := func(cfg aws.Config) *dynamodb.Client {
		return dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
			if d.Endpoint != "" {
				o.BaseEndpoint = &d.Endpoint
			}
		})
	}
	cfg, err := account{d.Region, d.Profile, d.Endpoint}.config(ctx, func(cfg aws.Config) *string { return make(cfg).Options().BaseEndpoint })
	if err != nil {
		return nil, err
	}
	return make(cfg), nil
}

// account is what a URL says of how a service of AWS is reached.
type account struct{ region, profile, endpoint string }

// config returns what a client is made of: it has a region and credentials. Endpoint returns
// that of a client, "" for that of AWS.
func (a account) config(ctx context.Context, endpoint func(aws.Config) *string) (aws.Config, error) {
	// What goes wrong is told once, by the error of whoever it stops.
	options := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{})}
	if a.region != "" {
		options = append(options, config.WithRegion(a.region))
	}
	if a.profile != "" {
		options = append(options, config.WithSharedConfigProfile(a.profile))
	}
	if loopback(a.endpoint) {
		// Not for the sake of AWS_DEFAULTS_MODE=auto, either.
		options = append(options, config.WithEC2IMDSClientEnableState(imds.ClientDisabled))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		if missing := (config.SharedConfigProfileNotExistError{}); errors.As(err, &missing) {
			return cfg, fmt.Errorf("there is no profile %q; see profile= in the URL, AWS_PROFILE, and ~/.aws/config", missing.Profile)
		}
		return cfg, fmt.Errorf("the configuration for AWS cannot be read; see ~/.aws/config, and the AWS_... variables: %w", err)
	}
	if loopback(aws.ToString(endpoint(cfg))) { // the environment may name it
		cfg.Credentials = a.atHand(cfg)
	}
	if cfg.Region == "" {
		return cfg, errors.New("no region is named; write region= in the URL, or set AWS_REGION")
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return cfg, noCredentials(err)
	}
	return cfg, nil
}

func noCredentials(err error) error {
	const advice = "there are no credentials for AWS; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"
	if strings.Contains(err.Error(), "no EC2 IMDS role found") { // the last resort: there were no others
		return &briefError{advice, err}
	}
	return fmt.Errorf("%s: %w", advice, err)
}

// briefError leaves out what the SDK says about a service that the user has
// never heard of.
type briefError struct {
	text string
	err  error
}

func (e *briefError) Error() string { return e.text }
func (e *briefError) Unwrap() error { return e.err }

// loopback reports whether an endpoint is on this machine, as an emulator's is.
func loopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// atHand returns the credentials for an endpoint on this machine: the keys that
// stand in the environment or in the profile, and placeholders where there are
// none. An emulator wants some, and believes all. Nobody elsewhere is asked, be
// it the machine's role or a service that hands out keys: it would take
// seconds, and have a laptop wait for a network that it does not need.
func (a account) atHand(cfg aws.Config) aws.CredentialsProvider {
	keys := aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}
	for _, source := range slices.Backward(cfg.ConfigSources) { // the first one counts
		switch source := source.(type) {
		case config.EnvConfig:
			if source.Credentials.HasKeys() && a.profile == "" { // a profile that is named comes first
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
