// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
)

// maxBatch is how many items DynamoDB returns for one BatchGetItem.
const maxBatch = 100

// GetBatch returns the records of several keys in the order of the keys, in one
// request for a hundred of them (fifty, in a table that is shared). It costs
// the capacity units of as many single reads. A record that DynamoDB left out,
// because it was throttled for example, has an error of its own.
func (s *Store) GetBatch(ctx context.Context, keys []string, c driver.Consistency) ([]driver.Lookup, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	size := maxBatch
	if s.options.SharedTable {
		size = maxBatch / 2
	}
	var all []driver.Lookup
	for chunk := range slices.Chunk(keys, size) {
		wanted := slices.Clone(chunk)
		for _, key := range chunk {
			if s.sharesToken(key) {
				wanted = append(wanted, tokenPrefix+key)
			}
		}
		items, err := s.getItems(ctx, wanted, c)
		if err != nil && !errors.Is(err, errLeftOut) {
			return nil, err
		}
		for _, key := range chunk {
			all = append(all, s.lookup(key, items, err))
		}
	}
	return all, nil
}

// lookup finds a record among the items of a batch. LeftOut is not nil if not
// all of them came.
func (s *Store) lookup(key string, items map[string]item, leftOut error) driver.Lookup {
	var l driver.Lookup
	var f finding
	if s.sharesToken(key) {
		if _, found := items[tokenPrefix+key]; !found && leftOut != nil {
			return driver.Lookup{Err: leftOut}
		}
		f, l.Err = s.findBoth(key, items)
	} else {
		f, l.Err = s.find(key, items[key], 0)
	}
	l.Record = f.rec
	if leftOut != nil && errors.Is(l.Err, driver.ErrNotFound) {
		l.Err = leftOut
	}
	return l
}

// errLeftOut says that DynamoDB answered only a part of a batch.
var errLeftOut = errors.New("DynamoDB left out records of a batch, because the table is throttled or the records are large; try again")

// getItems reads up to maxBatch items, by partition key. With errLeftOut, the
// items that came are returned.
func (s *Store) getItems(ctx context.Context, keys []string, c driver.Consistency) (map[string]item, error) {
	request := types.KeysAndAttributes{ConsistentRead: aws.Bool(c == driver.Strong)}
	asked := map[string]bool{}
	for _, key := range keys {
		if !asked[key] { // the same key twice is refused
			asked[key] = true
			request.Keys = append(request.Keys, s.key(key))
		}
	}
	out, err := call(ctx, s, s.client.BatchGetItem, &dynamodb.BatchGetItemInput{
		RequestItems: map[string]types.KeysAndAttributes{s.table: request},
	})
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	items := map[string]item{}
	for _, it := range out.Responses[s.table] {
		key, ok := it[s.options.PartitionKey].(*types.AttributeValueMemberS)
		if !ok {
			return nil, fmt.Errorf("table %q: the answer has an item without %s", s.table, s.options.PartitionKey)
		}
		items[key.Value] = it
	}
	if len(out.UnprocessedKeys) > 0 {
		return items, errLeftOut
	}
	return items, nil
}
