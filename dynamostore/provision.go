// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
)

const (
	// readyPatience bounds the wait for a table that another process creates,
	// readyPause is the pause between polls.
	readyPatience = 10 * time.Minute
	readyPause    = 500 * time.Millisecond
	// describePatience bounds the questions about a table.
	describePatience = 10 * time.Second
)

// Create creates the table, or checks that an existing one meets the options. It
// implements [driver.Provisioner].
func (s *Store) Create(ctx context.Context, o driver.CreateOptions) (did string, err error) {
	asked, err := s.tableOptions(o)
	if err != nil {
		return "", driver.Unsupported(err)
	}
	err = CreateTable(ctx, s.client, s.table, &asked)
	switch {
	case err == nil:
		return fmt.Sprintf("table %q was created in %s%s", s.table, s.client.Options().Region, s.lacks(asked)), nil
	case !errors.Is(err, ErrTableExists):
		return "", err
	}
	d, err := s.awaitTable(ctx)
	if err != nil {
		return "", err
	}
	if wrong := d.unlike(asked, s.options); len(wrong) > 0 {
		return "", driver.Unfit(fmt.Errorf("table %q in %s exists already, and is not as requested: %s; it "+
			"was left as it is",
			d.Name, d.Region, strings.Join(wrong, "; ")))
	}
	tags := ""
	if len(asked.Tags) > 0 {
		tags = "; its tags were not compared"
	}
	return fmt.Sprintf("table %q in %s exists already, as requested%s%s", d.Name, d.Region, tags, s.lacks(asked)), nil
}

// tableOptions are what the options ask for; the keys are the store's where they do not say.
func (s *Store) tableOptions(o driver.CreateOptions) (TableOptions, error) {
	t := TableOptions{
		PartitionKey: s.options.PartitionKey, SortKey: s.options.SortKey,
		DeletionProtection: o.DeletionProtection, PointInTimeRecovery: o.Recovery, Tags: o.Tags,
	}
	for _, key := range []struct {
		flag, asked string
		own         *string
		preset      string
	}{
		{"--partition-key", o.PartitionKey, &t.PartitionKey, DefaultPartitionKey},
		{"--sort-key", o.SortKey, &t.SortKey, ""},
	} {
		if key.asked != "" && *key.own != key.preset && key.asked != *key.own {
			return t, fmt.Errorf("%s %.40q differs from the URL, which has %.40q: write one of them", key.flag, key.asked, *key.own)
		}
		if key.asked != "" {
			*key.own = key.asked
		}
	}
	try := Options{PartitionKey: t.PartitionKey, SortKey: t.SortKey}
	if t.SortKey != "" {
		try.SortValue = "any"
	}
	_, err := try.resolve() // it says which keys there cannot be
	return t, err
}

// lacks says what the URL lacks for a table with such keys.
func (s *Store) lacks(t TableOptions) string {
	var lacks []string
	if t.PartitionKey != s.options.PartitionKey {
		lacks = append(lacks, "partition-key="+t.PartitionKey)
	}
	if t.SortKey != s.options.SortKey {
		lacks = append(lacks, "sort-key="+t.SortKey+"&sort-value=VALUE")
	}
	if len(lacks) == 0 {
		return ""
	}
	return "; write its keys in the URL: " + strings.Join(lacks, "&")
}

// awaitTable returns the description of the table once its creation has ended.
func (s *Store) awaitTable(ctx context.Context) (*Description, error) {
	for end := time.Now().Add(readyPatience); ; {
		asked, cancel := context.WithTimeout(ctx, describePatience)
		d, err := s.Inspect(asked)
		cancel()
		if err != nil || d.Status != string(types.TableStatusCreating) || time.Now().After(end) {
			return d, err
		}
		select {
		case <-time.After(readyPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// unlike lists the settings of a table that differ from the requested ones, or are bad for
// locks.
func (d *Description) unlike(asked TableOptions, o Options) (wrong []string) {
	for _, key := range []struct{ what, is, asked string }{
		{"partition key", d.PartitionKey, asked.PartitionKey},
		{"sort key", d.SortKey, asked.SortKey},
	} {
		switch {
		case key.is == key.asked:
		case key.is == "":
			wrong = append(wrong, "it has no "+key.what)
		case key.asked == "":
			wrong = append(wrong, fmt.Sprintf("it has a %s, %q", key.what, key.is))
		default:
			wrong = append(wrong, fmt.Sprintf("its %s is %q", key.what, key.is))
		}
	}
	for _, f := range d.findings(o, time.Second) {
		if f.Level == driver.LevelBad && f.Check != "keys" {
			wrong = append(wrong, f.Finding)
		}
	}
	if d.oddKeys() {
		wrong = append(wrong, "its keys have the types "+strings.Join(d.KeyTypes, " and ")+", not S")
	}
	if asked.DeletionProtection && !d.DeletionProtection {
		wrong = append(wrong, "it is not protected from deletion")
	}
	if asked.PointInTimeRecovery && (d.PointInTimeRecovery == nil || !*d.PointInTimeRecovery) {
		wrong = append(wrong, "it has no point-in-time recovery")
	}
	return wrong
}

// Describe returns what the table is like. It implements [driver.Provisioner].
func (s *Store) Describe(ctx context.Context, t driver.Timing) (driver.Description, error) {
	ctx, cancel := context.WithTimeout(ctx, describePatience)
	defer cancel()
	d, err := s.Inspect(ctx)
	if err != nil {
		return driver.Description{}, err
	}
	d.Findings = d.findings(s.options, t.Heartbeat)
	out := driver.Description{Object: d, Findings: d.Findings}
	d.show(&out)
	return out, nil
}

// show formats the description for people.
func (d *Description) show(out *driver.Description) {
	key := func(i int, name string) string {
		if name == "" || i >= len(d.KeyTypes) {
			return name
		}
		return name + " (" + d.KeyTypes[i] + ")"
	}
	billing := "on demand"
	if d.Billing != string(types.BillingModePayPerRequest) {
		billing = fmt.Sprintf("provisioned: %d read and %d write units a second", d.ReadCapacity, d.WriteCapacity)
	}
	replicas := strings.Join(d.Replicas, ", ")
	if len(d.Replicas) > 0 && !d.EventualReplicas {
		replicas += " (strongly consistent)"
	}
	const unknown = "not known: its call is not granted, or the endpoint lacks it"
	ttl, recovery := unknown, unknown
	if d.TTLAttribute != nil {
		if ttl = driver.OnOff(*d.TTLAttribute != ""); *d.TTLAttribute != "" {
			ttl += ": " + *d.TTLAttribute
		}
	}
	if d.PointInTimeRecovery != nil {
		recovery = driver.OnOff(*d.PointInTimeRecovery)
	}
	out.Add("table", d.Name, "")
	out.Add("region", d.Region, "")
	out.Add("ARN", d.ARN, "")
	out.Add("status", d.Status, "status")
	out.Add("partition key", key(0, d.PartitionKey), "")
	out.Add("sort key", key(1, d.SortKey), "keys")
	out.Add("billing", billing, "billing")
	out.Add("class", d.Class, "class")
	out.Add("replicas", replicas, "replicas")
	out.Add("TTL", ttl, "ttl")
	out.Add("deletion protection", driver.OnOff(d.DeletionProtection), "protection")
	out.Add("point-in-time recovery", recovery, "recovery")
	out.Add("stream", driver.OnOff(d.StreamActive), "")
	out.Add("items", fmt.Sprintf("%d, %d kB (some hours ago)", d.Items, (d.Bytes+1023)>>10), "")
}

// Policy returns the least policy of IAM, with a statement for each purpose, so that one can be
// left out. It implements [driver.Granter].
func (s *Store) Policy(ctx context.Context, o driver.PolicyOptions) (text, note string, err error) {
	arn, note, err := s.arn(ctx, o.Unasked)
	if err != nil {
		return "", "", err
	}
	locks := statement("TenureLocks", arn, "BatchGetItem", "DeleteItem", "DescribeTable", "GetItem", "UpdateItem")
	if o.ReadOnly {
		locks = statement("TenureLooks", arn, "BatchGetItem", "DescribeTable", "GetItem")
	}
	return "{\n  \"Version\": \"2012-10-17\",\n  \"Statement\": [\n" + strings.Join([]string{
		locks, statement("TenureLists", arn, "Scan"), statement("TenureDoctor", arn, "DescribeContinuousBackups", "DescribeTimeToLive"),
	}, ",\n") + "\n  ]\n}\n", note, nil
}

func statement(sid, resource string, operations ...string) string {
	return fmt.Sprintf(`    {
      "Sid": %q,
      "Effect": "Allow",
      "Action": [
        "dynamodb:%s"
      ],
      "Resource": %q
    }`, sid, strings.Join(operations, "\",\n        \"dynamodb:"), resource)
}

// arn returns the ARN of the table: its own if it can be asked, and otherwise an ARN with
// placeholders, which the note explains.
func (s *Store) arn(ctx context.Context, unasked string) (arn, note string, err error) {
	if unasked == "" {
		asked, cancel := context.WithTimeout(ctx, describePatience)
		defer cancel()
		d, err := s.describe(asked)
		switch {
		case ctx.Err() != nil:
			return "", "", err
		case err != nil:
			unasked = strings.Join(strings.Fields(err.Error()), " ")
		case d.ARN != "":
			return d.ARN, "", nil
		default:
			unasked = "the endpoint does not report it"
		}
	}
	region := s.client.Options().Region
	note = "write the account's number for ACCOUNT (" + unasked + ")"
	if region == "" {
		region = "REGION"
		note = "write your region for REGION, and the account's number for ACCOUNT (" + unasked + ")"
	}
	return "arn:" + partition(region) + ":dynamodb:" + region + ":ACCOUNT:table/" + s.table, note, nil
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
