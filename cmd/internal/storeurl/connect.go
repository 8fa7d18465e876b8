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

// open connects, and sees that the table is there and fit for locks.
func (d DynamoDB) open() (driver.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	client, err := d.client(ctx)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		store, err := dynamostore.Open(ctx, client, d.Table, &d.Options)
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

func (d DynamoDB) connect(ctx context.Context) (driver.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	client, err := d.client(ctx)
	if err != nil {
		return nil, err
	}
	return dynamostore.New(client, d.Table, &d.Options)
}

func (d DynamoDB) unasked() (driver.Store, error) {
	return dynamostore.New(dynamodb.New(dynamodb.Options{Region: d.Region}), d.Table, &d.Options)
}

// client returns one that has credentials and a region. It sends requests only for the
// credentials.
func (d DynamoDB) client(ctx context.Context) (*dynamodb.Client, error) {
	make := func(cfg aws.Config) *dynamodb.Client {
		return dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
			if d.Endpoint != "" {
				o.BaseEndpoint = &d.Endpoint
			}
		})
	}
	cfg, err := d.config(ctx, func(cfg aws.Config) *string { return make(cfg).Options().BaseEndpoint })
	if err != nil {
		return nil, fmt.Errorf("dynamodb table %q: %w", d.Table, err)
	}
	client := make(cfg)
	at := d
	at.Account = d.located(client.Options().Region, client.Options().BaseEndpoint)
	d.found.note(at.URL())
	return client, nil
}

// Account is what a URL says of how a service of AWS is reached.
type Account struct {
	Region  string // "": the environment's, or the profile's
	Profile string // "": the environment's
	// Endpoint is the base URL of the service, "" for that of AWS in the region,
	// or one that the environment or the profile names.
	Endpoint string
}

// read takes the parameters.
func (a *Account) read(values url.Values) (err error) {
	a.Region, a.Profile = values.Get("region"), values.Get("profile")
	if a.Region != "" && !regionName.MatchString(a.Region) {
		return fmt.Errorf("region=%.40s is no name of a region: write one such as eu-central-1", shown(a.Region))
	}
	a.Endpoint, err = endpoint(values.Get("endpoint"))
	return err
}

func (a Account) values() map[string]string {
	return map[string]string{"region": a.Region, "endpoint": a.Endpoint, "profile": a.Profile}
}

// located returns it with what a client was found to have. An endpoint of the environment with
// a password is left out: no URL may hold it, and none is read that does.
func (a Account) located(region string, base *string) Account {
	a.Region, a.Endpoint = region, aws.ToString(base)
	if _, err := endpoint(a.Endpoint); err != nil {
		a.Endpoint = ""
	}
	return a
}

// config returns what a client is made of: it has a region and credentials. Endpoint returns
// that of a client, "" for that of AWS.
func (a Account) config(ctx context.Context, endpoint func(aws.Config) *string) (aws.Config, error) {
	// What goes wrong is told once, by the error of whoever it stops.
	options := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{})}
	if a.Region != "" {
		options = append(options, config.WithRegion(a.Region))
	}
	if a.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(a.Profile))
	}
	if loopback(a.Endpoint) {
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
	return u.Hostname() != "" && driver.Near(u.Hostname())
}

// atHand returns the credentials for an endpoint on this machine: the keys that
// stand in the environment or in the profile, and placeholders where there are
// none. An emulator wants some, and believes all. Nobody elsewhere is asked, be
// it the machine's role or a service that hands out keys: it would take
// seconds, and have a laptop wait for a network that it does not need.
func (a Account) atHand(cfg aws.Config) aws.CredentialsProvider {
	keys := aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}
	for _, source := range slices.Backward(cfg.ConfigSources) { // the first one counts
		switch source := source.(type) {
		case config.EnvConfig:
			if source.Credentials.HasKeys() && a.Profile == "" { // a profile that is named comes first
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
