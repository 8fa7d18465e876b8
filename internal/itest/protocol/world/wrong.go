// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

// Wrong is a deliberate mistake around the machines. The checks of the world
// must find each.
type Wrong int

// The mistakes.
const (
	Nothing            Wrong = iota
	SentAtReply              // a granted lease counts from the reply, not from before the request
	SeenAtRequest            // a contender counts from before its request, not from after the reply
	VersionAlone             // the store's Swap compares the version, not the token
	UnchangedRelease         // the store keeps the version when a record is released
	RevivingHeartbeats       // the store lets a heartbeat revive what its sender released
	DriftAboveBound          // clocks run wrong by more than the bound
	StoppingClock            // the holder's clock stands still while its process is paused
	SharedAttempts           // a later acquire gets the grant that an earlier one left behind
	WorkAfterRelease         // the work goes on acting after its lease was released
)

func (w Wrong) String() string {
	return [...]string{
		"nothing", "lease counted from the reply", "contender counts from its request", "swap compares the version alone",
		"release keeps the version", "heartbeats revive released records", "drift above the bound",
		"clock stops in a pause", "attempts shared between acquires", "work acts after release",
	}[w]
}
