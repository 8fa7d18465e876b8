// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

// Mistake is a deliberate mistake in the machines. Each breaks a rule of the protocol.
// The simulator must find every one, as the model checker finds the same ones in the
// model (see spec/). The machines make them only under the build tag tenure_wrong: see
// Making.
type Mistake int

// The mistakes.
const (
	NoMistake           Mistake = iota
	LeaseFromReply              // a holder counts its lease from the reply, not from before the call
	NoDrift                     // a holder leaves no margin for clocks that run wrong
	ReleaseKeepsVersion         // a release does not rotate the version
	SeenFromRequest             // a contender counts from before its call, not from after the reply
	HeartbeatRestores           // a heartbeat restores what an operator has released
	TokenStays                  // a takeover does not raise the token
	VersionAlone                // the store compares the version of a swap, not the token
	RequestOnAnything           // a request is written into, and honoured on, a record that is not held
	AdoptsVersions              // an acquire adopts what an earlier one has written and given up

	TakenBeforeClosed  // a lock is taken from a session that was not closed
	SessionAgain       // a process opens its sessions under one id
	DeadlineOfItsOwn   // a lock under a session counts from its own claim
	OnlyDeadline       // nobody asks whether the session is still open
	Unconfirmed        // locks are claimed under a session that is not known to be open
	AbsentFromStale    // a cheap read that finds no session is believed
	OpenOverClosed     // the store lets a session be opened where one was closed
	GhostsNeverAsked   // no contender asks a session whether it holds what is held in its name
	LeftBehind         // a session that is over leaves locks that have yet to follow it
	ClosedWhileWorking // a session is closed while work goes on under it
	NeverLapses        // a lock whose work outlasts its time stays held for as long as its session lives
	FormerToken        // a request is honoured by a later tenure than it was meant for
	SweptAlive         // a session is deleted that was never closed
	SweptAtOnce        // a closed session is deleted while late writes of it may come
	DisclaimedUnasked  // a session releases what is held in its name, and does not ask its acquires

	RequestDropped // a session answers a request that it has not handed on
	DisclaimedHeld // a session releases a lock that one of its leases holds
	GhostsOfItsOwn // an acquire takes what its own session holds unknowingly for another's lock

	NoWitness // one bad answer outweighs good answers of the same store

	GoesBack        // an old state that a late or cheap reply shows is believed
	EntryUnanswered // a history entry whose write was not answered counts as written

	AnotherLabelCounts // a candidate waits for the failures of another label
	ExpiredCounts      // a lease that expired counts as a failure of its label
	GoodEndForgotten   // a good end does not end the count of failures
	CoolsForEver       // a cool-down has no upper bound
	NeverCools         // a candidate knows of the failures of its label, and does not wait

	OtherLabelTakes  // what is reserved for a label is taken by those of other labels
	NoLabelTakes     // what is reserved for nobody is taken by those without a label
	LabelKeptForEver // what is reserved for a label is never free for others

	RelayRevives      // a dispatch of a holder elsewhere restores what is released, or reserved
	RelayDropsRequest // a dispatch drops the request in the record
	RelayAnyToken     // a dispatch counts for a tenure of another token
	RelayAnyBeat      // a dispatch counts whatever beat it follows
	RelayShortens     // a dispatch gives the record the lease of the process that carries it out
	OfferStays        // what was granted for a holder elsewhere that went away is never released

	RingsEarly     // a holder rings before its release is applied
	BellKept       // a released record keeps the bell of its former holder
	HintsUnbounded // every message gives a hint
	WaitConfirms   // a waiter's message confirms its holder's last write
	RingIsALook    // a message counts as a look at the record

	HeardIsALook     // a heartbeat that was heard of counts as a sign of life
	KnownPutsOff     // a heartbeat that is known already puts looks off, past the end of the count
	DatedFromTheWait // a heartbeat counts from before its holder told of it
	SilenceIsDeath   // a holder is dead when nothing was heard of it for a lease
	HeardShowsLife   // an acquire that gives up at a sign of life takes what is heard for one

	TakenAsNamed       // locks of a set are taken in the order in which the caller names them
	BegunUnchecked     // the work under a set begins though one of its locks has ended
	PartKept           // a set that cannot be had keeps those of its locks that it has
	OnlyEndedGivenBack // a lock of a set that has ended is taken again beside the others
	WorkGoesOn         // the work under a set goes on when one of its locks has ended
)

func (m Mistake) String() string {
	return [...]string{
		"none", "lease counted from the reply", "no grace for drift", "release without rotating the version",
		"contender waits from before the reply", "heartbeat restores a released record", "token not raised at takeover",
		"swap conditional on the version alone", "request honoured on a record that is not held",
		"version of a given-up acquire adopted by a later one",
		"lock taken before its session is closed", "session id used again", "lock under a session with a deadline of its own",
		"only the deadline asked after, not the session", "lock claimed before the session is confirmed",
		"absent believed from a stale read", "session opened over a closed one", "ghosts never asked after",
		"locks that have not followed their session left behind", "session closed while work goes on", "stopped lock kept alive by its session", "request of a former tenure honoured",
		"session deleted that was not closed", "session deleted at once", "lock disclaimed that an acquire has written",
		"request to a session dropped", "lock disclaimed that is held", "ghost of its own session waited for",
		"store given up for one bad answer",
		"older state believed", "history entry lost without a crash",
		"failures of another label counted", "expiry counted as a failure", "failures from before a good end counted", "cool-down without a bound", "failures counted and not waited for",
		"reservation for another label taken", "reservation for nobody taken for want of a label", "reservation for a label without an end",
		"released record revived by a beat from elsewhere", "request dropped by a beat from elsewhere", "token of a beat from elsewhere not compared",
		"beat from elsewhere without the one before it", "lease of a beat from elsewhere not that of its grant", "unused grant kept",
		"rung before the release is applied", "bell in a released record", "hints without a limit",
		"write confirmed by a waiter", "ring counted as a look",
		"heard beat counted as a sign of life", "looks put off by a known beat", "beat counted from before it was told", "silence counted as death",
		"heard beat taken for life",
		"locks of a set taken as they are named", "set begun without one of its locks", "part of a set kept", "lock of a set taken again beside the others",
		"work goes on under a part of its locks",
	}[m]
}
