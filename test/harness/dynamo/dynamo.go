// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package dynamo connects to the DynamoDB engine of the measurements.
package dynamo

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/dynamostore"
)

// Region is a region that the SDK knows by name: for others it searches with regular
// expressions at each request.
const Region = "us-east-1"

// Connect returns a client of DynamoDB with connections of its own, as the SDK
// makes them by default.
func Connect(endpoint string) *dynamodb.Client { return connect(endpoint, nil) }

// ConnectWide keeps the connections of all goroutines open: with the SDK's ten
// the opening and closing of connections is what would be measured.
func ConnectWide(endpoint string) (*dynamodb.Client, *http.Transport) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 256
	return connect(endpoint, &http.Client{Transport: t}), t
}

func connect(endpoint string, client aws.HTTPClient) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint, Region: Region, HTTPClient: client,
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
