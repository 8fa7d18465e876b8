// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package sim

import (
	"testing"

	"github.com/tenurelock/tenure/internal/protocol"
)

// TestMistakesOfTheBell makes those mistakes that a message can lead to.
func TestMistakesOfTheBell(t *testing.T) {
	for _, tt := range []mistakeTest{
		{protocol.WaitConfirms, rung, 20, "later than any applied write gives it"},
	} {
		t.Run(tt.mistake.String(), tt.find)
	}
}
