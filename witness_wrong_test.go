// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package tenure_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/protocol"
)

// TestNoWitnessIsFound makes the mistake that the tests of incidents are there to
// find: one bad answer ends a candidate for good.
func TestNoWitnessIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer protocol.Make(protocol.NoWitness)()
		_, err := leadsAfter(t, newWorld(t), 1, 5*time.Second, badAnswers["not applied"])
		want(t, err, tenure.ErrPermanent)
	})
}
