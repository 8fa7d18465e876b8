// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// body is the body of a write. A write whose body was never read cannot have been applied,
// whatever the transport is; and once that is established it is never read.
type body struct {
	mu           sync.Mutex
	text         *bytes.Reader
	read, sealed bool
}

func newBody(text []byte) *body { return &body{text: bytes.NewReader(text)} }

var errSealed = errors.New("the write was given up before it was sent")

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed {
		return 0, errSealed
	}
	b.read = true
	return b.text.Read(p)
}

func (b *body) Seek(offset int64, whence int) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Seek(offset, whence)
}

// Close does nothing: net/http may still read the body when the answer has begun, and would
// then close the connection under the answer.
func (b *body) Close() error { return nil }

// seal reports whether the body was never read, and prevents reads from now on.
func (b *body) seal() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sealed = !b.read
	return b.sealed
}

// unsentError is the error of a request that was never made.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

var _ io.ReadSeekCloser = (*body)(nil)
