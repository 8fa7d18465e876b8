// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

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

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
)

const (
	// diagnosisPatience bounds the questions about a bucket, and racePatience the race.
	diagnosisPatience = 15 * time.Second
	racePatience      = time.Minute
	// mostWays is how many addresses of the endpoint take part in the race.
	mostWays = 8
	// So many writers write one object at once, for so many rounds.
	raceWriters, raceRounds = 16, 20
	// month has 30 days.
	month = 30 * 24 * time.Hour
)

// Diagnose examines the bucket, says what a month costs, and has 16 writers write one object at
// once, which sends about 660 requests and may take a minute. It implements
// [driver.Diagnoser].
func (s *Store) Diagnose(ctx context.Context, t driver.Timing) []driver.Finding {
	asked, stop := context.WithTimeout(ctx, diagnosisPatience)
	defer stop()
	if _, err := s.Get(asked, driver.OwnPrefix+"doctor", driver.Strong); err != nil && !errors.Is(err, driver.ErrNotFound) {
		return nil // each call reports it
	}
	endpoint := s.endpoint(asked)
	all := []driver.Finding{
		driver.Encrypted(endpoint.Scheme != "http", "write https in endpoint=", endpoint.Hostname()),
		s.lifecycle(asked), s.versioning(asked, t), price(endpoint.Hostname(), s.bucket, t),
	}
	if s.trusts {
		all = append(all, driver.Warn("conditions", "trust=1: no process tests whether the server keeps the "+
			"conditions of writes").
			Advise("leave it out of the URL, unless the right to delete is missing"))
	}
	raced, stop := context.WithTimeout(ctx, racePatience)
	defer stop()
	return append(all, s.race(raced, endpoint.Hostname()))
}

// endpoint returns the address of the server, or an empty one if it is not known.
func (s *Store) endpoint(ctx context.Context) url.URL {
	o := s.objects.client.Options()
	resolved, err := o.EndpointResolverV2.ResolveEndpoint(ctx, s3.EndpointParameters{
		Bucket: &s.bucket, Region: &o.Region, Endpoint: o.BaseEndpoint, ForcePathStyle: &o.UsePathStyle,
	})
	if err != nil {
		return url.URL{}
	}
	return resolved.URI
}

// unasked says that a question had no good answer.
func unasked(check, right string, err error) driver.Finding {
	switch codeOf(err) {
	case "AccessDenied":
		return driver.Warn(check, "%s is not granted: it is not known whether %s endangers the locks", right, check).
			Advise(`grant it: "tenure table policy" prints the whole policy`)
	case "NotImplemented", "MethodNotAllowed":
		return driver.OK(check, "the server has none")
	}
	return driver.Warn(check, "it is not known: %v", err).Advise("try again")
}

// lifecycle finds rules that remove records, or move them to where they cannot be read.
func (s *Store) lifecycle(ctx context.Context) driver.Finding {
	const check = "lifecycle"
	out, err := call(ctx, s.objects, s.objects.client.GetBucketLifecycleConfiguration, &s3.GetBucketLifecycleConfigurationInput{Bucket: &s.bucket})
	switch {
	case codeOf(err) == "NoSuchLifecycleConfiguration":
		return driver.OK(check, "the bucket has no rules")
	case err != nil:
		return unasked(check, "s3:GetLifecycleConfiguration", err)
	}
	const exclude = "exclude the prefix from the rule, or keep locks in a bucket of their own"
	for _, rule := range out.Rules {
		name := aws.ToString(rule.ID)
		switch {
		case rule.Status != types.ExpirationStatusEnabled || !covers(rule, s.Prefix()):
		case rule.Expiration != nil && (rule.Expiration.Days != nil || rule.Expiration.Date != nil):
			return driver.Bad(check, "rule %q removes objects below %q: the token of a lock that it removes "+
				"starts again at 1", name, s.Prefix()).
				Advise(exclude)
		case len(rule.Transitions) > 0:
			return driver.Bad(check, "rule %q moves objects below %q to another class: a lock there is expensive "+
				"to read, or cannot be read", name, s.Prefix()).
				Advise(exclude)
		}
	}
	return driver.OK(check, "no rule removes or moves objects below %q", s.Prefix())
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

func (s *Store) versioning(ctx context.Context, t driver.Timing) driver.Finding {
	const check = "versioning"
	out, err := call(ctx, s.objects, s.objects.client.GetBucketVersioning, &s3.GetBucketVersioningInput{Bucket: &s.bucket})
	switch {
	case err != nil:
		return unasked(check, "s3:GetBucketVersioning", err)
	case out.Status != types.BucketVersioningStatusEnabled:
		return driver.OK(check, "the bucket keeps no old versions")
	}
	f := driver.Warn(check, "the bucket keeps each heartbeat: %.0f versions a month for each lock that is "+
		"held", month.Seconds()/t.Heartbeat.Seconds()).
		Advise("keep locks in a bucket without versioning, or have a rule remove versions that are not " +
			"current after a day; " +
			"under a retention of Object Lock no rule can")
	if out.MFADelete == types.MFADeleteStatusEnabled {
		f.Finding += ", and only a person can remove them (MFA delete)"
	}
	return f
}

// price gives the requests of a month, and their cost if the tariff is known. The figures are
// from the guide to object stores.
func price(host, bucket string, t driver.Timing) driver.Finding {
	const million = 1e6
	writes := month.Seconds() / t.Heartbeat.Seconds()
	// A waiter polls each refresh period, and when the next heartbeat is due.
	reads := writes * math.Ceil(t.Heartbeat.Seconds()/t.Refresh.Seconds())
	text := fmt.Sprintf("a month takes %.0f writes for each lock that is held, or session, and about %.0f "+
		"reads for each process that waits", writes, reads)
	name, write, read := "", 0.0, 0.0 // dollars for a million
	switch {
	case strings.HasSuffix(bucket, "--x-s3"):
		name, write, read = "S3 Express One Zone", 1.13, 0.03
	case strings.HasSuffix(host, ".amazonaws.com"):
		name, write, read = "S3 Standard", 5, 0.40
	case strings.HasSuffix(host, ".r2.cloudflarestorage.com"):
		name, write, read = "R2", 4.50, 0.36
	}
	if name != "" {
		text += fmt.Sprintf(": $%.2f and $%.2f on %s", writes*write/million, reads*read/million, name)
	}
	return driver.OK("price", "%s", text).Advise("a longer --lease, a longer --refresh, and one session for " +
		"many locks cost less")
}

// race has 16 writers, like processes, write at once, through each address of the endpoint.
func (s *Store) race(ctx context.Context, host string) driver.Finding {
	const check = "conditions"
	ways, addresses := s.ways(ctx, host)
	err := objectmap.Race(ctx, ways, s.Prefix(), raceWriters, raceRounds)
	for _, way := range ways[1:] {
		err = errors.Join(err, way.Close())
	}
	switch {
	case errors.Is(err, driver.ErrPermanent):
		return driver.Bad(check, "%v", err).Advise("do not use this server")
	case err != nil:
		return driver.Warn(check, "the race of 16 writers could not be run: %v", err).Advise("try again")
	}
	f := driver.OK(check, "one of 16 writers won each of 40 races")
	if len(addresses) > 1 {
		f.Finding += ", through " + strings.Join(addresses, ", ")
	}
	return f
}

// ways returns the objects as they are seen through each address of the endpoint, the store's
// own first.
func (s *Store) ways(ctx context.Context, host string) (ways []objectmap.Objects, addresses []string) {
	ways = []objectmap.Objects{s.objects}
	if host == "" {
		return ways, nil
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil || len(addresses) < 2 {
		return ways, nil // without it there is one way
	}
	addresses = addresses[:min(len(addresses), mostWays)]
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
		o := s.objects.client.Options()
		o.HTTPClient = &http.Client{Transport: transport}
		ways = append(ways, newObjects(s3.New(o), s.bucket))
	}
	return ways, addresses
}

// Policy returns the least policy of IAM. It implements [driver.Granter], and sends
// nothing.
func (s *Store) Policy(_ context.Context, o driver.PolicyOptions) (text, note string, err error) {
	bucket := "arn:" + partition(s.objects.client.Options().Region) + ":s3:::" + s.bucket
	locks := statement("TenureLocks", bucket+"/"+s.Prefix()+"*", "DeleteObject", "GetObject", "PutObject")
	if o.ReadOnly {
		locks = statement("TenureLooks", bucket+"/"+s.Prefix()+"*", "GetObject")
	}
	return "{\n  \"Version\": \"2012-10-17\",\n  \"Statement\": [\n" + strings.Join([]string{
		locks,
		// Without it S3 denies access to an absent object.
		statement("TenureLists", bucket, "ListBucket"),
		statement("TenureDoctor", bucket, "GetBucketVersioning", "GetLifecycleConfiguration"),
	}, ",\n") + "\n  ]\n}\n", "", nil
}

func statement(sid, resource string, operations ...string) string {
	return fmt.Sprintf(`    {
      "Sid": %q,
      "Effect": "Allow",
      "Action": [
        "s3:%s"
      ],
      "Resource": %q
    }`, sid, strings.Join(operations, "\",\n        \"s3:"), resource)
}

// partition returns the part of AWS that a region belongs to.
func partition(region string) string {
	for _, p := range []struct{ prefix, name string }{
		{"cn-", "aws-cn"}, {"us-gov-", "aws-us-gov"}, {"us-isob-", "aws-iso-b"}, {"us-iso-", "aws-iso"}, {"eusc-", "aws-eusc"},
	} {
		if strings.HasPrefix(region, p.prefix) {
			return p.name
		}
	}
	return "aws"
}
