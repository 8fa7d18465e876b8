// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package sim

import (
	"testing"

	"github.com/tenurelock/tenure/internal/protocol"
)

// TestMistakesOfTheService is TestMistakesInTheCore for what replicas do for clients.
func TestMistakesOfTheService(t *testing.T) {
	// Replicas whose leases differ.
	mixed := func(c *Config) {
		servedLong(c)
		c.Mixed = true
	}
	mixedHarm := func(c *Config) {
		servedHarm(c)
		c.Mixed = true
	}
	for _, tt := range []mistakeTest{
		{protocol.RelayRevives, served, 200, "changes a released record"},
		{protocol.RelayDropsRequest, served, 200, "changes more than it may"},
		{protocol.RelayAnyToken, servedTwice, 200, "and its client has token"},
		{protocol.RelayAnyBeat, served, 200, "was applied before"},
		{protocol.RelayShortens, mixed, 50, "changes more than it may"},
		{protocol.RelayShortens, mixedHarm, 500, "both hold"},
		{protocol.OfferStays, served, 50, "is unused for"},
	} {
		t.Run(tt.mistake.String(), tt.find)
	}
}
