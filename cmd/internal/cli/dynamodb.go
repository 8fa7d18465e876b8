// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/dynamostore"
)

// atTable is a command on a table of DynamoDB under way.
type atTable struct {
	*tableRun
	url storeurl.DynamoDB
}

// describePatience bounds the questions about a table.
const describePatience = 10 * time.Second

func (a atTable) connect() (*dynamodb.Client, error) {
	ctx, cancel := context.WithTimeout(a.ctx, describePatience)
	defer cancel()
	client, err := a.at.Connect(ctx)
	if err != nil {
		return nil, a.failed(err)
	}
	return client, nil
}

func (a atTable) describe(client *dynamodb.Client) (dynamostore.Description, error) {
	ctx, cancel := context.WithTimeout(a.ctx, describePatience)
	defer cancel()
	d, err := dynamostore.Describe(ctx, client, a.url.Table)
	if err != nil {
		return d, a.failed(err)
	}
	return d, nil
}
