// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

// Mistake is a deliberate one in the machines, each of which breaks a rule of
// the protocol. The simulator must find every one, as the model checker finds
// the same ones in the model (see spec/). They are made under the build tag
// tenure_wrong alone: see Making.
type Mistake int

// The mistakes.
const (
	NoMistake           Mistake = iota
	LeaseFromReply              // a holder counts its lease from the reply, not from before the request
	NoDrift                     // a holder leaves no margin for clocks that run wrong
	ReleaseKeepsVersion         // a release does not rotate the version
	SeenFromRequest             // a contender counts from before its request, not from after the reply
	HeartbeatRestores           // a heartbeat restores what an operator has released
	TokenStays                  // a takeover does not raise the token
	VersionAlone                // the store compares the version of a swap, not the token
	RequestOnAnything           // a request is laid into, and honoured on, a record that is not held
	AdoptsVersions              // an acquire adopts what one before it has written and given up
)

func (m Mistake) String() string {
	return [...]string{
		"none", "lease counted from the reply", "no grace for drift", "release without rotating the version",
		"contender waits from before the reply", "heartbeat restores a released record", "token not raised at takeover",
		"swap conditional on the version alone", "request honoured on a record that is not held",
		"version of a given-up acquire adopted by a later one",
	}[m]
}
