// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/s3store"
)

// Bucket is that of a store in one.
type Bucket struct{ URL storeurl.S3 }

const (
	// bucketPatience bounds the questions about a bucket, and racePatience the race.
	bucketPatience = 15 * time.Second
	racePatience   = time.Minute
	// mostWays is how many addresses of the endpoint take part in the race.
	mostWays = 8
)

// eventualReads says that all reads are strong.
func (b Bucket) eventualReads() bool { return false }

// examine looks at the bucket.
func (b Bucket) examine(ctx context.Context, p *Patient) {
	asked, stop := context.WithTimeout(ctx, bucketPatience)
	defer stop()
	client, err := b.URL.Connect(asked)
	if err != nil {
		return // the store says so, too
	}
	endpoint := b.endpoint(asked, client)
	p.Tell(bucketEncryption(endpoint))
	// One attempt of each request: what fails is reported, not fixed.
	once := s3.New(client.Options(), func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
	if !b.reached(asked, once) {
		return // likewise
	}
	p.Tell(b.lifecycle(asked, once))
	p.Tell(b.versioning(asked, once, p.Options))
	p.Tell(price(endpoint, b.URL.Bucket, p.Options))
	if b.URL.Options.TrustServer {
		p.Tell(Finding{"conditions", Warn, "trust=1: no process tries whether the server keeps the conditions of writes", "leave it out of the URL, unless the right to delete is missing"})
	}
	raced, stop := context.WithTimeout(ctx, racePatience)
	defer stop()
	p.Tell(b.race(raced, endpoint))
}

// reached reports whether the bucket answers.
func (b Bucket) reached(ctx context.Context, client *s3.Client) bool {
	name := b.URL.Prefix() + "doctor"
	_, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.URL.Bucket, Key: &name})
	absent := (*types.NoSuchKey)(nil)
	return err == nil || errors.As(err, &absent)
}

// endpoint returns the address of the server, nil if nobody knows.
func (b Bucket) endpoint(ctx context.Context, client *s3.Client) *url.URL {
	o := client.Options()
	resolved, err := o.EndpointResolverV2.ResolveEndpoint(ctx, s3.EndpointParameters{
		Bucket: &b.URL.Bucket, Region: &o.Region, Endpoint: o.BaseEndpoint, ForcePathStyle: &o.UsePathStyle,
	})
	if err != nil {
		return nil
	}
	return &resolved.URI
}

func bucketEncryption(endpoint *url.URL) Finding {
	f := Finding{"encryption", OK, "the connection is encrypted", ""}
	if endpoint == nil || endpoint.Scheme != "http" {
		return f
	}
	f.Finding = "the connection is not encrypted"
	if !near(endpoint.Hostname()) {
		f.Level, f.Advice = Warn, "others on the way can read and change it: write https in endpoint="
	}
	return f
}

// code returns the code of an answer.
func code(err error) string {
	if api := smithy.APIError(nil); errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// unasked says that a question had no good answer.
func unasked(check, right string, err error) Finding {
	switch code(err) {
	case "AccessDenied":
		return Finding{check, Warn, right + " is not granted: it is not known whether " + check + " endangers the locks", `grant it: "tenure table policy" prints the whole of it`}
	case "NotImplemented", "MethodNotAllowed":
		return Finding{check, OK, "the server has none", ""}
	}
	return Finding{check, Warn, fmt.Sprintf("it is not known: %v", err), "try again"}
}

// lifecycle looks for a rule that removes records, or moves them where they cannot be read.
func (b Bucket) lifecycle(ctx context.Context, client *s3.Client) Finding {
	out, err := client.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &b.URL.Bucket})
	switch {
	case code(err) == "NoSuchLifecycleConfiguration":
		return Finding{"lifecycle", OK, "the bucket has no rules", ""}
	case err != nil:
		return unasked("lifecycle", "s3:GetLifecycleConfiguration", err)
	}
	const exclude = "exclude the prefix from the rule, or keep locks in a bucket of their own"
	for _, rule := range out.Rules {
		if rule.Status != types.ExpirationStatusEnabled || !covers(rule, b.URL.Prefix()) {
			continue
		}
		name := aws.ToString(rule.ID)
		if rule.Expiration != nil && (rule.Expiration.Days != nil || rule.Expiration.Date != nil) {
			return Finding{"lifecycle", Bad, fmt.Sprintf("rule %q removes objects below %q: the token of a lock that it removes starts again at 1", name, b.URL.Prefix()), exclude}
		}
		if len(rule.Transitions) > 0 {
			return Finding{"lifecycle", Bad, fmt.Sprintf("rule %q moves objects below %q to another class: a lock there is dear to read, or cannot be read", name, b.URL.Prefix()), exclude}
		}
	}
	return Finding{"lifecycle", OK, fmt.Sprintf("no rule removes or moves objects below %q", b.URL.Prefix()), ""}
}

// covers reports whether a rule is for objects of the store, which have no tags.
func covers(rule types.LifecycleRule, prefix string) bool {
	//lint:ignore SA1019 old rules have it there
	of := aws.ToString(rule.Prefix) //nolint:staticcheck // the same, for golangci-lint
	if f := rule.Filter; f != nil {
		if f.Tag != nil || f.And != nil && len(f.And.Tags) > 0 {
			return false
		}
		of += aws.ToString(f.Prefix)
		if f.And != nil {
			of += aws.ToString(f.And.Prefix)
		}
	}
	return strings.HasPrefix(prefix, of) || strings.HasPrefix(of, prefix)
}

// month is one of 30 days.
const month = 30 * 24 * time.Hour

func monthly(period time.Duration) float64 { return month.Seconds() / period.Seconds() }

func (b Bucket) versioning(ctx context.Context, client *s3.Client, o tenure.Options) Finding {
	out, err := client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &b.URL.Bucket})
	switch {
	case err != nil:
		return unasked("versioning", "s3:GetBucketVersioning", err)
	case out.Status != types.BucketVersioningStatusEnabled:
		return Finding{"versioning", OK, "the bucket keeps no old versions", ""}
	}
	f := Finding{
		"versioning", Warn, fmt.Sprintf("the bucket keeps each heartbeat: %.0f versions a month for each lock that is held", monthly(o.HeartbeatPeriod)),
		"keep locks in a bucket without versioning, or have a rule remove versions that are not current after a day; under a retention of Object Lock no rule can",
	}
	if out.MFADelete == types.MFADeleteStatusEnabled {
		f.Finding += ", and only a person can remove them (MFA delete)"
	}
	return f
}

// A tariff is what a million requests cost in dollars.
type tariff struct {
	name          string
	writes, reads float64
}

// tariffOf returns that of an endpoint. The figures are those of the guide to object stores.
func tariffOf(endpoint *url.URL, bucket string) (tariff, bool) {
	host := ""
	if endpoint != nil {
		host = endpoint.Hostname()
	}
	switch {
	case strings.HasSuffix(bucket, "--x-s3"):
		return tariff{"S3 Express One Zone", 1.13, 0.03}, true
	case strings.HasSuffix(host, ".amazonaws.com"):
		return tariff{"S3 Standard", 5, 0.40}, true
	case strings.HasSuffix(host, ".r2.cloudflarestorage.com"):
		return tariff{"R2", 4.50, 0.36}, true
	}
	return tariff{}, false
}

// price says what a month costs.
func price(endpoint *url.URL, bucket string, o tenure.Options) Finding {
	const million = 1e6
	writes := monthly(o.HeartbeatPeriod)
	// A waiter looks each refresh period, and when the next heartbeat is due.
	reads := writes * math.Ceil(o.HeartbeatPeriod.Seconds()/o.RefreshPeriod.Seconds())
	f := Finding{"price", OK, fmt.Sprintf("a month takes %.0f writes for each lock that is held, or session, and about %.0f reads for each process that waits", writes, reads), ""}
	if t, ok := tariffOf(endpoint, bucket); ok {
		f.Finding += fmt.Sprintf(": $%.2f and $%.2f on %s", writes*t.writes/million, reads*t.reads/million, t.name)
	}
	f.Advice = "a longer --lease, a longer --refresh, and one session for many locks cost less"
	return f
}

// race has 16 processes, as it were, write at once, through each address of the endpoint.
func (b Bucket) race(ctx context.Context, endpoint *url.URL) Finding {
	clients, names, err := b.ways(ctx, endpoint)
	if err == nil {
		err = s3store.Race(ctx, clients, b.URL.Bucket, &b.URL.Options)
	}
	switch {
	case errors.Is(err, driver.ErrPermanent):
		return Finding{"conditions", Bad, err.Error(), "do not use this server"}
	case err != nil:
		return Finding{"conditions", Warn, fmt.Sprintf("the race of 16 writers could not be run: %v", err), "try again"}
	}
	f := Finding{"conditions", OK, "one of 16 writers won each of 40 races", ""}
	if len(names) > 1 {
		f.Finding += ", through " + strings.Join(names, ", ")
	}
	return f
}

// ways returns a client for each address of the endpoint.
func (b Bucket) ways(ctx context.Context, endpoint *url.URL) (clients []*s3.Client, addresses []string, err error) {
	if endpoint != nil {
		addresses, _ = net.DefaultResolver.LookupHost(ctx, endpoint.Hostname()) // without it there is one way
	}
	addresses = addresses[:min(len(addresses), mostWays)]
	if len(addresses) < 2 {
		client, err := b.URL.Connect(ctx)
		return []*s3.Client{client}, nil, err
	}
	for _, address := range addresses {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, at string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(at)
			if err != nil {
				return nil, err
			}
			return dial(ctx, network, net.JoinHostPort(address, port))
		}
		client, err := b.URL.Connect(ctx, func(o *s3.Options) { o.HTTPClient = &http.Client{Transport: transport} })
		if err != nil {
			return nil, nil, err
		}
		clients = append(clients, client)
	}
	return clients, addresses, nil
}
