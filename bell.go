// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"

	"github.com/tenurelock/tenure/internal/ringing"
	"github.com/tenurelock/tenure/internal/text"
)

// Bell is how the processes that use one store give each other hints. A holder rings
// those who wait for its lock when it is free. A process that asks a holder for something
// rings that holder when the request is in the record. They look, or send a heartbeat, at
// once, where they would have done so some time later.
//
// A hint changes no right. Messages may be late, lost, doubled or forged: they cost a
// bounded number of requests to the store. Where none arrive everything is as it is
// without a bell.
//
// The address is written into the records of all leases and sessions of the client,
// beside a secret that [New] makes. Whoever can read the store can read both. See
// docs/guides/bell.md.
//
// Package bell has one on UDP. One client alone receives from a bell, which stays the
// caller's to close, after [Client.Close]. No message has more than 512 bytes. All methods
// may be called concurrently.
type Bell interface {
	// Address returns where other processes reach this one, in the form that Send has for
	// it: 1 to 200 printable ASCII characters without a space. [New] calls it.
	Address() string
	// Send sends a message to an address that stood in a record. It does not wait for
	// the network. An address that it does not understand, or at which no process of
	// the fleet can be, is an error: whoever writes a record chooses it. Send must not
	// keep the message.
	Send(address string, message []byte) error
	// Receive returns the next message, or an error: when ctx ends, at the latest. After
	// another error it is called again, a little later.
	Receive(ctx context.Context) (message []byte, err error)
}

// checkBell returns an error if no record can hold the address of the bell.
func checkBell(b Bell) error {
	if b == nil || ringing.IsAddress(b.Address()) {
		return nil
	}
	return text.Invalid("address %.200q of the bell must have 1 to %d printable ASCII characters and no space",
		b.Address(), ringing.MaxAddress)
}
