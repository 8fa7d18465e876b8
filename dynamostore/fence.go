// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
)

// ErrStale is matched by the refusal of a write whose token is lower than a
// token that the item has seen. Stop the work: the token never passes again.
// See [StaleError].
var ErrStale = errors.New("stale token")

// StaleError is the refusal of a [Fence] or a [FenceItem]. It matches
// [ErrStale], and the error of the SDK.
type StaleError struct {
	// Token is the refused token, and Highest the highest token that the item
	// has seen.
	Token, Highest uint64
	err            error
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("fence: token %d is stale, token %d has been seen: another holder has begun, stop", e.Token, e.Highest)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

func (e *StaleError) Unwrap() error { return e.err }

// DefaultFenceAttribute is the attribute of a guarded item that remembers the
// token if Fence.Attribute is empty.
const DefaultFenceAttribute = attrToken

// Fence guards items of the caller's own, one by one: each item remembers the
// highest token under which it was written, and refuses writes under an older
// one. The guard costs no request and no capacity of its own, and works in any
// table, whatever store the lock is in.
//
//	fence := dynamostore.Fence{Token: lease.Token()}
//	in := &dynamodb.UpdateItemInput{ ... }
//	if err := fence.Update(in); err != nil {
//		return err
//	}
//	_, err := client.UpdateItem(ctx, in)
//	if err = fence.Explain(err); errors.Is(err, dynamostore.ErrStale) {
//		return err // another holder has begun
//	}
//
// An item that the new holder has not written yet does not know of it, and
// still accepts a write of the former holder. Where that matters, because
// several items change together or because it must end with the change of
// holders, use a [FenceItem]. One item must be guarded by the tokens of one
// lock alone.
//
// The condition holds again for a second write of the same token: the SDK's
// retries may stay on for a write that may be made twice, but not for a write
// that adds.
type Fence struct {
	// Token is the token of the lease under which the item is written.
	Token uint64
	// Attribute is where the item remembers the token, as a number (N). If
	// empty, "fencingToken".
	Attribute string
}

const (
	fenceName  = "#tenureFence"
	fenceValue = ":tenureFence"
)

func (f *Fence) attribute() string {
	if f.Attribute != "" {
		return f.Attribute
	}
	return DefaultFenceAttribute
}

// guard adds the condition to the conditions of a write.
func (f *Fence) guard(condition **string, names *map[string]string, values *map[string]types.AttributeValue) error {
	if f.Token == 0 || f.Token > driver.MaxToken {
		return fmt.Errorf("fence: token %d is not valid: the tokens of leases are from 1 to %d", f.Token, uint64(driver.MaxToken))
	}
	if _, used := (*names)[fenceName]; used {
		return errors.New("fence: the write is fenced already")
	}
	own := "(attribute_not_exists(" + fenceName + ") OR " + fenceName + " <= " + fenceValue + ")"
	if before := strings.TrimSpace(aws.ToString(*condition)); before != "" {
		own = "(" + before + ") AND " + own
	}
	*condition = &own
	// Copies: the maps may be the caller's for other writes as well.
	*names, *values = maps.Clone(*names), maps.Clone(*values)
	if *names == nil {
		*names = map[string]string{}
	}
	if *values == nil {
		*values = item{}
	}
	(*names)[fenceName], (*values)[fenceValue] = f.attribute(), number(f.Token)
	return nil
}

// Put fences a PutItem: it adds the condition, and the token to the item.
func (f Fence) Put(in *dynamodb.PutItemInput) error {
	if err := f.guard(&in.ConditionExpression, &in.ExpressionAttributeNames, &in.ExpressionAttributeValues); err != nil {
		return err
	}
	in.Item = f.remember(in.Item)
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	return nil
}

// TransactPut fences a put of a transaction as Put does.
func (f Fence) TransactPut(in *types.Put) error {
	if err := f.guard(&in.ConditionExpression, &in.ExpressionAttributeNames, &in.ExpressionAttributeValues); err != nil {
		return err
	}
	in.Item = f.remember(in.Item)
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	return nil
}

func (f *Fence) remember(it item) item {
	it = maps.Clone(it)
	if it == nil {
		it = item{}
	}
	it[f.attribute()] = number(f.Token)
	return it
}

// Update fences an UpdateItem: it adds the condition, and the token to what is
// set.
func (f Fence) Update(in *dynamodb.UpdateItemInput) error {
	if err := f.guard(&in.ConditionExpression, &in.ExpressionAttributeNames, &in.ExpressionAttributeValues); err != nil {
		return err
	}
	in.UpdateExpression = setting(in.UpdateExpression)
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	return nil
}

// TransactUpdate fences an update of a transaction as Update does.
func (f Fence) TransactUpdate(in *types.Update) error {
	if err := f.guard(&in.ConditionExpression, &in.ExpressionAttributeNames, &in.ExpressionAttributeValues); err != nil {
		return err
	}
	in.UpdateExpression = setting(in.UpdateExpression)
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	return nil
}

// setClause finds the word that begins the clause. An attribute cannot be meant:
// the word is reserved, so that it would need a placeholder.
var setClause = regexp.MustCompile(`(?i)(^|\s)SET\s`)

// setting adds the token to an update expression.
func setting(update *string) *string {
	own := fenceName + " = " + fenceValue
	before := aws.ToString(update)
	var all string
	switch at := setClause.FindStringIndex(before); {
	case at != nil:
		all = before[:at[1]] + own + ", " + before[at[1]:]
	case strings.TrimSpace(before) == "":
		all = "SET " + own
	default:
		all = "SET " + own + " " + before
	}
	return &all
}

// Delete fences a DeleteItem: it adds the condition. The item's token is
// deleted with it: a late write of an older holder may then create it again.
// Where that matters, mark the item as deleted with Update instead.
func (f Fence) Delete(in *dynamodb.DeleteItemInput) error {
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	return f.guard(&in.ConditionExpression, &in.ExpressionAttributeNames, &in.ExpressionAttributeValues)
}

// Explain returns a [*StaleError] if err says that an item has seen a newer
// token, and otherwise err itself: a condition of the caller's own may have
// failed. With engines that send no item with a failed condition it cannot
// know, and it cannot distinguish the fences of several locks in one
// transaction: there, see the reasons in the SDK's error.
func (f Fence) Explain(err error) error {
	return f.explain(err, func(item) bool { return true })
}

func (f Fence) explain(err error, guarded func(item) bool) error {
	for _, it := range refusedItems(err) {
		if n, ok := it[f.attribute()].(*types.AttributeValueMemberN); ok && guarded(it) {
			r := reader{}
			if highest := r.whole(f.attribute(), n.Value); r.err == nil && highest > f.Token {
				return &StaleError{Token: f.Token, Highest: highest, err: err}
			}
		}
	}
	return err
}

// refusedItems returns the items whose conditions failed, if the engine sent them.
func refusedItems(err error) []item {
	if failed := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &failed) {
		return []item{failed.Item}
	}
	var items []item
	if cancelled := (*types.TransactionCanceledException)(nil); errors.As(err, &cancelled) {
		for _, reason := range cancelled.CancellationReasons {
			if len(reason.Item) > 0 {
				items = append(items, reason.Item)
			}
		}
	}
	return items
}

// fencePrefix begins the keys of the items that transactions check.
const fencePrefix = driver.OwnPrefix + "fence/"

// FenceItem guards the caller's own transactions with an extra item for the
// lock, in the lock's table, which changes only with the holder. (The lock's own
// item changes with every heartbeat, and a transaction that checks it would
// conflict with them.) [Store.RaiseFence] creates it.
type FenceItem struct {
	s     *Store
	lock  string
	token uint64
}

// RaiseFence records in the fence of a lock that the term of the token has
// begun, and returns the fence. A holder calls it after it was granted the lock
// and before its work: from then on no transaction that checks for an older
// token passes. It is one write; after an unknown outcome call it again.
//
// If a newer token has been raised, the error is a [*StaleError].
func (s *Store) RaiseFence(ctx context.Context, lock string, token uint64) (*FenceItem, error) {
	if err := s.ready(ctx); err != nil {
		return nil, driver.NotApplied(err)
	}
	switch {
	case lock == "":
		return nil, errors.New("fence: the lock has no name")
	case token == 0 || token > driver.MaxToken:
		return nil, fmt.Errorf("fence: token %d is not valid: the tokens of leases are from 1 to %d", token, uint64(driver.MaxToken))
	}
	f := &FenceItem{s: s, lock: lock, token: token}
	// Other clients that list a shared table read it as a released lock.
	resting := driver.Record{State: driver.Released, Lease: leastPlainLease}
	e := &expression{
		set:       []string{"#on = :on", "#ld = :ld", "#rv = :rv", "#ir = :ir", "#tk = :tk"},
		condition: "attribute_not_exists(#tk) OR #tk <= :tk",
		values: item{
			":on": text("tenure"), ":ld": text(s.options.leaseText(resting)), ":rv": text(fmt.Sprintf("fence-%d", token)),
			":ir": text(released), ":tk": number(token),
		},
	}
	_, err := call(ctx, s, s.client.UpdateItem, &dynamodb.UpdateItemInput{
		TableName: &s.table, Key: s.key(fencePrefix + lock),
		UpdateExpression: e.update(), ConditionExpression: &e.condition,
		ExpressionAttributeNames: e.names(s.options.PartitionKey), ExpressionAttributeValues: e.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		return f, nil
	}
	if _, failed := conditionFailed(err); failed {
		return nil, f.stale(ctx, err)
	}
	return nil, s.fault(ctx, err)
}

// stale returns the refusal of RaiseFence.
func (f *FenceItem) stale(ctx context.Context, err error) error {
	if explained := (Fence{Token: f.token}).Explain(err); errors.Is(explained, ErrStale) {
		return explained
	}
	// The engine does not send the item.
	items, readErr := f.s.getItems(ctx, []string{fencePrefix + f.lock}, driver.Strong)
	if readErr != nil {
		return readErr
	}
	r := reader{it: items[fencePrefix+f.lock]}
	if highest := r.token(); r.err != nil || highest == 0 {
		return fmt.Errorf("item of %q: %w: it has no readable %s", fencePrefix+f.lock, driver.ErrUnreadable, attrToken)
	}
	return &StaleError{Token: f.token, Highest: max(r.token(), f.token+1), err: err}
}

// Check returns the action to add to a transaction of TransactWriteItems: the
// transaction is made only if no newer token has been raised. It costs two
// write capacity units, and counts as one of the hundred actions. Concurrent
// transactions of one holder may conflict on it: the SDK does not retry them,
// the caller must.
func (f *FenceItem) Check() types.TransactWriteItem {
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName: &f.s.table, Key: f.s.key(fencePrefix + f.lock),
		ConditionExpression:                 aws.String("#tk = :tk"),
		ExpressionAttributeNames:            map[string]string{"#tk": attrToken},
		ExpressionAttributeValues:           item{":tk": number(f.token)},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// Explain returns a [*StaleError] if a newer token refused the transaction, and
// otherwise err itself.
func (f *FenceItem) Explain(err error) error {
	return Fence{Token: f.token}.explain(err, func(it item) bool { return f.s.keyOf(it) == fencePrefix+f.lock })
}
