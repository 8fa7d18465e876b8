// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/test/bed/dynamo"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// region is the one of all clients.
const region = "local"

// table is a table of locks on an engine, deleted when the test ends.
type table struct {
	*dynamo.Table
	URL string // of the engine
}

// newTable makes one.
func newTable(tb testing.TB, url string) *table {
	tb.Helper()
	made, err := dynamo.NewTable(tb.Context(), connect(tb, url), "peers")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := made.Drop(tb.Context()); err != nil {
			tb.Error(err)
		}
	})
	return &table{made, url}
}

// connect returns a client with connections of its own.
func connect(tb testing.TB, url string) *dynamodb.Client {
	tb.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	tb.Cleanup(transport.CloseIdleConnections)
	return dynamo.ConnectIn(region, url, &http.Client{Transport: transport})
}

// Open is the request to open a client on the table.
func (t *table) Open(owner string, lease, heartbeat time.Duration) wire.Request {
	return wire.Request{
		Command: wire.Open, Endpoint: t.URL, Region: region, Table: t.Name, Owner: owner,
		LeaseMs: peers.Milliseconds(lease), HeartbeatMs: peers.Milliseconds(heartbeat),
	}
}

// Start starts a process and opens its client on the table.
func (t *table) Start(tb testing.TB, p *peers.Program, owner string, lease, heartbeat time.Duration) *peers.Process {
	tb.Helper()
	ps := start(tb, p)
	must(tb, ps, t.Open(owner, lease, heartbeat))
	return ps
}

// item is an item of the table as it stands.
type item map[string]types.AttributeValue

// Row returns an item, nil if there is none.
func (t *table) Row(tb testing.TB, name string) item {
	tb.Helper()
	out, err := t.DB.GetItem(tb.Context(), t.Get(name))
	if err != nil {
		tb.Fatal(err)
	}
	return out.Item
}

// Get is the request for an item.
func (t *table) Get(name string) *dynamodb.GetItemInput {
	return &dynamodb.GetItemInput{
		TableName: &t.Name, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{dynamostore.DefaultPartitionKey: &types.AttributeValueMemberS{Value: name}},
	}
}

// Text returns the string or number in an attribute, empty if there is none.
func (i item) Text(attribute string) string {
	switch v := i[attribute].(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	}
	return ""
}

// Data returns the lock's data.
func (i item) Data() string {
	if v, ok := i["data"].(*types.AttributeValueMemberB); ok {
		return string(v.Value)
	}
	return ""
}

// binary is data as requests have them.
func binary(s string) *[]byte {
	b := []byte(s)
	return &b
}
