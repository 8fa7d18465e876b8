// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"reflect"
)

// What Run returns is made of how a tenure ended and of what the work returned,
// and the work often returns how the tenure ended: the cause of its context, or
// what Check says.

// lostWith is the error of a lost lease and of its work. The work's error is left
// out if it says no more than the loss.
func lostWith(lost *Error, work error) error {
	if work != nil && repeats(work, lost.Err) {
		return lost
	}
	return errors.Join(lost, work)
}

// repeats reports whether err says no more than lost, in the form in which another
// caller got it.
func repeats(err, lost error) bool {
	for {
		told, ok := err.(*Error) //nolint:errorlint // what is around it says more
		if !ok {
			break
		}
		err = told.Err
	}
	if same(err, lost) {
		return true
	}
	for _, kind := range []error{ErrSuperseded, ErrSteppedDown} { // two values of one event
		if leaf(err) && errors.Is(err, kind) && errors.Is(lost, kind) {
			return true
		}
	}
	return leaf(err) && errors.Is(lost, err)
}

// endOf returns nil if err says no more than that ctx has ended, or names one of
// the other reasons for which a campaign ends in order, whatever text they are
// wrapped in. Else it returns err: an error that wraps another one besides is not
// dropped.
func endOf(ctx context.Context, err error, others ...error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	ends := append([]error{ctx.Err(), context.Cause(ctx), context.Canceled}, others...)
	if madeOf(err, ends) {
		return nil
	}
	return err
}

// madeOf reports whether everything that err wraps is one of the ends.
func madeOf(err error, ends []error) bool {
	for _, end := range ends {
		if same(err, end) {
			return true
		}
	}
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		for _, inner := range all {
			if !madeOf(inner, ends) {
				return false
			}
		}
		return len(all) > 0
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return madeOf(inner, ends)
		}
	}
	for _, end := range ends {
		if end != nil && errors.Is(err, end) {
			return true
		}
	}
	return false
}

// leaf reports whether err wraps nothing.
func leaf(err error) bool {
	switch e := err.(type) { //nolint:errorlint // what it wraps is what is asked
	case interface{ Unwrap() []error }:
		return false
	case interface{ Unwrap() error }:
		return e.Unwrap() == nil
	}
	return true
}

// same reports whether both are one value.
func same(a, b error) bool {
	return a != nil && b != nil && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b //nolint:errorlint // this one
}

// checkWork returns an error if the work is missing. A wrong name is left to be
// reported first.
func checkWork(op, name string, missing bool) error {
	if missing && checkName(name) == nil {
		return wrap(op, name, errNoWork)
	}
	return nil
}

var errNoWork = errors.New("the work is nil: hand in a function")
