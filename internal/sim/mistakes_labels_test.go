// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package sim

import (
	"testing"

	"github.com/tenurelock/tenure/internal/protocol"
)

// TestMistakesWithLabels is TestMistakesInTheCore for hand-overs to a label.
func TestMistakesWithLabels(t *testing.T) {
	for _, tt := range []mistakeTest{
		{protocol.OtherLabelTakes, labelled, 200, "is early: reserved"},
		{protocol.NoLabelTakes, labelled, 200, "is early: reserved"},
		{protocol.LabelKeptForEver, labelled, 500, "nobody holds"},
	} {
		t.Run(tt.mistake.String(), tt.find)
	}
}
