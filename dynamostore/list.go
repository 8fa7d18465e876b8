// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
)

// pageSize is the highest number of records in a page of List. Each page costs
// a scan of the whole table: DynamoDB keeps no order of partition keys.
const pageSize = 10_000

// List returns the records whose key begins with prefix, in the order of their
// keys. Each page of up to ten thousand scans the table: it reads, and DynamoDB
// bills, every item in it, half a capacity unit for 4 kB. It is eventually
// consistent.
func (s *Store) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	if err := s.ready(ctx); err != nil {
		return driver.Page{}, err
	}
	items, err := s.gather(ctx, prefix, cursor, func(key string) bool {
		return !strings.HasPrefix(key, tokenPrefix) && !strings.HasPrefix(key, fencePrefix)
	})
	if err != nil {
		return driver.Page{}, err
	}
	return s.page(ctx, items)
}

// gather returns the items that a page needs, in the order of their keys: the wanted
// items whose keys begin with prefix and come after cursor, at most pageSize plus
// one. It scans the whole table.
func (s *Store) gather(ctx context.Context, prefix, cursor string, wanted func(key string) bool) ([]item, error) {
	var kept []item
	var start item
	for {
		out, err := call(ctx, s, s.client.Scan, s.scan(prefix, start))
		if err != nil {
			return nil, s.fault(ctx, err)
		}
		for _, it := range out.Items {
			if key := s.keyOf(it); key > cursor && wanted(key) {
				kept = append(kept, it)
			}
		}
		if start = out.LastEvaluatedKey; len(start) == 0 || len(kept) > 2*s.pageSize {
			slices.SortFunc(kept, func(a, b item) int { return strings.Compare(s.keyOf(a), s.keyOf(b)) })
			kept = kept[:min(len(kept), s.pageSize+1)]
		}
		if len(start) == 0 {
			return kept, nil
		}
	}
}

// scan returns the request for the next part of the table.
func (s *Store) scan(prefix string, start item) *dynamodb.ScanInput {
	in := &dynamodb.ScanInput{TableName: &s.table, ExclusiveStartKey: start}
	var conditions []string
	in.ExpressionAttributeNames, in.ExpressionAttributeValues = map[string]string{}, item{}
	if prefix != "" {
		conditions = append(conditions, "begins_with(#k, :prefix)")
		in.ExpressionAttributeNames["#k"] = s.options.PartitionKey
		in.ExpressionAttributeValues[":prefix"] = text(prefix)
	}
	if s.options.SortKey != "" {
		conditions = append(conditions, "#s = :sort")
		in.ExpressionAttributeNames["#s"] = s.options.SortKey
		in.ExpressionAttributeValues[":sort"] = text(s.options.SortValue)
	}
	if len(conditions) == 0 {
		in.ExpressionAttributeNames, in.ExpressionAttributeValues = nil, nil
		return in
	}
	filter := strings.Join(conditions, " AND ")
	in.FilterExpression = &filter
	return in
}

func (s *Store) keyOf(it item) string {
	if key, ok := it[s.options.PartitionKey].(*types.AttributeValueMemberS); ok {
		return key.Value
	}
	return ""
}

func (s *Store) page(ctx context.Context, items []item) (driver.Page, error) {
	var page driver.Page
	items, page.Cursor = s.cut(items)
	var foreign []string
	for _, it := range items {
		key := s.keyOf(it)
		f, err := s.find(key, it, 0)
		switch {
		case err == nil:
			page.Records = append(page.Records, f.rec)
			if f.foreign && s.sharesToken(key) {
				foreign = append(foreign, tokenPrefix+key)
			}
		case page.Unreadable == nil:
			page.Unreadable = map[string]error{key: err}
		default:
			page.Unreadable[key] = err
		}
	}
	return page, s.countTokens(ctx, page.Records, foreign)
}

// cut returns the items that fit on a page, and the cursor after them.
func (s *Store) cut(items []item) ([]item, string) {
	if len(items) <= s.pageSize {
		return items, ""
	}
	items = items[:s.pageSize]
	return items, s.keyOf(items[s.pageSize-1])
}

// countTokens gives the records of other clients the token after the stored one.
func (s *Store) countTokens(ctx context.Context, records []driver.Record, beside []string) error {
	tokens := map[string]uint64{}
	for keys := range slices.Chunk(beside, maxBatch) {
		items, err := s.getItems(ctx, keys, driver.Eventual)
		if err != nil {
			return err
		}
		for key, it := range items {
			r := reader{it: it}
			tokens[strings.TrimPrefix(key, tokenPrefix)] = r.token()
		}
	}
	for i := range records {
		if last, found := tokens[records[i].Key]; found {
			records[i].Token = max(records[i].Token, last+1)
		}
	}
	return nil
}
