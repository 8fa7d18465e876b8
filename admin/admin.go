// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package admin has what operators do about locks that others hold, or have left: they free
// those of the dead, take one from a holder that does not answer, clear a store of what
// nobody needs, and raise its tokens after a loss. Its functions act through a
// [tenure.Client], whose owner name the history shows.
//
// # Guarantees
//
// Nothing here frees a lock while its holder may act, and nothing deletes what may be in
// use: a holder that has shown a sign of life within its lease is alive. Each write names
// the record that it replaces.
//
// # What is not guaranteed
//
// [RaiseTokens] and [ReleaseCrashed] believe their callers: that all programs are stopped,
// and that a holder has ended.
package admin

import (
	"cmp"
	"context"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/text"
)

// ReleaseDead releases the lock of a dead holder, for a caller that cannot wait
// until a contender takes it over. It watches the record until the holder has shown
// no sign of life for the lease duration that the record states, and releases it
// then. If there is a sign of life the error matches [tenure.ErrAlive]; if there is no
// holder, [tenure.ErrNotHeld].
func ReleaseDead(ctx context.Context, client *tenure.Client, name, reason string) error {
	return ask(ctx, client, "release", name, driver.Request{Kind: driver.ReleaseDead, Reason: reason})
}

// Revoke takes the lock away from its holder, alive or not. From the first write on
// the holder cannot renew any more. It may be at work until its lease has run out,
// so the lock is free only after that, and Revoke waits until then. If ctx ends
// before, the lock stays reserved for nobody, and is free for any client that has
// watched that for the lease duration.
//
// Use it for a holder that does not answer. Ask a holder that answers to step down
// instead: it can end its work in order, and is quicker. A lock under a session
// cannot be taken away alone while the session is alive, or may be, as far as this
// client has seen: the error matches [tenure.ErrAlive]. [ReleaseDead] watches, and
// releases the lock when the session is dead.
func Revoke(ctx context.Context, client *tenure.Client, name, reason string) error {
	return ask(ctx, client, "revoke", name, driver.Request{Kind: driver.Revoke, Reason: reason})
}

// CrashOptions are those of [ReleaseCrashed].
type CrashOptions struct {
	// After is how long the lock stays held, from the call on: the last requests of the
	// dead holder to what it has worked on may still be on their way. A lease that
	// runs out leaves them [tenure.Options.Grace]. If zero, that is it; a negative one is no
	// time at all, which is right only if the resource is fenced.
	After time.Duration
	// Within is how long the store is asked, from the call on, at least as long as
	// After. If zero, two lease durations. By then the lease has run out by itself.
	Within time.Duration
}

// ReleaseCrashed releases the lock of a lease whose holder has certainly ended without
// releasing it, so that others need not wait until the lease has run out. The id is
// that of the lease: [tenure.Lease.ID]. The caller answers for the death: the holder's process,
// all that it had started, and whoever else has worked under the lease, must have ended.
// The end of a connection is no proof of that, nor is the exit of one process which may
// have left children. For a holder that has shown no life for its lease
// [ReleaseDead] needs no proof.
//
// Only a record that shows the very lease is written. The lock may be taken, released
// or reserved meanwhile: the error matches [tenure.ErrNotHeld] then. The tenure ends as
// [tenure.EndCrashed], unless the holder has said itself why it had stopped. Other errors are
// those of the store, or match the context's; the lock runs out by itself then.
func ReleaseCrashed(ctx context.Context, client *tenure.Client, name, id string, options *CrashOptions) error {
	timing := client.Options()
	var o CrashOptions
	if options != nil {
		o = *options
	}
	o.After = cmp.Or(o.After, timing.Grace)
	o.Within = cmp.Or(o.Within, max(o.After, 0)+2*timing.LeaseDuration)
	err := checkName(name)
	switch {
	case err != nil:
	case id == "":
		err = text.Invalid("the id of the lease is empty")
	case text.CheckForm("lease id", id, driver.MaxSessionLen) != nil:
		err = text.CheckForm("lease id", id, driver.MaxSessionLen)
	case o.Within < 0 || o.Within < o.After:
		err = text.Invalid("within %v must not be shorter than after %v", o.Within, o.After)
	case ctx.Err() != nil:
		err = engine.Done(ctx)
	default:
		err = client.Engine().ReleaseCrashed(ctx, name, id, o.After, o.Within)
	}
	return wrap("release", name, err)
}

// ask asks something of the record of a lock, in the name of the client.
func ask(ctx context.Context, client *tenure.Client, op, name string, q driver.Request) error {
	err := cmp.Or(checkName(name), text.CheckReason(q.Reason))
	if err == nil && ctx.Err() != nil {
		err = engine.Done(ctx)
	}
	if err == nil {
		err = client.Engine().Ask(ctx, name, q)
	}
	return wrap(op, name, err)
}

func checkName(name string) error { return text.CheckKey("lock name", name, driver.MaxNameLen) }

func wrap(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return &tenure.Error{Op: op, Key: key, Err: err}
}

// operator is what the functions of this package are carried out by.
type operator struct {
	*engine.Client
	options tenure.Options
}

func operatorOf(client *tenure.Client) operator { return operator{client.Engine(), client.Options()} }

func (o operator) now() time.Duration { return o.options.Clock.Contender() }

// lister returns a page of records, as [driver.Store.List] does.
type lister func(ctx context.Context, prefix, cursor string) (driver.Page, error)

// maxListing is how long a page of a list may take: some engines read all that there is
// for it.
const maxListing = time.Minute

// bounded is a list each page of which takes maxListing at most, or a lease.
func (o operator) bounded(list lister) lister {
	return func(ctx context.Context, prefix, cursor string) (driver.Page, error) {
		ctx, cancel := context.WithTimeout(ctx, max(maxListing, o.options.LeaseDuration))
		defer cancel()
		return list(ctx, prefix, cursor)
	}
}

// eachPage shows records, page by page, until an error.
func eachPage(ctx context.Context, list lister, prefix string, show func(driver.Page) error) error {
	for cursor := ""; ; {
		page, err := list(ctx, prefix, cursor)
		if err == nil {
			err = show(page)
		}
		if cursor = page.Cursor; err != nil || cursor == "" {
			return err
		}
	}
}
