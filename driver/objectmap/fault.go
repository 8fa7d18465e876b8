// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure/driver"
)

// Meaning is what an error of an engine says of the write that met it.
type Meaning int

// Meanings. An error without a certain meaning is Unknown.
const (
	Unknown    Meaning = iota // the write may have been applied, or may yet be
	Slow                      // likewise; and the engine has too much to do
	NotApplied                // it was not, and will not be
	Hopeless                  // it was not, and trying again does not help
)

// Fault returns an error of an engine, marked like the errors of a [driver.Store]. Its text
// is the place, the advice, if any, and the text of err. If a context has ended, the error
// matches the context's.
func (m Meaning) Fault(ctx context.Context, place, advice string, err error) error {
	told := fmt.Errorf("%s: %w", place, err)
	if advice != "" {
		told = fmt.Errorf("%s: %s: %w", place, advice, err)
	}
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		told = fmt.Errorf("%w: %w", ctx.Err(), told)
	}
	switch m {
	case Hopeless:
		return driver.NotApplied(driver.Permanent(told))
	case NotApplied:
		return driver.NotApplied(told)
	case Slow:
		return driver.Throttled(told)
	}
	return told
}

// Brief returns an error with a shorter text for an error whose text repeats the name of
// the operation, or has ids of the request or a signature.
func Brief(text string, err error) error { return &brief{text, err} }

type brief struct {
	text string
	err  error
}

func (e *brief) Error() string { return e.text }
func (e *brief) Unwrap() error { return e.err }
