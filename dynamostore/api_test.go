// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestAPI runs the tests of package tenure, with their faults, on tables: each
// of their worlds has a table for itself.
func TestAPI(t *testing.T) {
	build := sync.OnceValue(func() string { return enginetest.BuildAPI(t) })
	for _, s := range []struct {
		name    string
		options *Options
	}{{"Plain", nil}, {"Shared", &Options{SharedTable: true}}} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
				t.Parallel()
				if s.options != nil && e.NoTransactions {
					t.Skipf("%s has no transactions: see TestSharedNeedsTransactions", e.Name)
				}
				enginetest.RunAPI(t, build(), worldsOn(connect(t, e.URL), s.options))
			})
		})
	}
}

// worldsOn are tables. [CreateTable] would wait for a tenth of a second where an engine
// takes a moment, four hundred times.
func worldsOn(client *dynamodb.Client, options *Options) enginetest.Worlds {
	shared := options != nil && options.SharedTable
	return enginetest.Worlds{
		TokensOutliveDelete: shared, NoSessions: shared,
		New: func(ctx context.Context) (string, error) {
			table := "tenure-api-" + rand.Text()
			o := TableOptions{PartitionKey: DefaultPartitionKey}
			if _, err := client.CreateTable(ctx, o.input(table)); err != nil {
				return "", err
			}
			for {
				out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
				if err != nil || out.Table.TableStatus == types.TableStatusActive {
					return table, err
				}
			}
		},
		End: func(ctx context.Context, table string) error {
			_, err := client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table})
			return err
		},
		Open: func(table string, pageSize int) (driver.Store, error) {
			store, err := New(client, table, options)
			if err != nil {
				return nil, err
			}
			if pageSize > 0 {
				store.pageSize = pageSize
			}
			return store, nil
		},
	}
}
