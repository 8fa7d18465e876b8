// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package testutil has helpers for the tests of several packages.
package testutil

import (
	"errors"
	"testing"
	"time"
)

// Must takes the results of a call, and returns a function that returns the value, or ends
// the test with the error:
//
//	lease := testutil.Must(client.Acquire(ctx, "x", nil))(t)
func Must[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// Want fails the test unless err matches target; a nil target wants no error.
func Want(t testing.TB, err, target error) {
	t.Helper()
	if target == nil && err != nil {
		t.Errorf("got error %q, want none", err)
	}
	if target != nil && !errors.Is(err, target) {
		t.Errorf("got error %v, want an error that matches %q", err, target)
	}
}

// Within returns what f returns, and fails the test unless f took from least to most.
func Within(t testing.TB, least, most time.Duration, f func() error) error {
	t.Helper()
	begun := time.Now()
	err := f()
	if took := time.Since(begun); took < least || took > most {
		t.Errorf("took %v, want %v to %v", took, least, most)
	}
	return err
}

// Go runs f in a goroutine and returns a channel with its error.
func Go(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// Pending ends the test if done has a value already.
func Pending[T any](t testing.TB, what string, done <-chan T) {
	t.Helper()
	select {
	case v := <-done:
		t.Fatalf("%s returned already: %v", what, v)
	default:
	}
}
