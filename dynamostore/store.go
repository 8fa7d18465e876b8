// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
)

// Store keeps records in a table. It implements [driver.Store],
// [driver.BatchGetter], [driver.Raiser], [driver.TokenRetainer], [driver.RefusalCharger] and
// [driver.Sharer]; for people [driver.Diagnoser],
// [driver.Provisioner] and [driver.Granter]. All methods may be called concurrently.
type Store struct {
	client   *dynamodb.Client
	table    string
	options  Options
	pageSize int
	closed   atomic.Bool

	connections *connections
	whole       *Store // the store that this one is a view of, nil for none
}

// New returns a store on the table, and sends nothing. [Open] does the same,
// and first checks that the table exists and is fit for locks.
//
// The client stays the caller's. The store switches the retries of the SDK off
// for its own calls, whatever the client's settings: a hidden retry of a write
// that had been applied looks like a lost race. Package tenure retries, with
// limits in time.
//
// If the client's HTTPClient is the SDK's own, the default, the store uses a copy
// with the same settings and connections of its own: after a call that was sent
// and got no answer it closes the idle connections, at most once a second,
// because a network that has dropped one has mostly dropped them all. With an
// HTTPClient of another type it does so if that has a method
// CloseIdleConnections, like http.Client, and leaves it alone otherwise.
func New(client *dynamodb.Client, table string, options *Options) (*Store, error) {
	if client == nil {
		return nil, errors.New("dynamostore: the client is nil")
	}
	if table == "" {
		return nil, errors.New("dynamostore: the table has no name")
	}
	o, err := options.resolve()
	if err != nil {
		return nil, fmt.Errorf("dynamostore: %w", err)
	}
	return &Store{client: client, table: table, options: o, pageSize: pageSize, connections: newConnections(client)}, nil
}

// Open is [New] for a table that must exist: it asks DynamoDB for the table's
// description, and refuses a table whose keys differ from the options, a table
// that is being deleted, and a global table whose replicas are eventually
// consistent; see [Options.EventualReplicas]. It needs the permission
// dynamodb:DescribeTable. With SharedTable it also refuses a table whose items
// expire, if it may ask for that by dynamodb:DescribeTimeToLive; see
// [Options.TimeToLive].
func Open(ctx context.Context, client *dynamodb.Client, table string, options *Options) (*Store, error) {
	s, err := New(client, table, options)
	if err != nil {
		return nil, err
	}
	if err := s.check(ctx); err != nil {
		_ = s.Close() // always nil
		return nil, err
	}
	return s, nil
}

// check returns an error unless the table fits the options.
func (s *Store) check(ctx context.Context) error {
	d, err := s.describe(ctx)
	if err != nil {
		return err
	}
	if s.options.SharedTable {
		if err := s.describeTTL(ctx, d); err != nil {
			return err
		}
	}
	return d.fit(&s.options)
}

// ready returns an error if a call must not begin.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() || s.whole != nil && s.whole.closed.Load() {
		return driver.ErrClosed
	}
	return ctx.Err()
}

// Close ends the use of the store, and of all views that [Store.WithSortValue] made
// of it. It returns at once; calls that are under way go on, and the client stays
// open. Close of a view ends only that view.
func (s *Store) Close() error {
	s.closed.Store(true)
	if s.whole == nil {
		s.connections.close()
	}
	return nil
}

// WithSortValue returns a view of the store in which all items have another value
// of the sort key: other locks, in the same table, by the same client, connections
// and options. It sends nothing, and costs almost nothing, so that a program may
// create one for each value. A [github.com/tenurelock/tenure.Client] is for one
// view.
//
// The view is closed when it or the store is. A view of a view belongs to the
// store, not to the view. The error says that the options name no sort key, or
// what is wrong with the value; nothing else can fail.
func (s *Store) WithSortValue(v string) (*Store, error) {
	o := s.options
	if o.SortKey == "" {
		return nil, errors.New("dynamostore: a view with another sort value: the options name no SortKey")
	}
	o.SortValue = v
	o, err := o.resolve()
	if err != nil {
		return nil, fmt.Errorf("dynamostore: a view with another sort value: %w", err)
	}
	view := &Store{client: s.client, table: s.table, options: o, pageSize: s.pageSize, connections: s.connections, whole: s}
	if s.whole != nil {
		view.whole = s.whole
	}
	return view, nil
}

// Get returns the record of key. [driver.Eventual] reads cost half of what
// [driver.Strong] ones do.
func (s *Store) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	if err := s.ready(ctx); err != nil {
		return driver.Record{}, err
	}
	f, err := s.look(ctx, key, c)
	return f.rec, err
}

// finding is a record as it is in the table.
type finding struct {
	rec     driver.Record
	foreign bool   // another client wrote it
	shared  bool   // Tenure wrote it, with SharedTable
	last    uint64 // the token beside it, if it was read
}

func (s *Store) look(ctx context.Context, key string, c driver.Consistency) (finding, error) {
	if s.sharesToken(key) {
		return s.lookBoth(ctx, key, c)
	}
	out, err := call(ctx, s, s.client.GetItem, &dynamodb.GetItemInput{
		TableName: &s.table, Key: s.key(key), ConsistentRead: aws.Bool(c == driver.Strong),
	})
	if err != nil {
		return finding{}, s.fault(ctx, err)
	}
	return s.find(key, out.Item, 0)
}

// key returns the primary key of a record.
func (s *Store) key(key string) item {
	it := item{s.options.PartitionKey: text(key)}
	if s.options.SortKey != "" {
		it[s.options.SortKey] = text(s.options.SortValue)
	}
	return it
}

// find returns the record of an item, if there is one. An item written by another
// client counts as a change of holder, so it gets the token after the last known
// token, although that client granted none.
func (s *Store) find(key string, it item, last uint64) (f finding, err error) {
	f.last = last
	if len(it) == 0 {
		return f, fmt.Errorf("%q: %w", key, driver.ErrNotFound)
	}
	f.rec, f.foreign, err = s.options.decode(it)
	_, f.shared = it[attrShared]
	f.shared = f.shared && !f.foreign
	if err == nil && f.foreign {
		f.rec.Token = min(max(f.rec.Token, last), driver.MaxToken-1) + 1
	}
	return f, err
}

// refuseSession returns an error if next is a living session, or a lock under one,
// in a shared table: other clients would fail on the item of the lock for as long
// as the session lives, and on every list. Records of a session from before the
// table was shared may be closed, taken over and deleted.
func (s *Store) refuseSession(next driver.Record) error {
	if !s.options.SharedTable || next.Session == "" && next.State != driver.Alive {
		return nil
	}
	return driver.Unsupported(fmt.Errorf("write of %q: table %q is shared with other lock clients (SharedTable, shared=true in a URL), "+
		"which do not support sessions; take the lock without a session, or keep locks under sessions in a table of Tenure's own", next.Key, s.table))
}

// refuseLedger returns an error if next is a lock in a shared table, and has a ledger of
// package once as its data: another client's write of the item drops it. The data decide,
// since a lock may have any name.
func (s *Store) refuseLedger(next driver.Record) error {
	if !s.options.SharedTable || next.State != driver.Held || !isLedger(next.Data) {
		return nil
	}
	return driver.Unsupported(fmt.Errorf("write of %q: table %q is shared with other lock clients (SharedTable, shared=true in a URL), "+
		"which do not preserve the ledger of tenure once or every in the data of this lock; keep the lock in a table of Tenure's own", next.Key, s.table))
}

// isLedger says that data are a ledger, by how each begins.
func isLedger(data []byte) bool {
	kind, found := bytes.CutPrefix(data, []byte(`{"ledger":"`))
	return found && (bytes.HasPrefix(kind, []byte("once/")) || bytes.HasPrefix(kind, []byte("every/")))
}

// Claim writes next if its key is absent or released: one request, and two in
// a shared table.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := s.ready(ctx); err != nil {
		return now, prev, driver.NotApplied(err)
	}
	if err := driver.CheckClaim(next); err != nil {
		return now, prev, err
	}
	if err := s.refuseSession(next); err != nil {
		return now, prev, err
	}
	next = next.Detach()
	if s.sharesToken(next.Key) {
		return s.claimBoth(ctx, next)
	}
	e := s.options.claim(next)
	if err := s.grant(e, next); err != nil {
		return now, prev, err
	}
	out, err := call(ctx, s, s.client.UpdateItem, &dynamodb.UpdateItemInput{
		TableName: &s.table, Key: s.key(next.Key),
		UpdateExpression: e.update(), ConditionExpression: &e.condition,
		ExpressionAttributeNames: e.names(s.options.PartitionKey), ExpressionAttributeValues: e.values,
		ReturnValues:                        types.ReturnValueAllOld,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err != nil {
		stands, err := s.conflict(ctx, next.Key, err)
		return now, prev, s.refusedClaim(next.Key, stands, err)
	}
	if out.Attributes[attrVersion] == nil && out.Attributes[attrStamp] == nil {
		// Nothing, or, from an emulator, only the key.
		return driver.Claimed(next, prev, false), prev, nil
	}
	old, err := s.find(next.Key, out.Attributes, 0)
	if err != nil {
		// It is applied all the same: the next read shows the record that it wrote.
		return now, prev, fmt.Errorf("claim of %q: it was applied, but the item that it replaced cannot be decoded: %v", next.Key, err) //nolint:errorlint // not ErrUnreadable: it is gone
	}
	prev = old.rec
	now = driver.Claimed(next, prev, true)
	return now.Clone(), prev, nil // they shared Data
}

// refusedClaim returns the error of a claim, given what conflict said of it.
func (s *Store) refusedClaim(key string, stands finding, err error) error {
	switch conflict := (*driver.ConflictError)(nil); {
	case !errors.As(err, &conflict):
		return err
	case conflict.Absent:
		return driver.NotApplied(fmt.Errorf("claim of %q: the item was deleted meanwhile; try again", key))
	case stands.rec.State != driver.Released:
		return err
	case stands.foreign && !s.options.SharedTable:
		return s.foreign(key, stands.rec)
	case s.unguarded(stands):
		return s.guarded(key)
	case stands.rec.Token >= driver.MaxToken:
		return driver.Unsupported(fmt.Errorf("claim of %q: token %d cannot rise", key, stands.rec.Token))
	}
	return driver.NotApplied(fmt.Errorf("claim of %q: the lock was released meanwhile; try again", key))
}

// unguarded reports whether an item must not be taken by this store, because others
// write it with SharedTable.
func (s *Store) unguarded(f finding) bool {
	return f.shared && !s.options.SharedTable && !s.options.Unshare
}

func (s *Store) guarded(key string) error {
	return driver.NotApplied(driver.Permanent(fmt.Errorf("item of %q in table %q was written with SharedTable, but this process does not set it: "+
		"set SharedTable (shared=true in a URL), or, if the other client will not come back, Unshare (unshare=true) in all processes", key, s.table)))
}

// foreign is the error of a write over what another client wrote, in a table
// that was not said to be shared.
func (s *Store) foreign(key string, rec driver.Record) error {
	return driver.Unsupported(fmt.Errorf("item of %q in table %q was written by another lock client, owner %q, which keeps no fencing token: "+
		"set SharedTable (shared=true in a URL), or stop the users of that client and delete the item", key, s.table, rec.Owner))
}

// Swap replaces prev by next if the stored version and token are those of
// prev: one request, which is a transaction of two items when the holder
// changes in a shared table.
func (s *Store) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckSwap)
}

func (s *Store) swap(ctx context.Context, prev, next driver.Record, check func(prev, next driver.Record) error) (driver.Record, error) {
	if err := s.ready(ctx); err != nil {
		return driver.Record{}, driver.NotApplied(err)
	}
	if err := check(prev, next); err != nil {
		return driver.Record{}, err
	}
	if err := errors.Join(s.refuseSession(next), s.refuseLedger(next)); err != nil {
		return driver.Record{}, err
	}
	next = next.Detach()
	e := s.options.swap(prev, next)
	var err error
	if next.Token != prev.Token {
		if err = s.grant(e, next); err != nil {
			return driver.Record{}, err
		}
	}
	if s.sharesToken(next.Key) && next.Token != prev.Token {
		err = s.writeBoth(ctx, next, e)
	} else {
		_, err = call(ctx, s, s.client.UpdateItem, &dynamodb.UpdateItemInput{
			TableName: &s.table, Key: s.key(next.Key),
			UpdateExpression: e.update(), ConditionExpression: &e.condition,
			ExpressionAttributeNames: e.names(s.options.PartitionKey), ExpressionAttributeValues: e.values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
	}
	if err != nil {
		stands, err := s.conflict(ctx, next.Key, err)
		return driver.Record{}, s.refusedSwap(prev, stands, err)
	}
	return next, nil
}

// refusedSwap returns the error of a swap or delete, given what conflict said
// of it.
func (s *Store) refusedSwap(prev driver.Record, stands finding, err error) error {
	conflict := (*driver.ConflictError)(nil)
	if !errors.As(err, &conflict) || conflict.Absent || stands.rec.Version != prev.Version || stands.rec.Token != prev.Token {
		return err
	}
	if stands.foreign && !s.options.SharedTable {
		return s.foreign(prev.Key, stands.rec)
	}
	if s.unguarded(stands) {
		return s.guarded(prev.Key)
	}
	if stands.foreign && (stands.rec.State != prev.State || !bytes.Equal(stands.rec.Data, prev.Data)) {
		return err // released meanwhile
	}
	if !stands.foreign && stands.last > prev.Token {
		return driver.NotApplied(driver.Permanent(fmt.Errorf("item of %q in table %q has token %d, and the one of %q has %d: "+
			"the table was restored in part, or changed by hand; set fencingToken of the first to that of the second",
			prev.Key, s.table, prev.Token, tokenPrefix+prev.Key, stands.last)))
	}
	return driver.NotApplied(fmt.Errorf("write of %q: the item or the token beside it changed meanwhile; try again", prev.Key))
}

// Delete removes the record if its version and token are those of prev. In a
// shared table the token of a lock outlives it: a transaction makes sure that it
// is in an item of its own.
func (s *Store) Delete(ctx context.Context, prev driver.Record) error {
	if err := s.ready(ctx); err != nil {
		return driver.NotApplied(err)
	}
	e := &expression{values: item{}}
	e.only(&s.options, prev)
	e.condition = isAbsent + " OR " + e.condition
	err := s.remove(ctx, prev, e)
	if err == nil {
		return nil
	}
	stands, err := s.conflict(ctx, prev.Key, err)
	if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) && conflict.Absent {
		return nil
	}
	return s.refusedSwap(prev, stands, err)
}

// remove deletes an item if its condition holds.
func (s *Store) remove(ctx context.Context, prev driver.Record, e *expression) error {
	if s.sharesToken(prev.Key) && prev.Token > 0 {
		if higher, err := s.removeKeeping(ctx, prev, e); !higher {
			return err
		}
	}
	_, err := call(ctx, s, s.client.DeleteItem, &dynamodb.DeleteItemInput{
		TableName: &s.table, Key: s.key(prev.Key), ConditionExpression: &e.condition,
		ExpressionAttributeNames: e.names(s.options.PartitionKey), ExpressionAttributeValues: e.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return err
}

// KeepsTokens implements [driver.TokenRetainer]: in a shared table the tokens
// of locks are in items of their own, and outlive the items of the locks.
func (s *Store) KeepsTokens() bool { return s.options.SharedTable }

// ChargesRefusals implements [driver.RefusalCharger]: DynamoDB bills a write whose condition
// did not hold like any other, and counts it against the limit of the item's partition. A
// claim in a shared table reads first by itself.
func (s *Store) ChargesRefusals() bool { return !s.options.SharedTable }

// SharesLocks implements [driver.Sharer].
func (s *Store) SharesLocks() bool { return s.options.SharedTable }

// conflict returns the meaning of the error of a write. If a condition did
// not hold, it is a conflict with the current item, which comes with the
// error; if the engine does not send it, conflict reads it.
func (s *Store) conflict(ctx context.Context, key string, err error) (stands finding, _ error) {
	it, failed := conditionFailed(err)
	if !failed {
		return stands, s.fault(ctx, err)
	}
	if len(it) > 0 {
		stands, err = s.find(key, it, 0)
	}
	if len(it) == 0 || stands.foreign && s.sharesToken(key) {
		stands, err = s.look(ctx, key, driver.Strong)
	}
	return stands, conflictWith(key, stands, err)
}

// conflictWith returns the conflict of a write with what was found under its key.
func conflictWith(key string, stands finding, err error) error {
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return &driver.ConflictError{Key: key, Absent: true}
	case err != nil:
		return driver.NotApplied(err)
	}
	return &driver.ConflictError{Key: key, Current: stands.rec}
}
