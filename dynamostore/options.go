// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
)

// Dialect is the format of the lease duration in an item. The existing lock
// clients cannot read each other's locks because of it; otherwise their items
// are the same. The store reads all dialects that have a safe meaning,
// whichever it writes.
type Dialect int

const (
	// Java is the dialect of the Amazon DynamoDB Lock Client for Java: whole
	// milliseconds in decimal, "20000".
	Java Dialect = iota
	// Dynamolock is the dialect of cirello.io/dynamolock: a Go duration, "20s".
	Dynamolock
)

func (d Dialect) String() string {
	switch d {
	case Java:
		return "java"
	case Dynamolock:
		return "dynamolock"
	}
	return fmt.Sprintf("Dialect(%d)", int(d))
}

// ParseDialect returns the dialect of the given name, "java" or "dynamolock".
func ParseDialect(name string) (Dialect, error) {
	for _, d := range []Dialect{Java, Dynamolock} {
		if d.String() == name {
			return d, nil
		}
	}
	return 0, fmt.Errorf("dialect %q is unknown: write %q, or %q", name, Java, Dynamolock)
}

// DefaultPartitionKey is the name of the partition key if Options.PartitionKey
// is empty. It is the default of the Java client and of dynamolock as well.
const DefaultPartitionKey = "key"

// Options are the settings of a [Store]. The zero value is good for a table
// that Tenure has for itself.
type Options struct {
	// PartitionKey is the name of the table's partition key, of type S. If
	// empty, "key".
	PartitionKey string

	// SortKey and SortValue are the name of the table's sort key, of type S,
	// and the value that all items of this store have there. Stores with
	// different values share no lock. If both are empty, the table has no sort
	// key. The Java client chooses the value lock by lock: [Store.WithSortValue]
	// makes a view for each value that it uses.
	SortKey, SortValue string

	// Dialect is the dialect that is written. If zero, [Java]. In a table that
	// another client uses as well, it must be the dialect of that client: the
	// client cannot read the other, and then neither waits for a lock nor takes
	// it, but fails.
	Dialect Dialect

	// SharedTable must be set by all users of a table to which another lock client
	// writes. Such clients wipe the fencing token of an item that they take
	// (Java), bring back an older one (dynamolock), or delete the item (both).
	// With SharedTable the token is kept in an item of its own: taking a lock then
	// costs a read and a transaction, two requests instead of one, and about five
	// capacity units instead of one. Heartbeats and releases cost the same as
	// without it. The engine must have TransactWriteItems.
	//
	// Before another client may write to a table that only Tenure used, take and
	// release each lock once with SharedTable set: its token is then in an item
	// of its own. And leave it set until Tenure was the last to write each lock's
	// item, and none is missing: a lock whose token is not stored begins at 1.
	//
	// Without it, an item that another client wrote is respected and shown, and
	// never taken: Claim and takeover return an error that says so.
	//
	// Sessions, and locks under them, are refused then: other clients do not
	// understand them.
	//
	// It must not be set on a table to which the Rust crate dynamodb_lock writes:
	// up to version 0.4 its leases, in seconds without a unit, look like Java's in
	// milliseconds. Those below 1000 are refused; one of 1800 seconds would be
	// taken after 1.8.
	SharedTable bool

	// Unshare has the store take locks that were written with SharedTable, and ends
	// that they are known for it. Without either such a lock is not taken: Claim and
	// takeover return an error that says so, since the tokens of the two ways of
	// counting would not know of each other. Set it in all processes at once, when no
	// other lock client will write to the table any more and each item was written by
	// Tenure last; it may go when each lock was taken once.
	Unshare bool

	// Attributes returns attributes of the user's own for the item of a lock, for an
	// index or a dashboard, say: nil or none leaves the item as it is. It is called
	// at each try to write a grant, a claim or a takeover, with the record to be
	// written, without its token and the term before. What it returns is set in the
	// same write, and stays through heartbeats and the release until a later grant
	// sets it again; an attribute that is not returned then stays as it was. It adds
	// to the size of the item, by which each write is billed.
	//
	// Names of a lock's own attributes, of the table's keys and those that begin with
	// "tenure" are refused, and so is a nil value: the write is not applied, and the
	// error is permanent. Numbers must be within the limits of DynamoDB.
	//
	// It is called by several goroutines at once, for locks alone, not for sessions
	// and the history, and must be quick and not panic: a heartbeat does not wait for
	// it, a grant does. Of the other clients of a shared table, Java wipes such
	// attributes when it takes the lock, and dynamolock carries them along.
	Attributes func(driver.Record) map[string]types.AttributeValue

	// TimeToLive allows a table whose items expire, together with SharedTable: no
	// item of a lock may have the attribute. [Open] reads it.
	TimeToLive bool

	// EventualReplicas allows a global table whose replicas are only eventually
	// consistent. There, two processes in different regions may hold one lock at
	// once: conditional writes are decided in their own region, and the last
	// writer wins. It is safe only as long as all processes use one and the same
	// region. [Open] reads it.
	EventualReplicas bool
}

// resolve returns the options with defaults filled in, or what is wrong with them.
func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	if r.PartitionKey == "" {
		r.PartitionKey = DefaultPartitionKey
	}
	for _, name := range []string{r.PartitionKey, r.SortKey} {
		if ownAttributes[name] {
			return r, fmt.Errorf("key attribute %q has the name of an attribute of a lock's item: %s", name, strings.Join(ownNames(), ", "))
		}
	}
	switch {
	case r.SortKey == "" && r.SortValue != "":
		return r, fmt.Errorf("there is a SortValue, %q, but no SortKey: name the table's sort key", r.SortValue)
	case r.SortKey != "" && r.SortValue == "":
		return r, fmt.Errorf("there is a SortKey, %q, but no SortValue: DynamoDB stores no empty sort key; choose the value for the locks of this store", r.SortKey)
	case r.SortKey == r.PartitionKey:
		return r, fmt.Errorf("sort key and partition key are both %q", r.SortKey)
	case len(r.SortValue) > maxSortValueLen:
		return r, fmt.Errorf("SortValue has %d bytes: at most %d are allowed by DynamoDB", len(r.SortValue), maxSortValueLen)
	case r.Unshare && r.SharedTable:
		return r, errors.New("SharedTable and Unshare exclude each other: set one of them")
	case r.Dialect != Java && r.Dialect != Dynamolock:
		return r, errors.New("unknown dialect: use Java or Dynamolock")
	}
	return r, nil
}

const maxSortValueLen = 1024
