// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestTable(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		client := connect(t, e.URL)
		table := newTable(t, e, &TableOptions{PartitionKey: "name", SortKey: "part", Tags: map[string]string{"team": "ops"}})
		if err := CreateTable(t.Context(), client, table, nil); !errors.Is(err, ErrTableExists) {
			t.Errorf("CreateTable of an existing table: %v", err)
		}
		d, err := open(t, e.URL, table, nil).Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d.Status != "ACTIVE" || d.PartitionKey != "name" || d.SortKey != "part" || fmt.Sprint(d.KeyTypes) != "[S S]" || d.Billing != "PAY_PER_REQUEST" || d.TTLAttribute != nil && *d.TTLAttribute != "" || d.EventualReplicas {
			t.Errorf("Inspect: %+v", d)
		}
		for _, tc := range []struct {
			options *Options
			want    string
		}{
			{nil, `its partition key is "name", not "key"; set PartitionKey`},
			{&Options{PartitionKey: "name"}, `its sort key is "part", not ""; set SortKey and SortValue`},
			{&Options{PartitionKey: "name", SortKey: "part", SortValue: "p"}, ""},
		} {
			_, err := Open(t.Context(), client, table, tc.options)
			if tc.want == "" && err == nil {
				continue
			}
			if err == nil || tc.want == "" || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, driver.ErrPermanent) {
				t.Errorf("Open: %v; want %q", err, tc.want)
			}
		}
		if _, err := Open(t.Context(), client, newTable(t, e, nil), &Options{SortKey: "part", SortValue: "p"}); err == nil || !strings.Contains(err.Error(), "it has no sort key") {
			t.Errorf("Open with a sort key that is not there: %v", err)
		}
		if _, err := Open(t.Context(), client, "tenure-test-none", nil); err == nil || !strings.Contains(err.Error(), "there is no such table") {
			t.Errorf("Open of a table that is not there: %v", err)
		}
	})
}

func TestTableWithNumbersForKeys(t *testing.T) {
	e, table := diagnosedTable(t, func(in *dynamodb.CreateTableInput) {
		in.AttributeDefinitions[0].AttributeType = types.ScalarAttributeTypeN
	})
	if _, err := Open(t.Context(), connect(t, e.URL), table, nil); err == nil || !strings.Contains(err.Error(), "they must be S") {
		t.Errorf("Open: %v", err)
	}
}

func TestTableWithTTL(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		client, table := connect(t, e.URL), newTable(t, e, nil)
		_, err := client.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: &table, TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: aws.String("expires"), Enabled: aws.Bool(true),
		}})
		if e.NoTTL {
			if err == nil {
				t.Error("the engine was said to have no TTL")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if d, err := open(t, e.URL, table, nil).Inspect(t.Context()); err != nil || *d.TTLAttribute != "expires" {
			t.Errorf("Describe: %+v, %v", d, err)
		}
		for _, tc := range []struct {
			options Options
			refused bool
		}{{Options{}, false}, {Options{SharedTable: true}, true}, {Options{SharedTable: true, TimeToLive: true}, false}} {
			_, err := Open(t.Context(), client, table, &tc.options)
			if tc.refused != (err != nil) || err != nil && !strings.Contains(err.Error(), `its items expire by attribute "expires"`) {
				t.Errorf("Open with %+v: %v", tc.options, err)
			}
		}
	})
}

// TestReplicas answers DescribeTable as DynamoDB does for global tables, which
// no emulator has.
func TestReplicas(t *testing.T) {
	for _, tc := range []struct {
		name        string
		consistency string
		replicas    []string
		insist      bool
		shared      bool
		refused     bool
	}{
		{name: "none"},
		{name: "eventual", replicas: []string{"eu-west-1"}, refused: true},
		{name: "eventual, said so", consistency: "EVENTUAL", replicas: []string{"eu-west-1"}, refused: true},
		{name: "eventual, insisted", replicas: []string{"eu-west-1"}, insist: true},
		{name: "strong", consistency: "STRONG", replicas: []string{"eu-west-1", "eu-west-2"}},
		{name: "strong, shared", consistency: "STRONG", replicas: []string{"eu-west-1", "eu-west-2"}, shared: true, refused: true},
		{name: "none, shared", shared: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			description := map[string]any{
				"TableName": "locks", "TableStatus": "ACTIVE",
				"KeySchema":            []map[string]string{{"AttributeName": "key", "KeyType": "HASH"}},
				"AttributeDefinitions": []map[string]string{{"AttributeName": "key", "AttributeType": "S"}},
			}
			var replicas []map[string]string
			for _, region := range tc.replicas {
				replicas = append(replicas, map[string]string{"RegionName": region})
			}
			if len(replicas) > 0 {
				description["Replicas"] = replicas
			}
			if tc.consistency != "" {
				description["MultiRegionConsistency"] = tc.consistency
			}
			store := answering(t, func(rw http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(rw).Encode(map[string]any{"Table": description})
			})
			_, err := Open(t.Context(), store.client, "locks", &Options{EventualReplicas: tc.insist, SharedTable: tc.shared})
			if tc.refused != (err != nil) {
				t.Errorf("Open: %v; refused is to be %v", err, tc.refused)
			}
			want := "eu-west-1 are only eventually consistent"
			if tc.shared {
				want = "which has no transactions"
			}
			if err != nil && (!strings.Contains(err.Error(), want) || !errors.Is(err, driver.ErrPermanent)) {
				t.Errorf("Open: %v", err)
			}
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	client := connect(t, "http://127.0.0.1:1")
	for _, tc := range []struct {
		table   string
		options *Options
		want    string
	}{
		{"", nil, "the table has no name"},
		{"t", &Options{SortKey: "s"}, "no SortValue"},
		{"t", &Options{SortValue: "s"}, "no SortKey"},
		{"t", &Options{SortKey: "key", SortValue: "s"}, `both "key"`},
		{"t", &Options{PartitionKey: "ownerName"}, "has the name of an attribute of a lock's item"},
		{"t", &Options{SortKey: "stamp", SortValue: "s"}, "has the name of an attribute of a lock's item"},
		{"t", &Options{SortKey: "s", SortValue: strings.Repeat("x", 1025)}, "at most 1024"},
		{"t", &Options{Dialect: 7}, "unknown dialect"},
	} {
		if _, err := New(client, tc.table, tc.options); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("New(%q, %+v): %v; want %q", tc.table, tc.options, err, tc.want)
		}
	}
	if _, err := New(nil, "t", nil); err == nil {
		t.Error("New without a client succeeded")
	}
	if _, err := ParseDialect("rust"); err == nil || !strings.Contains(err.Error(), `write "java", or "dynamolock"`) {
		t.Errorf("ParseDialect: %v", err)
	}
}
