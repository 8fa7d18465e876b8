// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"
)

// Consistency says how fresh a read must be.
type Consistency int

const (
	// Strong reads see every write that was answered before the read was sent.
	Strong Consistency = iota
	// Eventual reads may see an older state of the record, where the engine
	// has such reads and they are cheaper.
	Eventual
)

// Store is a linearizable map from key to [Record].
//
// All methods but Close may be called concurrently. A store keeps no
// reference to the memory of records that it was given (their Data, Requests,
// Asked and Prev), and the records that it returns belong to the caller.
//
// A method returns soon after its context is done, with an error that matches
// the context's. A write is not applied, and its error matches ErrNotApplied,
// if its context is done before it begins, if the checks of this package
// refuse its record, if the stored record is ErrUnreadable, after Close, and
// if it is a Claim of a record whose token is MaxToken.
type Store interface {
	// Get returns the record of key, or an error that matches ErrNotFound.
	//
	// A record that is there but cannot be understood is an error that matches
	// ErrUnreadable, never a record with zeros in it: a lease that reads as
	// zero would let any process take the lock.
	Get(ctx context.Context, key string, c Consistency) (Record, error)

	// Claim writes next, which is Held, Past or Alive, if the key is absent or
	// Released, in one atomic step and in one request where the engine can do
	// that. What it stores is what Claimed(next, prev, found) returns: the
	// token is one higher than the stored one and 1 for a new key, whatever
	// next.Token says; the stored Data stays if next.Data is nil; Prev is the
	// tenure that the stored record shows, with the request that ended it.
	//
	// It returns the record as stored, and the record that it replaced (zero
	// if there was none). If the key is there in any state but Released, it
	// changes nothing and returns a *ConflictError with the current record. So it
	// may after several others have come before it meanwhile: then that record may
	// be Released, and the caller claims again.
	// Any other error leaves the outcome unknown, unless it matches
	// ErrNotApplied.
	Claim(ctx context.Context, next Record) (now, prev Record, err error)

	// Swap replaces the record prev of a key by next if the stored version and
	// token are those of prev, in one atomic step. Nothing else of prev is
	// compared; the version alone is not enough, because a late duplicate of a
	// Claim can bring a version back, under a higher token.
	//
	// next.Token is prev.Token, or one more when the holder changes. (Only a
	// [Raiser] raises it further.)
	//
	// It returns the record as stored. If the stored version or token differ,
	// or the key is absent, it changes nothing and returns a *ConflictError
	// with the current record. Any other error leaves the outcome unknown,
	// unless it matches ErrNotApplied.
	//
	// All fields of next replace those of prev, also empty ones: a released
	// lock has no Session any more.
	Swap(ctx context.Context, prev, next Record) (Record, error)

	// Delete removes the record if its version and token are those of prev, which
	// may be all of prev that is filled in, beside the key: the caller need not have
	// read the record. The same holds for the prev of a Swap. It returns a *ConflictError if one differs, and nil if the key is absent.
	// The token of a deleted key starts again at 1, unless the store is a [TokenRetainer] that
	// keeps it: locks that are in use are not deleted, they are released.
	Delete(ctx context.Context, prev Record) error

	// List returns records whose key begins with prefix, in the order of their
	// keys by bytes: those after cursor, which is that of the page before, and
	// empty in the first call. Any other key may be the cursor as well, whether or not
	// it has a record or begins with prefix. List is for people and may be slow and
	// eventually consistent. A record that cannot be decoded is not left out: it is in
	// Page.Unreadable, with its key at least.
	List(ctx context.Context, prefix, cursor string) (Page, error)

	// Close frees what the store itself holds. A client or connection that
	// the caller brought stays open. Calls after Close return an error that
	// matches ErrClosed, and closing again returns nil. Close waits for calls that
	// are under way, which their contexts bound, or ends them: then they return an
	// error, and a write says that it was not applied only if that is certain.
	Close() error
}

// Page is one page of a [Store.List].
type Page struct {
	Records []Record
	// Unreadable holds an error for each record of the page that could not be
	// understood, by key.
	Unreadable map[string]error
	// Cursor continues the list, empty after the last page. It is a key: that of the
	// last record of this page, or one between that and the next.
	Cursor string
}

// BatchGetter is implemented by stores that read several records in one request
// of their engine, or in few. Without it they are read one by one.
type BatchGetter interface {
	// GetBatch returns what Get would return for each of the keys, in their
	// order. They need not be states of one instant. An error concerns the
	// whole batch.
	GetBatch(ctx context.Context, keys []string, c Consistency) ([]Lookup, error)
}

// Lookup is one answer of a [BatchGetter].
type Lookup struct {
	Record Record
	Err    error // as of Get
}

// Watcher is implemented by stores whose engine can tell that a key changed.
// It is a hint: correctness never depends on it, and its callers read the
// record anyway, only sooner.
type Watcher interface {
	// Watch has hint called soon after the record of key changed in a way that
	// another process must know at once: by a Delete, or by a Swap for which
	// [Wakes] is true. Such a Swap releases or reserves a lock, or closes a
	// session, for which acquirers wait; or it adds a request, which its holder
	// would else find only at its next heartbeat. Changes made by other processes
	// count as well. Calls may come twice, come without reason, and come
	// concurrently; when the engine fails they may be missed, but a watch that was
	// interrupted calls hint once it is set again. hint must not block. stop ends
	// the watch, and may be called again; hint may still be running when it
	// returns. Close ends all watches.
	//
	// A change after Watch returned is hinted, so that a caller that reads after
	// that misses nothing: Watch returns when the engine has confirmed the watch,
	// also for the first watch of a store.
	//
	// The context is for that set-up alone. If it is done before the watch stands,
	// Watch returns soon, with an error that matches the context's, and nothing is
	// left of the watch; once Watch has returned, its end means nothing.
	Watch(ctx context.Context, key string, hint func()) (stop func(), err error)
}

// ReplacedNotifier is implemented by stores that notice without a call that
// others now find another engine under their name: see [ErrReplaced].
type ReplacedNotifier interface {
	// Replaced returns a channel that is closed soon after the store was
	// replaced, always the same one. From then on, at the latest, every call
	// returns an error that matches ErrReplaced. A store that cannot detect
	// it, on this system or for this engine, returns nil. Close does not
	// close it.
	Replaced() <-chan struct{}
}

// TokenRetainer is implemented by stores that may keep the token of a lock whose
// record is deleted. A sweep that deletes released locks, to make room, calls
// KeepsTokens first: if it returns false, or a store does not implement this,
// the tokens of the lock begin at 1 again, and every fence that remembers a
// higher token refuses its next holders.
type TokenRetainer interface {
	// KeepsTokens reports whether Delete leaves the token of a lock where the next
	// Claim of its key finds it, so that the tokens go on. It is the same for all
	// locks and for the life of the store. Keys that begin with [OwnPrefix] are no
	// locks.
	KeepsTokens() bool

	// ListTokens returns the kept tokens of locks without a record whose keys begin
	// with prefix, in the order and in pages as List does. Each Record has only its
	// Key and Token. It may be as slow as List, and as eventually consistent.
	// RaiseTokens needs them: a restore of the engine sets them back, too.
	ListTokens(ctx context.Context, prefix, cursor string) (Page, error)
}

// RefusalCharger is implemented by stores whose engine may charge a refused [Store.Claim]
// like a granted one, while a read costs less and does not count towards the limit for writes
// of a record. Without it a caller that tries only once claims at once, in one request,
// whether the lock is free or not.
type RefusalCharger interface {
	// ChargesRefusals reports whether it does. Then a caller that does not wait, and has
	// never read the record of a lock, reads it first, and claims only a free lock. It is
	// the same for the life of the store.
	ChargesRefusals() bool
}

// Sharer is implemented by stores whose locks programs without Tenure may hold, or wait for, too.
type Sharer interface {
	// SharesLocks reports whether they may. No record says how wrong the clock of such a
	// program may be, so a client then allows for any clock, even if its own is exact. It is
	// the same for the life of the store.
	SharesLocks() bool
}

// SlowWriter is implemented by stores whose writes may now and then take much longer than usual,
// such as buckets. A heartbeat may then take as long as any other request, and is not repeated
// sooner.
type SlowWriter interface {
	// SlowWrites does nothing.
	SlowWrites()
}

// Raiser is implemented by stores that can raise the token of a lock by more than
// one, for the procedure after a loss: the engine was restored from a backup, or
// failed over without the last writes. Then tokens are granted a second time, and
// no fence can distinguish their holders. When all programs are stopped, and their
// leases over, the procedure raises each token above all that were ever granted.
//
// Nothing else may call it. A raise while a program works breaks the order of
// the history, and makes the program lose the lock: see [Record.Token].
type Raiser interface {
	// Raise replaces the record prev of a lock by next if the stored version and
	// token are those of prev, in one atomic step, as a Swap does. Next is
	// [Released], has a new version, and a token that is higher than that of prev by
	// any amount, [MaxToken] at most: see [CheckRaise]. Sessions are closed by a Swap:
	// their tokens stay.
	//
	// A prev without a Version stands for a lock that has no record, but whose token,
	// the token of prev, the store keeps: see [TokenRetainer]. In any other store it
	// is a conflict, whether the key has a record or not.
	//
	// What it returns, its errors and unknown outcomes are those of Swap, watches are
	// hinted as at a release, and the token outlives a failure of the engine as that
	// of a takeover does.
	Raise(ctx context.Context, prev, next Record) (Record, error)
}

// Wakes reports whether watches hint at a Swap from prev to next: a Swap to any
// state but Held and Alive, or with a new request. They do not hint at
// heartbeats, data and takeovers, which are no news for a waiter.
func Wakes(prev, next Record) bool {
	return next.State != Held && next.State != Alive || AddsRequest(prev, next)
}

// AddsRequest reports whether next carries a request that prev does not.
func AddsRequest(prev, next Record) bool {
	for _, request := range next.Requests {
		same := func(other Request) bool { return other.ID == request.ID }
		if !slices.ContainsFunc(prev.Requests, same) {
			return true
		}
	}
	return false
}
