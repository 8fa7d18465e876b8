// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package must lets a program write a measurement as a list of steps: the first step that fails
// ends it, and [Try] returns the step's error.
package must

import (
	"context"

	"github.com/tenurelock/tenure/test/harness/wait"
)

// failure is the panic value of a failed step.
type failure struct{ error }

// Have returns the result of a step. Like the other steps it is for functions that [Try] runs.
func Have[T any](found T, err error) T {
	Do(err)
	return found
}

// Do ends the measurement if a step has failed.
func Do(err error) {
	if err != nil {
		panic(failure{err}) //nolint:forbidigo // Try recovers it
	}
}

// Try runs the steps of f in this goroutine, and returns the error of the step that failed.
func Try(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p) //nolint:forbidigo // it is not ours
		}
	}()
	f()
	return nil
}

// AtOnce runs many steps at once, each with its own steps: see [wait.AtOnce].
func AtOnce(ctx context.Context, n, limit int, f func(ctx context.Context, i int)) {
	Do(wait.AtOnce(ctx, n, limit, func(ctx context.Context, i int) error {
		return Try(func() { f(ctx, i) })
	}))
}
