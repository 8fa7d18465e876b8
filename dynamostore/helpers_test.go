// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"crypto/rand"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// region is a region that the SDK knows: for any other it compiles patterns with each request.
var region = env("AWS_REGION", "us-east-1")

// connect returns a client of its own connections onto an endpoint.
func connect(t *testing.T, url string) *dynamodb.Client {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	t.Cleanup(transport.CloseIdleConnections)
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &url,
		Region:       region,
		Credentials:  credentials.NewStaticCredentialsProvider(env("AWS_ACCESS_KEY_ID", "test"), env("AWS_SECRET_ACCESS_KEY", "test"), os.Getenv("AWS_SESSION_TOKEN")),
		HTTPClient:   &http.Client{Transport: transport},
	})
}

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// newTable makes a table that lives as long as the test.
func newTable(t *testing.T, e enginetest.DynamoDB, options *TableOptions) string {
	t.Helper()
	table := "tenure-test-" + rand.Text()
	client := connect(t, e.URL)
	if err := CreateTable(t.Context(), client, table, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := client.DeleteTable(context.WithoutCancel(t.Context()), &dynamodb.DeleteTableInput{TableName: &table})
		if err != nil {
			t.Errorf("DeleteTable: %v", err)
		}
	})
	return table
}

func open(t *testing.T, url, table string, options *Options) *Store {
	t.Helper()
	s, err := New(connect(t, url), table, options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// plant writes rec past the rules.
func plant(t *testing.T, url, table string, options *Options, rec driver.Record) {
	t.Helper()
	o, err := options.resolve()
	if err != nil {
		t.Fatal(err)
	}
	it := o.encode(rec)
	it[o.PartitionKey], it[attrToken] = text(rec.Key), number(rec.Token)
	if o.SortKey != "" {
		it[o.SortKey] = text(o.SortValue)
	}
	plantItem(t, url, table, it)
}

func plantItem(t *testing.T, url, table string, it item) {
	t.Helper()
	if _, err := connect(t, url).PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: it}); err != nil {
		t.Fatal(err)
	}
}

// readItem returns a row as it is stored, nil if there is no row.
func readItem(t *testing.T, url, table string, key item) item {
	t.Helper()
	out, err := connect(t, url).GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: key, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

func binary(s string) types.AttributeValue { return &types.AttributeValueMemberB{Value: []byte(s)} }

func deleteItem(t *testing.T, url, table string, key item) {
	t.Helper()
	if _, err := connect(t, url).DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &table, Key: key}); err != nil {
		t.Fatal(err)
	}
}

// held returns a record for a claim.
func held(key string) driver.Record {
	version := rand.Text()
	return driver.Record{
		Key: key, Version: version, Beat: version, Owner: "us", Lease: time.Second,
		State: driver.Held, Since: time.Now(),
	}
}
