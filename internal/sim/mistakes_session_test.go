// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package sim

import (
	"testing"

	"github.com/tenurelock/tenure/internal/protocol"
)

// TestMistakesWithSessions is TestMistakesInTheCore for the rules of sessions.
func TestMistakesWithSessions(t *testing.T) {
	sessions := func(c *Config) { c.Sessions = true }
	rough := func(c *Config) { c.Sessions, c.Rough = true, true }
	long := func(c *Config) { c.Sessions, c.Length = true, 12*c.Timing.Lease }
	for _, tt := range []mistakeTest{
		{protocol.TakenBeforeClosed, sessions, 500, "which is alive"},
		{protocol.SessionAgain, long, 2000, "which is alive"},
		{protocol.DeadlineOfItsOwn, sessions, 500, "later than any applied write gives it"},
		{protocol.OnlyDeadline, sessions, 2000, "both hold"},
		{protocol.Unconfirmed, sessions, 500, "both hold"},
		{protocol.AbsentFromStale, sessions, 500, "which is alive"},
		{protocol.OpenOverClosed, rough, 500, "changes a closed session"},
		{protocol.GhostsNeverAsked, rough, 2000, "nobody holds"},
		{protocol.ClosedWhileWorking, sessions, 500, "while work goes on"},
	} {
		t.Run(tt.mistake.String(), tt.find)
	}
}
