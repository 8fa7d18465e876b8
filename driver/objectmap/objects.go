// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap

import (
	"context"
	"errors"

	"github.com/tenurelock/tenure/driver"
)

// Errors of [Objects]. Both say that nothing was written, for certain and for good.
var (
	// ErrMismatch is returned by a write whose condition did not hold: the object has
	// another tag, or is absent, or exists.
	ErrMismatch = errors.New("the object has another tag")
	// ErrBusy is returned by a write that the engine refused because another write of
	// the same object was under way. It says nothing about the condition.
	ErrBusy = errors.New("another write of the object is under way")
)

// Objects is an engine that keeps bodies under names. All methods may be called
// concurrently. Each is one request of the engine, which is never sent again.
//
// Names are ASCII, at most 1,024 bytes long, with slashes between parts of at most 255. No
// name is the beginning of another one up to a slash.
//
// Errors are marked like the errors of a [driver.Store]. An error without a mark, which a
// write may return at any time, means that the engine may have changed.
type Objects interface {
	// Get returns the body of an object and its tag, which is not empty, or an error that
	// matches driver.ErrNotFound. It sees every write that was answered before.
	Get(ctx context.Context, name string) (body []byte, tag string, err error)

	// Put writes the object if its tag is the given one; with an empty tag, if it is
	// absent. It returns the new tag. The condition is decided by the engine, in one step
	// with the write. An error that matches ErrMismatch or ErrBusy is certain.
	Put(ctx context.Context, name string, body []byte, tag string) (newTag string, err error)

	// Delete removes the object if its tag is the given one; with an empty tag, whatever
	// it is. An engine that cannot make a deletion depend on a tag ignores it, or returns
	// an error that matches errors.ErrUnsupported and does nothing: [Probe] finds out. If the object is absent, it returns nil or ErrMismatch.
	Delete(ctx context.Context, name, tag string) error

	// Names returns the names that begin with prefix, in any order, in pages. The first
	// call has an empty cursor, and each further call the cursor that the call before
	// returned; after the last page it is empty. Objects that are written meanwhile may
	// be missing.
	Names(ctx context.Context, prefix, cursor string) (names []string, next string, err error)

	// Close frees resources other than the caller's client.
	Close() error
}

// unsound is the error of an engine that does not keep the conditions of writes.
func unsound(fault string) error {
	return driver.Unsupported(errors.New(fault + ": two processes would hold one lock here; use a server that keeps the conditions of writes"))
}
