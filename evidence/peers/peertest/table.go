// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peertest

import (
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// region is the one of all clients.
const region = "local"

// Table is a table of locks on an engine, deleted when the test ends.
type Table struct {
	*dynamo.Table
	URL string // of the engine
}

// NewTable makes one.
func NewTable(tb testing.TB, url string) *Table {
	tb.Helper()
	made, err := dynamo.NewTable(tb.Context(), Connect(tb, url), "peers")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := made.Drop(tb.Context()); err != nil {
			tb.Error(err)
		}
	})
	return &Table{made, url}
}

// Connect returns a client with connections of its own.
func Connect(tb testing.TB, url string) *dynamodb.Client {
	tb.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	tb.Cleanup(transport.CloseIdleConnections)
	return dynamo.ConnectIn(region, url, &http.Client{Transport: transport})
}

// Open is the request to open a client on the table.
func (t *Table) Open(owner string, lease, heartbeat time.Duration) wire.Request {
	return wire.Request{
		Command: wire.Open, Endpoint: t.URL, Region: region, Table: t.Name, Owner: owner,
		LeaseMs: peers.Milliseconds(lease), HeartbeatMs: peers.Milliseconds(heartbeat),
	}
}

// Start starts a process and opens its client on the table.
func (t *Table) Start(tb testing.TB, p *peers.Program, owner string, lease, heartbeat time.Duration) *peers.Process {
	tb.Helper()
	ps := Run(tb, p)
	Must(tb, ps, t.Open(owner, lease, heartbeat))
	return ps
}

// Row is an item of the table as it stands.
type Row map[string]types.AttributeValue

// Row returns an item, nil if there is none.
func (t *Table) Row(tb testing.TB, name string) Row {
	tb.Helper()
	out, err := t.DB.GetItem(tb.Context(), t.Get(name))
	if err != nil {
		tb.Fatal(err)
	}
	return out.Item
}

// Get is the request for an item.
func (t *Table) Get(name string) *dynamodb.GetItemInput {
	return &dynamodb.GetItemInput{
		TableName: &t.Name, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{dynamostore.DefaultPartitionKey: &types.AttributeValueMemberS{Value: name}},
	}
}

// Text returns the string or number in an attribute, empty if there is none.
func (r Row) Text(attribute string) string {
	switch v := r[attribute].(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	}
	return ""
}

// Data returns the lock's data.
func (r Row) Data() string {
	if v, ok := r["data"].(*types.AttributeValueMemberB); ok {
		return string(v.Value)
	}
	return ""
}

// Binary is data as requests have them.
func Binary(s string) *[]byte {
	b := []byte(s)
	return &b
}
