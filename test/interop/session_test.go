// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"crypto/rand"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// ours returns a record of ours, whose lease would run out soon.
func ours(key string, state driver.State, session string) driver.Record {
	version := rand.Text()
	return driver.Record{
		Key: key, Version: version, Beat: version, Owner: ourOwner, Lease: lease / 2, State: state, Session: session,
	}
}

// wantUnparsed expects the peer to fail at an item that rests.
func (s *scene) wantUnparsed(t *testing.T, what string, a wire.Answer) {
	t.Helper()
	want := map[peers.Kind]string{
		peers.Java:       `java.lang.NumberFormatException: For input string: "session"`,
		peers.Dynamolock: `time: invalid duration "session"`,
	}[s.kind]
	if got := a.Class + ": " + a.Message; !strings.Contains(got, want) {
		t.Errorf("%s: the peer fails with %q, want %q", what, got, want)
	}
}

// A lock under a session has a beat that stands still, and so have a session that
// is closed and its locks. The other client, for which that is the sign of a dead
// holder, takes none of them: it fails, with an error of its own, and at once.
func TestRestingLockIsNotTaken(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		store := s.store(t, &dynamostore.Options{Dialect: s.dialect})
		claim := func(rec driver.Record) driver.Record {
			t.Helper()
			now, _, err := store.Claim(t.Context(), rec)
			if err != nil {
				t.Fatal(err)
			}
			return now
		}
		swap := func(prev, next driver.Record) driver.Record {
			t.Helper()
			now, err := store.Swap(t.Context(), prev, next)
			if err != nil {
				t.Fatal(err)
			}
			return now
		}
		them := s.openPeer(t, peerOwner, lease, heartbeat)

		// One peer has begun to wait while the lock was held by a lease of its own.
		earlier := s.openPeer(t, "their-earlier", lease, heartbeat)
		long := ours(lockName, driver.Held, "")
		long.Lease = longLease
		plain := claim(long)
		call := earlier.Begin(waiting(lockName))
		mustRefuse(t, them, trying(lockName), wire.Held)

		session := claim(ours(driver.SessionPrefix+"s1", driver.Alive, ""))
		closed := claim(ours(driver.SessionPrefix+"s2", driver.Alive, ""))
		closing := ours(closed.Key, driver.Closed, "")
		closing.Token = closed.Token
		closed = swap(closed, closing)
		lock := ours(lockName, driver.Held, "s1")
		lock.Token, lock.Prev = plain.Token+1, plain.Tenure(driver.EndExpired)
		lock = swap(plain, lock)

		a, err := result(t, call)
		if err == nil {
			t.Fatalf("the peer that waited has the lock: %+v", a.Lock)
		}
		s.wantUnparsed(t, "the acquire that waits", a)

		before := map[string]item{}
		for _, key := range []string{lockName, closed.Key} {
			before[key] = s.Row(t, key)
		}
		// For longer than any lease that is about.
		for end := time.Now().Add(2 * lease); time.Now().Before(end); wait.Rest(t.Context(), refresh) {
			beat := session
			beat.Version = rand.Text()
			beat.Beat = beat.Version
			session = swap(session, beat)
			for _, key := range []string{lockName, session.Key, closed.Key} {
				s.wantUnparsed(t, "an acquire that does not wait", mustRefuse(t, them, trying(key), wire.Other))
				s.wantUnparsed(t, "an acquire that waits", mustRefuse(t, them, waiting(key), wire.Other))
				s.wantUnparsed(t, "a look", mustRefuse(t, them, wire.Request{Command: wire.Get, Name: key}, wire.Other))
			}
			if s.kind == peers.Java {
				s.wantUnparsed(t, "a list", mustRefuse(t, them, wire.Request{Command: wire.List}, wire.Other))
			}
			for key, was := range before {
				if now := s.Row(t, key); !reflect.DeepEqual(now, was) {
					t.Fatalf("the peer changed the row of %q from\n%v to\n%v", key, was, now)
				}
			}
			if now := s.Row(t, session.Key); now.Text("recordVersionNumber") != session.Version {
				t.Fatalf("the peer changed the session to\n%v", now)
			}
		}

		// What is released is free for everybody.
		free := lock
		free.Version, free.State, free.Session, free.End = rand.Text(), driver.Released, "", driver.EndReleased
		swap(lock, free)
		if a := must(t, them, trying(lockName)); a.Owner != peerOwner {
			t.Errorf("after the release the lock is %+v", a.Lock)
		}
	})
}
