// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/smithy-go/logging"

	"github.com/tenurelock/tenure/driver"
)

// account is what a URL says of how a service of AWS is reached.
type account struct {
	region  string // "": the environment's, or the profile's
	profile string // "": the environment's
	// endpoint is the base URL of the service, "" for that of AWS in the region,
	// or one that the environment or the profile names.
	endpoint string
}

// regionName is a part of a host.
var regionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)

func (a *account) parameters() []parameter {
	return []parameter{
		{"region", a.region, func(value string) error {
			if a.region = value; !regionName.MatchString(value) {
				return fmt.Errorf("region=%.40s is no name of a region: write one such as eu-central-1", shown(value))
			}
			return nil
		}},
		{"endpoint", a.endpoint, func(value string) (err error) {
			a.endpoint, err = readEndpoint(value)
			return err
		}},
		word("profile", &a.profile),
	}
}

// awsName refuses what stands in the place of a name that no table or bucket has.
func awsName(what, authority, path, write string) error {
	switch {
	case authority == "":
		return fmt.Errorf("the %s is missing: %s", what, write)
	case strings.Contains(authority+path, "@"):
		return errors.New("a user or a password stands in it: credentials come from AWS_PROFILE, " +
			"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the machine's role; " + write)
	case strings.HasPrefix(authority, "localhost"), strings.Contains(authority, ":"):
		return fmt.Errorf("a host or a port stands where the %s's name belongs: %s&endpoint=http://HOST:PORT", what, write)
	}
	return nil
}

// readEndpoint returns a base URL as all write it.
func readEndpoint(text string) (string, error) {
	const write = "write endpoint=http://HOST:PORT or endpoint=https://HOST"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return "", errors.New("endpoint= is no address of a server: " + write)
	case u.User != nil:
		return "", errors.New("endpoint= has a user or a password: leave it out, " + write)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", errors.New(`endpoint= ends with a "?" or "#" of its own: ` + write)
	}
	u.Host = strings.ToLower(u.Host)
	return strings.TrimRight(u.String(), "/"), nil
}

func (a account) hostOf(service string) string {
	if u, err := url.Parse(a.endpoint); err == nil && u.Hostname() != "" {
		return u.Hostname()
	}
	if a.region != "" {
		return service + "." + a.region + ".amazonaws.com"
	}
	return ""
}

// awsClient returns a client that has credentials and a region, and the account with what the
// client was found to have. It sends requests only for the credentials. Make also returns the
// endpoint of the client that it makes, nil for that of AWS.
func awsClient[C any](
	ctx context.Context, a account, makes func(aws.Config) (C, *string),
) (client C, at account, err error) {
	cfg, err := a.config(ctx, func(cfg aws.Config) string {
		_, endpoint := makes(cfg)
		return aws.ToString(endpoint)
	})
	if err != nil {
		return client, a, err
	}
	client, endpoint := makes(cfg)
	a.region, a.endpoint = cfg.Region, ""
	// An endpoint of the environment with a password is left out: no URL may hold it.
	if text := aws.ToString(endpoint); text != "" {
		if _, err := readEndpoint(text); err == nil {
			a.endpoint = text
		}
	}
	return client, a, nil
}

// config returns what a client is made of. Endpoint returns that of a client, "" for that of AWS.
func (a account) config(ctx context.Context, endpoint func(aws.Config) string) (aws.Config, error) {
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
			return cfg, fmt.Errorf("there is no profile %q; see profile= in the URL, AWS_PROFILE, and ~/.aws/config",
				missing.Profile)
		}
		return cfg, fmt.Errorf("the configuration for AWS cannot be read; see ~/.aws/config, and the AWS_... variables: %w",
			err)
	}
	if loopback(endpoint(cfg)) { // the environment may name it
		cfg.Credentials = a.atHand(cfg)
	}
	if cfg.Region == "" {
		return cfg, errors.New("no region is named; write region= in the URL, or set AWS_REGION")
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		const advice = "there are no credentials for AWS; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and " +
			"AWS_SECRET_ACCESS_KEY, or give the machine a role"
		if strings.Contains(err.Error(), "no EC2 IMDS role found") { // the last resort: there were no others
			return cfg, &briefError{advice, err}
		}
		return cfg, fmt.Errorf("%s: %w", advice, err)
	}
	return cfg, nil
}

// loopback reports whether an endpoint is on this machine, as an emulator's is.
func loopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Hostname() != "" && driver.Near(u.Hostname())
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
