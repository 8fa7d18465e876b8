// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
)

// twoClocks are as after a step of the wall clock, which counts for a holder alone.
type twoClocks struct{}

func (twoClocks) Holder() time.Duration    { return time.Hour }
func (twoClocks) Contender() time.Duration { return time.Minute }

// Elapsed is what has passed for certain.
func TestElapsedIsTheContendersClock(t *testing.T) {
	c := mustNew(t, memstore.New(), &tenure.Options{Clock: twoClocks{}})
	if got := c.Elapsed(); got != time.Minute {
		t.Errorf("%v", got)
	}
	_ = c.Close(t.Context())
	if got := c.Elapsed(); got != time.Minute {
		t.Errorf("after Close: %v", got)
	}
}
