// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/dynamostore"
)

// onDynamoDB makes the table, or sees that there is one as it is asked for.
func (f *createTableCmd) onDynamoDB(a atTable) error {
	options, err := f.options(a.url)
	if err != nil {
		return err
	}
	client, err := a.connect()
	if err != nil {
		return err
	}
	err = dynamostore.CreateTable(a.ctx, client, a.url.Table, &options)
	switch {
	case err == nil:
		a.console.say("table %q was created in %s%s", a.url.Table, client.Options().Region, f.hint(a.url, options))
		return nil
	case !errors.Is(err, dynamostore.ErrTableExists):
		return a.failed(err)
	}
	return f.compare(a, client, options)
}

// options are what the flags ask for, and the URL, which names the keys, too.
func (f *createTableCmd) options(url storeurl.DynamoDB) (dynamostore.TableOptions, error) {
	o := dynamostore.TableOptions{
		PartitionKey: url.PartitionKey(), SortKey: url.Options.SortKey,
		DeletionProtection: f.DeletionProtection, PointInTimeRecovery: f.Recovery, Tags: map[string]string{},
	}
	for _, tag := range f.Tag {
		name, value, found := strings.Cut(tag, "=")
		if _, twice := o.Tags[name]; !found || name == "" || twice {
			return o, usage("--tag %.40q: write NAME=VALUE, each name once", tag)
		}
		o.Tags[name] = value
	}
	for _, key := range []struct {
		flag  string
		asked *string
		inURL string
		to    *string
	}{
		{"--partition-key", f.PartitionKey, url.Options.PartitionKey, &o.PartitionKey},
		{"--sort-key", f.SortKey, url.Options.SortKey, &o.SortKey},
	} {
		switch {
		case key.asked == nil:
		case *key.asked == "":
			return o, usage("%s is empty: name the key, or leave the flag out", key.flag)
		case key.inURL != "" && *key.asked != key.inURL:
			return o, usage("%s %.40q and the URL, which has %.40q, differ: write one of them", key.flag, *key.asked, key.inURL)
		default:
			*key.to = *key.asked
		}
	}
	// It sends nothing: it says which keys there cannot be.
	try := dynamostore.Options{PartitionKey: o.PartitionKey, SortKey: o.SortKey}
	if o.SortKey != "" {
		try.SortValue = "any"
	}
	if _, err := dynamostore.New(dynamodb.New(dynamodb.Options{}), url.Table, &try); err != nil {
		return o, usage("%s", strings.TrimPrefix(err.Error(), "dynamostore: "))
	}
	return o, nil
}

// hint says what the URL lacks for a table with such keys.
func (f *createTableCmd) hint(url storeurl.DynamoDB, o dynamostore.TableOptions) string {
	var lacks []string
	if o.PartitionKey != url.PartitionKey() {
		lacks = append(lacks, "partition-key="+o.PartitionKey)
	}
	if o.SortKey != url.Options.SortKey {
		lacks = append(lacks, "sort-key="+o.SortKey+"&sort-value=VALUE")
	}
	if len(lacks) == 0 {
		return ""
	}
	return "; its keys belong into the URL: " + strings.Join(lacks, "&")
}

// readyPatience bounds how long a table that somebody else creates is waited
// for, readyPause how often it is looked at.
const (
	readyPatience = 10 * time.Minute
	readyPause    = 500 * time.Millisecond
)

// compare says whether the table that there is is the one that was asked for.
func (f *createTableCmd) compare(a atTable, client *dynamodb.Client, o dynamostore.TableOptions) error {
	d, err := a.describe(client)
	for end := time.Now().Add(readyPatience); err == nil && d.Status == string(types.TableStatusCreating) && time.Now().Before(end); {
		if err = sleep(a.ctx, readyPause); err != nil {
			return a.failed(err)
		}
		d, err = a.describe(client)
	}
	if err != nil {
		return err
	}
	var wrong []string
	for _, key := range []struct{ what, is, asked string }{
		{"partition key", d.PartitionKey, o.PartitionKey},
		{"sort key", d.SortKey, o.SortKey},
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
	for _, finding := range doctor.Table(d, a.url.Options, time.Second) { // what is bad for locks, however it was asked for
		if finding.Level == doctor.Bad && finding.Check != "keys" {
			wrong = append(wrong, finding.Finding)
		}
	}
	if slices.ContainsFunc(d.KeyTypes, func(kind string) bool { return kind != string(types.ScalarAttributeTypeS) }) {
		wrong = append(wrong, "its keys have the types "+strings.Join(d.KeyTypes, " and ")+", not S")
	}
	if o.DeletionProtection && !d.DeletionProtection {
		wrong = append(wrong, "it is not protected from deletion")
	}
	if o.PointInTimeRecovery && !d.PointInTimeRecovery {
		wrong = append(wrong, "it has no point-in-time recovery")
	}
	if len(wrong) > 0 {
		return failed(statusBad, fmt.Errorf("table %q in %s exists already, and is not as was asked: %s; it was left as it is", d.Name, d.Region, strings.Join(wrong, "; ")))
	}
	tags := ""
	if len(o.Tags) > 0 {
		tags = "; its tags were not looked at"
	}
	a.console.say("table %q in %s exists already, as was asked%s%s", d.Name, d.Region, tags, f.hint(a.url, o))
	return nil
}
