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
		{protocol.HeardIsALook, told, 20, "nobody holds"},
		{protocol.KnownPutsOff, told, 100, "nobody holds"},
		{protocol.DatedFromTheWait, told, 20, "is early"},
		{protocol.SilenceIsDeath, told, 50, "is early"},
		{protocol.HeardShowsLife, told, 100, "gives up as if somebody lived"},
	} {
		t.Run(tt.mistake.String(), tt.find)
	}
}
