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
	calm := func(c *Config) {
		c.Sessions, c.Faults, c.Requests = true, false, true
		c.Timing.Progress, c.Timing.StopTimeout = c.Timing.Lease/2, c.Timing.Lease/4
		c.Length = 12 * c.Timing.Lease
	}
	many := func(c *Config) {
		calm(c)
		c.Locks, c.Together = 2, false
	}
	asked := func(c *Config) { c.Sessions, c.Requests, c.Length = true, true, 12*c.Timing.Lease }
	swept := func(c *Config) { c.Sessions, c.Rough, c.Length = true, true, 12*c.Timing.Lease }
	long := func(c *Config) { c.Sessions, c.Length = true, 12*c.Timing.Lease }
	tried := func(c *Config) { c.Sessions, c.Doubled, c.Trying, c.Together = true, true, true, false }
	waited := func(c *Config) { c.Sessions, c.Doubled, c.Trying, c.Together = true, true, false, false }
	for _, tt := range []mistakeTest{
		{protocol.TakenBeforeClosed, sessions, 500, "which is alive"},
		{protocol.SessionAgain, long, 500, "a second time"},
		{protocol.DeadlineOfItsOwn, sessions, 500, "later than any applied write gives it"},
		{protocol.OnlyDeadline, sessions, 2000, "both hold"},
		{protocol.Unconfirmed, sessions, 500, "later than any applied write gives it"},
		{protocol.AbsentFromStale, sessions, 500, "which is alive"},
		{protocol.OpenOverClosed, rough, 500, "changes a closed session"},
		{protocol.GhostsNeverAsked, waited, 2000, "nobody holds"},
		{protocol.LeftBehind, many, 2000, "though its session is for"},
		{protocol.ClosedWhileWorking, sessions, 500, "while work goes on"},
		{protocol.NeverLapses, calm, 500, "keeps the lock from others"},
		{protocol.FormerToken, asked, 2000, "is meant for token"},
		{protocol.SweptAlive, sessions, 500, "deletes session"},
		{protocol.SweptAtOnce, swept, 2000, "a second time"},
		{protocol.DisclaimedUnasked, unheard, 1000, "both hold"},
		{protocol.RequestDropped, calm, 500, "not honoured"},
		{protocol.DisclaimedHeld, asked, 2000, "both hold"},
		{protocol.GhostsOfItsOwn, tried, 500, "nothing under it knows of"},
	} {
		t.Run(tt.mistake.String(), tt.find)
	}
}
