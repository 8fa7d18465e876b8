// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package sim

import (
	"testing"

	"github.com/tenurelock/tenure/internal/protocol"
)

// TestMistakesInTheCoolDown is TestMistakesInTheCore for candidates with a cool-down.
func TestMistakesInTheCoolDown(t *testing.T) {
	for _, tt := range []mistakeTest{
		{protocol.AnotherLabelCounts, cooling, 200, "failures of its label, and there were"},
		{protocol.ExpiredCounts, cooling, 200, "failures of its label, and there were"},
		{protocol.GoodEndForgotten, cooling, 200, "failures of its label, and there were"},
		{protocol.CoolsForEver, cooling, 2000, "longer than it may"},
		{protocol.NeverCools, cooling, 200, "it was to wait for"},
	} {
		t.Run(tt.mistake.String(), tt.find)
	}
}
