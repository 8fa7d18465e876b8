// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package sim

import (
	"testing"

	"github.com/tenurelock/tenure/internal/protocol"
)

// TestMistakesWithSets is TestMistakesInTheCore for the rules of locks that are taken at
// once.
func TestMistakesWithSets(t *testing.T) {
	asked := func(c *Config) {
		c.Gathers()
		c.Requests, c.Length = true, 12*c.Timing.Lease
	}
	for _, tt := range []mistakeTest{
		{protocol.TakenAsNamed, (*Config).Gathers, 500, "a ring of those who wait"},
		{protocol.BegunUnchecked, asked, 500, "begins its work"},
		{protocol.PartKept, (*Config).Gathers, 500, "and keeps"},
		{protocol.OnlyEndedGivenBack, asked, 2000, "a ring of those who wait"},
		{protocol.WorkGoesOn, asked, 500, "works on"},
	} {
		t.Run(tt.mistake.String(), tt.find)
	}
}
