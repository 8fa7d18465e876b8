// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	service "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
)

// dynamodb is what the URL of a store on DynamoDB says:
//
//	dynamodb://TABLE?region=REGION&endpoint=URL
type dynamodb struct {
	table string
	account
	options dynamostore.Options
}

// The rule of tableName is DynamoDB's own.
var (
	tableName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
	tableARN  = regexp.MustCompile(
		`^arn:aws[a-z-]*:dynamodb:([a-z]+(?:-[a-z]+)+-[0-9]):[0-9]{12}:table/([A-Za-z0-9_.-]+)$`)
)

func (d *dynamodb) parameters() []parameter {
	o := &d.options
	dialect := ""
	if o.Dialect != dynamostore.Java {
		dialect = o.Dialect.String()
	}
	return append(
		d.account.parameters(),
		parameter{"dialect", dialect, func(value string) (err error) {
			if o.Dialect, err = dynamostore.ParseDialect(value); err != nil {
				return errors.New("dialect= is neither java nor dynamolock: leave it out, " +
					"or write that of the other lock client of this table")
			}
			return nil
		}},
		toggle("shared", "true", &o.SharedTable),
		word("partition-key", &o.PartitionKey),
		word("sort-key", &o.SortKey),
		word("sort-value", &o.SortValue),
		toggle("eventual-replicas", "true", &o.EventualReplicas),
		toggle("ttl", "true", &o.TimeToLive),
		toggle("unshare", "true", &o.Unshare),
	)
}

func readDynamoDB(rest string) (engine, error) {
	const write = "write dynamodb://TABLE?region=REGION"
	table, path, query, err := cut(rest, write)
	if err != nil {
		return nil, err
	}
	if arn := tableARN.FindStringSubmatch(table + path); arn != nil {
		return nil, fmt.Errorf("an ARN stands where the table's name belongs: write dynamodb://%s?region=%s", arn[2], arn[1])
	}
	if err := awsName("table", table, path, write); err != nil {
		return nil, err
	}
	switch {
	case path != "":
		return nil, errors.New("a path follows the table's name: leave it out, and " + write)
	case len(table) < 3 || len(table) > 255 || !tableName.MatchString(table):
		return nil, fmt.Errorf("table name %.40q: it must have 3 to 255 letters, digits, and signs of _ . -", table)
	}
	d := dynamodb{table: table}
	if err := readParameters(query, d.parameters()); err != nil {
		return nil, err
	}
	if (d.options.SortKey == "") != (d.options.SortValue == "") {
		return nil, errors.New("sort-key= and sort-value= go together: the name of the table's sort key, " +
			"and the value that the locks of this store have there")
	}
	if d.options.PartitionKey == dynamostore.DefaultPartitionKey {
		d.options.PartitionKey = ""
	}
	if _, err := d.unasked(); err != nil { // it says which options there cannot be
		return nil, errors.New(strings.TrimPrefix(err.Error(), "dynamostore: "))
	}
	return d, nil
}

func (d dynamodb) text(bool) string { return withParameters("dynamodb://"+d.table, d.parameters()) }

func (d dynamodb) host() string { return d.hostOf("dynamodb") }

const (
	// An answer that says "not now" is asked for again so often.
	openAttempts = 3
	openPause    = 300 * time.Millisecond
)

// open sees that the table is there and fit for locks.
func (d dynamodb) open(ctx context.Context, f *found) (driver.Store, error) {
	client, err := d.client(ctx, f)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		store, err := dynamostore.Open(ctx, client, d.table, &d.options)
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

func (d dynamodb) connect(ctx context.Context, f *found) (driver.Store, error) {
	client, err := d.client(ctx, f)
	if err != nil {
		return nil, err
	}
	return dynamostore.New(client, d.table, &d.options)
}

func (d dynamodb) unasked() (driver.Store, error) {
	return dynamostore.New(service.New(service.Options{Region: d.region}), d.table, &d.options)
}

func (d dynamodb) client(ctx context.Context, f *found) (*service.Client, error) {
	client, at, err := awsClient(ctx, d.account, func(cfg aws.Config) (*service.Client, *string) {
		client := service.NewFromConfig(cfg, func(o *service.Options) {
			if d.endpoint != "" {
				o.BaseEndpoint = &d.endpoint
			}
		})
		return client, client.Options().BaseEndpoint
	})
	if err != nil {
		return nil, fmt.Errorf("dynamodb table %q: %w", d.table, err)
	}
	d.account = at
	f.note(d)
	return client, nil
}
