// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dynamo

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/dynamostore"
)

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
