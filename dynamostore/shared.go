// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
)

// In a table that another client writes too, the token of a lock is in an
// item of its own, which that client does not know. It is written together
// with the lock's item, in one transaction, whenever the holder changes, and
// rises there whatever the lock's item says.

// tokenPrefix begins the keys of these items.
const tokenPrefix = driver.OwnPrefix + "token/"

// sharesToken reports whether the token of a record has an item of its own.
// Tenure's own records, such as history, are not shared.
func (s *Store) sharesToken(key string) bool {
	return s.options.SharedTable && !strings.HasPrefix(key, driver.OwnPrefix)
}

// lookBoth reads a lock's record and the token beside it in one request. They
// may be of different instants; the conditions of a write on both find that out.
// It returns the token even with an error that matches ErrNotFound.
func (s *Store) lookBoth(ctx context.Context, key string, c driver.Consistency) (finding, error) {
	items, err := s.getItems(ctx, []string{key, tokenPrefix + key}, c)
	if err != nil {
		return finding{}, err
	}
	return s.findBoth(key, items)
}

func (s *Store) findBoth(key string, items map[string]item) (finding, error) {
	r := reader{it: items[tokenPrefix+key]}
	last := r.token() // 0 if there is no token yet
	if r.err != nil {
		return finding{}, fmt.Errorf("item of %q: %w: %w", tokenPrefix+key, driver.ErrUnreadable, r.err)
	}
	return s.find(key, items[key], last)
}

// claimBoth is Claim for a shared table: it must read the items before it can
// know the token of the lock's item.
func (s *Store) claimBoth(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	stands, err := s.lookBoth(ctx, next.Key, driver.Strong)
	prev = stands.rec
	e := &expression{condition: isAbsent}
	switch found := err == nil; {
	case !found && !errors.Is(err, driver.ErrNotFound):
		return now, driver.Record{}, driver.NotApplied(err)
	case found && prev.State != driver.Released:
		return now, driver.Record{}, &driver.ConflictError{Key: next.Key, Current: prev}
	case max(prev.Token, stands.last) >= driver.MaxToken:
		return now, driver.Record{}, s.refusedClaim(next.Key, finding{rec: driver.Record{State: driver.Released, Token: driver.MaxToken}}, &driver.ConflictError{})
	default:
		now = driver.Claimed(next, prev, found)
		now.Token = max(now.Token, stands.last+1)
		if err := s.refuseLedger(now); err != nil {
			return driver.Record{}, driver.Record{}, err
		}
		e = s.options.replace(now, next.Data == nil)
		e.condition = isAbsent
		if found {
			e.only(&s.options, prev)
		}
	}
	if err := s.grant(e, now); err != nil {
		return driver.Record{}, driver.Record{}, err
	}
	if err := s.writeBoth(ctx, now, e); err != nil {
		stands, err := s.conflict(ctx, next.Key, err)
		return driver.Record{}, driver.Record{}, s.refusedClaim(next.Key, stands, err)
	}
	return now.Clone(), prev, nil // they shared Data
}

// beside writes the token of rec into the item beside the lock's.
func (s *Store) beside(rec driver.Record, condition string) types.TransactWriteItem {
	// Other clients list all items of a table, and fail at an item that does
	// not look like a lock.
	token := driver.Record{Version: rec.Version, Owner: rec.Owner, Lease: max(rec.Lease, time.Millisecond), State: driver.Released}
	beside := &expression{condition: condition}
	beside.set = []string{"#on = :on", "#ld = :ld", "#rv = :rv", "#ir = :ir", "#tk = :tk"}
	beside.values = item{
		":on": text(token.Owner), ":ld": text(s.options.leaseText(token)), ":rv": text(token.Version),
		":ir": text(released), ":tk": number(rec.Token),
	}
	if rec.Owner == "" {
		beside.values[":on"] = text("tenure")
	}
	return s.update(tokenPrefix+rec.Key, beside)
}

// update makes an expression a part of a transaction.
func (s *Store) update(key string, e *expression) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName: &s.table, Key: s.key(key),
		UpdateExpression: e.update(), ConditionExpression: &e.condition,
		ExpressionAttributeNames: e.names(s.options.PartitionKey), ExpressionAttributeValues: e.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// writeBoth makes an update of the lock's item and raises the token beside it
// to that of rec, or does neither.
func (s *Store) writeBoth(ctx context.Context, rec driver.Record, e *expression) error {
	return s.together(ctx, s.update(rec.Key, e), s.beside(rec, "attribute_not_exists(#tk) OR #tk < :tk"))
}

// together makes all of the writes, or none.
func (s *Store) together(ctx context.Context, writes ...types.TransactWriteItem) error {
	_, err := call(ctx, s, s.client.TransactWriteItems, &dynamodb.TransactWriteItemsInput{TransactItems: writes})
	return err
}

// removeKeeping deletes the lock's item if its condition holds, and stores its
// token beside it, or does neither: the token may not be there yet, if the item
// was written before the table was shared. Higher says that it was not done
// because the stored token is higher, which is as good.
func (s *Store) removeKeeping(ctx context.Context, prev driver.Record, e *expression) (higher bool, _ error) {
	err := s.together(ctx, types.TransactWriteItem{Delete: &types.Delete{
		TableName: &s.table, Key: s.key(prev.Key), ConditionExpression: &e.condition,
		ExpressionAttributeNames: e.names(s.options.PartitionKey), ExpressionAttributeValues: e.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}, s.beside(prev, "attribute_not_exists(#tk) OR #tk <= :tk"))
	cancelled := (*types.TransactionCanceledException)(nil)
	if errors.As(err, &cancelled) && len(cancelled.CancellationReasons) == 2 {
		reasons := cancelled.CancellationReasons
		return !conditional(reasons[0]) && conditional(reasons[1]), err
	}
	return false, err
}
