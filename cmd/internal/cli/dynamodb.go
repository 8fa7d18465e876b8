// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/dynamostore"
)

// tableCmd is tenure table: the table of a store on DynamoDB.
type tableCmd struct {
	Create   createTableCmd   `cmd:""`
	Describe describeTableCmd `cmd:""`
	Policy   policyCmd        `cmd:""`
}

// tableFlags are those of all three.
type tableFlags struct {
	storeFlags
	Quiet bool `short:"q"`
}

// atTable is a command on a table under way.
type atTable struct {
	console *console
	at      storeurl.Location
	url     storeurl.DynamoDB
	ctx     context.Context //nolint:containedctx // it is one command, which a signal ends
	stop    func()
}

func (f *tableFlags) open(c *console, rest operands, json bool) (*atTable, error) {
	c.set(outputFlags{JSON: json, Quiet: f.Quiet})
	if rest.given {
		return nil, usage(`this command runs nothing: leave out "--" and what follows`)
	}
	if f.Store == nil && os.Getenv("TENURE_STORE") == "" {
		return nil, usage("no table is named: write --store 'dynamodb://TABLE?region=REGION', or set TENURE_STORE")
	}
	at, err := f.location(c, os.Getenv)
	if err != nil {
		return nil, err
	}
	url, ok := at.DynamoDB()
	if !ok {
		return nil, usage("%s is no table of DynamoDB: write --store 'dynamodb://TABLE?region=REGION'", at.URL())
	}
	ctx, stop := catchSignals().cancel(context.Background())
	return &atTable{console: c, at: at, url: url, ctx: ctx, stop: func() { stop() }}, nil
}

// describePatience bounds the questions about a table.
const describePatience = 10 * time.Second

func (a *atTable) connect() (*dynamodb.Client, error) {
	ctx, cancel := context.WithTimeout(a.ctx, describePatience)
	defer cancel()
	client, err := a.at.Connect(ctx)
	if err != nil {
		return nil, a.failed(err)
	}
	return client, nil
}

func (a *atTable) describe(client *dynamodb.Client) (dynamostore.Description, error) {
	ctx, cancel := context.WithTimeout(a.ctx, describePatience)
	defer cancel()
	d, err := dynamostore.Describe(ctx, client, a.url.Table)
	if err != nil {
		return d, a.failed(err)
	}
	return d, nil
}

// failed returns what to end with when DynamoDB has failed, or a signal came.
func (a *atTable) failed(err error) error {
	if sig := (signaled{}); errors.As(context.Cause(a.ctx), &sig) {
		return sig
	}
	return storeFailed(err)
}
