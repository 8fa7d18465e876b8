// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package dynamo gets at the DynamoDB engine that measurements are made on.
package dynamo

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/dynamostore"
)

// EngineEnv names the endpoint of the engine, as scripts/engines prints it.
const EngineEnv = "TENURE_TEST_DYNOXIDE"

// NoEngine is the error of a program that has no engine.
func NoEngine(program string) error {
	return fmt.Errorf("there is no engine: %s is not set; scripts/engines run dynoxide -- go run ./test/%s starts one", EngineEnv, program)
}

// Region is one that the SDK knows by name: for others it searches with regular
// expressions, anew at each request.
const Region = "us-east-1"

// Connect returns a client of DynamoDB with connections of its own, as the SDK
// makes them by default.
func Connect(endpoint string) *dynamodb.Client { return ConnectIn(Region, endpoint, nil) }

// ConnectWide keeps the connections of all goroutines open: with the SDK's ten
// the opening and closing of connections is what would be measured.
func ConnectWide(endpoint string) (*dynamodb.Client, *http.Transport) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 256
	return ConnectIn(Region, endpoint, &http.Client{Transport: t}), t
}

// ConnectIn returns a client in a region, empty for the usual one, with the SDK's
// way to send requests if there is no other.
func ConnectIn(region, endpoint string, client aws.HTTPClient) *dynamodb.Client {
	if region == "" {
		region = Region
	}
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint, Region: region, HTTPClient: client,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}

// Table is a table of locks.
type Table struct {
	DB   *dynamodb.Client
	Name string
}

// NewTable makes a table whose name begins with a word.
func NewTable(ctx context.Context, db *dynamodb.Client, word string) (*Table, error) {
	t := &Table{db, word + "-" + rand.Text()}
	return t, dynamostore.CreateTable(ctx, db, t.Name, nil)
}

// Drop deletes it.
func (t *Table) Drop(ctx context.Context) error {
	_, err := t.DB.DeleteTable(context.WithoutCancel(ctx), &dynamodb.DeleteTableInput{TableName: &t.Name})
	return err
}

// Sizes returns how large the items are, as DynamoDB counts it, or a little more.
func (t *Table) Sizes(ctx context.Context) (map[string]int64, error) {
	sizes := map[string]int64{}
	pages := dynamodb.NewScanPaginator(t.DB, &dynamodb.ScanInput{TableName: &t.Name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			name, _ := item[dynamostore.DefaultPartitionKey].(*types.AttributeValueMemberS)
			if name == nil {
				return nil, fmt.Errorf("an item without a key: %v", slices.Collect(maps.Keys(item)))
			}
			sizes[name.Value] = itemBytes(item)
		}
	}
	return sizes, nil
}

func itemBytes(item map[string]types.AttributeValue) (n int64) {
	for name, value := range item {
		n += int64(len(name)) + valueBytes(value)
	}
	return n
}

func valueBytes(value types.AttributeValue) (n int64) {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return int64(len(v.Value))
	case *types.AttributeValueMemberN:
		return int64(len(v.Value))
	case *types.AttributeValueMemberB:
		return int64(len(v.Value))
	case *types.AttributeValueMemberM:
		return 3 + int64(len(v.Value)) + itemBytes(v.Value)
	case *types.AttributeValueMemberL:
		n = 3
		for _, element := range v.Value {
			n += 1 + valueBytes(element)
		}
		return n
	}
	return 1
}
