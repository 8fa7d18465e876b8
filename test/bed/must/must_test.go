// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package must_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tenurelock/tenure/test/bed/must"
)

// TestTry: the first step that fails is the last one; what panics by itself still does.
func TestTry(t *testing.T) {
	want, taken := errors.New("failed"), 0
	step := func(err error) { must.Do(err); taken++ }
	err := must.Try(func() {
		step(nil)
		must.AtOnce(t.Context(), 4, 1, func(_ context.Context, i int) { step([]error{nil, want, nil, nil}[i]) })
		step(nil)
	})
	if !errors.Is(err, want) || taken != 2 {
		t.Errorf("%v after %d steps, want %v after 2", err, taken, want)
	}
	defer func() {
		if p := recover(); p != "own" {
			t.Errorf("recovered %v", p)
		}
	}()
	_ = must.Try(func() { panic("own") })
}
