// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package serve

import (
	"errors"
	"fmt"

	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// refusal is an error of a library whose kind is known.
type refusal struct {
	error
	kind string
}

func (r *refusal) Unwrap() error { return r.error }

// Refuse returns the error as one of a kind, of those of package wire.
func Refuse(kind string, err error) error { return &refusal{err, kind} }

// kindOf is the kind of an error, Other if it has none.
func kindOf(err error) string {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.kind
	}
	return wire.Other
}

// refused is the answer to a request that came to an error: it shows the library's
// own.
func refused(err error) wire.Answer {
	kind := kindOf(err)
	if r := (*refusal)(nil); errors.As(err, &r) {
		err = r.error
	}
	return wire.Answer{Kind: kind, Class: fmt.Sprintf("%T", err), Message: err.Error()}
}
