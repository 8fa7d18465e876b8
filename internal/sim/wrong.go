// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Wrong is a deliberate mistake around the machines. The checks of the world
// must find each.
type Wrong int

// The mistakes.
const (
	Nothing            Wrong = iota
	SentAtReply              // a granted lease counts from the reply, not from before the call
	SeenAtRequest            // a contender counts from before its call, not from after the reply
	VersionAlone             // the store's Swap compares the version, not the token
	UnchangedRelease         // the store keeps the version when a record is released
	RevivingHeartbeats       // the store lets a heartbeat revive what its sender released
	DriftAboveBound          // clocks run wrong by more than the bound
	StoppingClock            // the holder's clock stands still while its process is paused
	SharedAttempts           // a later acquire gets the grant that an earlier one left behind
	WorkAfterRelease         // the work goes on acting after its lease was released

	RequestBeats         // a request changes the beat
	RequestIsLife        // a contender takes a request for a sign of life
	RequestIsLoss        // a holder takes a request for a loss
	RequestRenews        // a holder that finds a request counts its lease from there
	RequestOnAnything    // a request is written into a record that nobody holds
	RequestOverwrites    // a second request replaces the first
	RequestDropped       // a heartbeat wipes the request from the record
	HandOverDropped      // a holder that is to hand over releases
	HandOverToOther      // a holder hands over to somebody else
	ReservedTaken        // a contender takes at once what is reserved for another
	ReservedTakenFromAll // a contender takes at once what is reserved for nobody
	RevokeAtOnce         // an operator revokes by releasing
	FreeAtOnce           // an operator frees what shows life
	QuitBeats            // a holder that quits renews the beat
	QuitIsLife           // a contender takes a quit for a sign of life
	EndForgotten         // a holder writes that it has released, whatever ended it
	PrevForgotten        // a successor writes that its predecessor expired, whatever ended it
	AskerForgotten       // a holder does not write the name of the asker

	OwnLease       // a contender waits for its own lease duration, not for the holder's
	UnlessIgnored  // an acquire that is to give up at a sign of life waits on
	LifeInvented   // such an acquire takes any look for a sign of life
	OwnHolderTaken // a contender takes the lock from a lease of its own process
	NextLife       // after a deletion the store compares the token alone
	HoldsByClient  // a lease with a timing of its own is counted by that of its client
	ClaimsByClient // an acquire with a timing of its own writes the lease of its client
	TiedByClient   // a lock under a session with a timing of its own is held by that of its client

	CountedFromGrant   // a client acts from the grant on, and counts from there
	CountedFromAnswer  // a client counts a heartbeat from its answer
	CountedFromRepeat  // a client counts a heartbeat from the latest sending
	AcquireRenews      // a repeated acquire is answered with the same grant, and counts
	AnsweredFromMemory // a replica confirms a heartbeat by what it saw last
	LostFromMemory     // a replica tells by what it saw last that a tenure is over
	AskedUntold        // a replica does not tell what the holder is asked
	CachedByLock       // a proxy answers a heartbeat as it answered another of the same token
	CachedByCall       // a proxy answers a repeated heartbeat as it answered the same call before
	ReleaseTakenBack   // a client acts on when a proxy has answered its release by an error
	WaitOutlives       // a replica waits on for a client that has hung up
	LateAnswerRevives  // a client that has expired acts again when an answer comes

	FreedByOwner     // a guardian knows the dead holder's record by owner and token
	FreedByVersion   // a guardian knows it by the version of its grant
	FreedByProcess   // the leases of a process have one id
	FreedEarly       // a guardian frees the lock before the family is dead
	FreedAtOnce      // a guardian leaves the last requests of the dead no time
	FreedVersionKept // a guardian keeps the version
	FreedReleased    // a guardian writes upon what is released
	FreedReserved    // a guardian writes upon what is reserved
	FreedByOneLook   // a guardian gives up at the first conflict
	ToldLate         // a guardian is told of the lease when the work has begun
)

func (l Wrong) String() string {
	return [...]string{
		"nothing", "lease counted from the reply", "contender counts from its request", "swap compares the version alone",
		"release keeps the version", "heartbeats revive released records", "drift above the bound",
		"clock stops in a pause", "attempts shared between acquires", "work acts after release",
		"request changes the beat", "request taken for life", "request taken for loss", "request renews the lease",
		"request on a record that is not held", "second request overwrites the first", "request wiped by a heartbeat",
		"hand-over dropped", "hand-over to another one", "reservation of another taken", "reservation for nobody taken",
		"revoke releases at once", "free of a living holder", "quit renews the beat", "quit taken for life",
		"end of a tenure forgotten", "end of the predecessor forgotten", "asker forgotten",
		"waits for its own lease duration", "sign of life ignored", "sign of life invented", "lock taken from a lease of the same process",
		"token alone after a deletion",
		"lease counted by the client's timing", "client's lease written for another one", "lock under a session held by the client's timing",
		"client counts from the grant", "client counts from the answer", "client counts from a repeated sending", "repeated acquire renews",
		"heartbeat answered from memory", "loss told from memory", "request not told", "heartbeat answered from the cache of another", "repeated heartbeat answered from a cache",
		"release taken back after an error", "wait outlives its connection", "expired client revived by a late answer",
		"guardian goes by owner and token", "guardian goes by the version", "id of the process", "guardian frees before the family is dead",
		"guardian frees without the grace", "guardian keeps the version", "guardian frees what is released", "guardian frees what is reserved", "guardian looks once", "guardian told late",
	}[l]
}

// miswrite makes the mistakes in what a machine sends.
func (l *lock) miswrite(m *machine, req *protocol.Call) *protocol.Call {
	if l.cfg.Wrong == Nothing {
		return req
	}
	changed := *req
	r := &changed
	r.Next = req.Next.Clone()
	next := &r.Next
	kept := next.State == driver.Reserved
	switch wrong := l.cfg.Wrong; {
	case wrong == FreedVersionKept && r.Kind == protocol.Bury:
		next.Version = r.Prev.Version
	case wrong == RequestBeats && r.Kind == protocol.Ask, wrong == QuitBeats && r.Kind == protocol.Quit:
		next.Beat = next.Version
	case wrong == RequestOnAnything && r.Kind == protocol.Ask:
		next.State = l.store.rec.State
	case wrong == RequestDropped && r.Kind == protocol.Heartbeat:
		next.Requests = nil
	case wrong == HandOverDropped && r.Kind == protocol.Release && kept:
		*next = r.Prev.Clone()
		next.Version, next.State, next.Requests = req.Next.Version, driver.Released, nil
		next.End, next.Asked = driver.EndSteppedDown, req.Next.Prev.Asked
	case wrong == HandOverToOther && r.Kind == protocol.Release && kept:
		next.Owner = m.p.name
	case wrong == ClaimsByClient && m.own != nil && (r.Kind == protocol.Claim || r.Kind == protocol.Takeover):
		next.Lease = m.p.t.Lease
	case wrong == RevokeAtOnce && r.Kind == protocol.Free && kept:
		*next = r.Prev.Clone()
		next.Version, next.State, next.Requests = req.Next.Version, driver.Released, nil
		next.End, next.Asked = driver.EndRevoked, req.Next.Prev.Asked
	case wrong == FreeAtOnce && r.Kind == protocol.Ask && m.want.Kind == driver.StepDown:
		r.Kind = protocol.Free
		next.State, next.End, next.Asked, next.Requests = driver.Released, driver.EndReleasedDead, &next.Requests[0], nil
	case wrong == EndForgotten && r.Kind == protocol.Release && !kept:
		next.End = driver.EndReleased
	case wrong == PrevForgotten && r.Kind == protocol.Takeover:
		next.Prev.End = driver.EndExpired
	case wrong == AskerForgotten && r.Kind == protocol.Release && kept:
		next.Prev.Asked = nil
	}
	return r
}

// misread makes the mistakes in what a machine is told.
func (l *lock) misread(m *machine, res protocol.Result) protocol.Result {
	if l.cfg.Wrong == Nothing {
		return res
	}
	rec := &res.Record
	asked := rec.State == driver.Held && len(rec.Requests) > 0
	waits := m.h == nil && m.k == nil && m.u == nil
	if m.u != nil && rec.Key != "" {
		m.family.misled(l, rec)
		return res
	}
	switch wrong := l.cfg.Wrong; {
	case wrong == RequestIsLife && m.h == nil && asked, wrong == QuitIsLife && m.h == nil && rec.State == driver.Held && rec.End != "":
		rec.Beat = rec.Version
	case wrong == RequestIsLoss && m.h != nil && asked && res.Outcome == protocol.Conflicted:
		rec.Beat = "of somebody else"
	case wrong == RequestRenews && m.h != nil && asked && res.Outcome == protocol.Conflicted:
		res.Outcome = protocol.Applied
	case wrong == RequestOnAnything && m.k != nil && rec.State == driver.Released:
		rec.State = driver.Held
	case wrong == RequestOverwrites && m.k != nil:
		rec.Requests = nil
	case wrong == ReservedTaken && waits && rec.State == driver.Reserved && rec.Owner != "",
		wrong == ReservedTakenFromAll && waits && rec.State == driver.Reserved && rec.Owner == "":
		rec.Owner = m.p.name
	case wrong == OwnLease && waits && rec.State == driver.Held:
		rec.Lease = m.p.t.Lease
	case wrong == LifeInvented && waits && m.unless.is && rec.State == driver.Held && m.unless.first.Key != "":
		rec.Beat = rec.Version + " again"
	case wrong == OwnHolderTaken && waits && rec.State == driver.Held && rec.Owner == m.p.name:
		rec.State = driver.Reserved
	}
	return res
}
