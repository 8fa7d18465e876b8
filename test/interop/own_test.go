// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
)

// TestRestingLockIsNotTaken: a lock under a session has a beat that does not change, and so have a
// session that is closed and its locks. The other client, for which that is the sign of a dead
// holder, takes none of them: it fails, with an error of its own, and at once.
func TestRestingLockIsNotTaken(t *testing.T) {
	eachPeer(t, func(s *fixture) {
		s.play("table own")
		store := s.store()
		record := func(key string, state driver.State, session string) driver.Record {
			version := rand.Text()
			return driver.Record{
				Key: key, Version: version, Beat: version, Owner: "us", Lease: leaseTime / 2, State: state, Session: session,
			}
		}
		claim := func(next driver.Record) driver.Record {
			now, _, err := store.Claim(s.Context(), next)
			if err != nil {
				s.Fatal(err)
			}
			return now
		}
		swap := func(prev, next driver.Record) driver.Record {
			now, err := store.Swap(s.Context(), prev, next)
			if err != nil {
				s.Fatal(err)
			}
			return now
		}
		// One peer has begun to wait while the lock was held by a lease of its own.
		long := record("x", driver.Held, "")
		long.Lease = 10 * leaseTime
		plain := claim(long)
		s.play("them2 acquire x &\n them try x -> held")

		session := claim(record(driver.SessionPrefix+"s1", driver.Alive, ""))
		opened := claim(record(driver.SessionPrefix+"s2", driver.Alive, ""))
		closing := record(opened.Key, driver.Closed, "")
		closing.Token = opened.Token
		swap(opened, closing)
		lock := record("x", driver.Held, "s1")
		lock.Token, lock.Prev = plain.Token+1, plain.Term(driver.EndExpired)
		lock = swap(plain, lock)
		s.play("them2 join x -> other unread=session\n table keep x\n table keep " + opened.Key)
		// For longer than any lease that is about.
		for end := time.Now().Add(2 * leaseTime); time.Now().Before(end); wait.Rest(s.Context(), refresh) {
			beat := session
			beat.Version = rand.Text()
			beat.Beat = beat.Version
			session = swap(session, beat)
			s.play("table keep " + session.Key)
			for _, key := range []string{"x", session.Key, opened.Key} {
				for _, verb := range []string{"try", "acquire", "get"} {
					s.play(fmt.Sprintf("them %s %s -> other unread=session same", verb, key))
				}
			}
			s.play("[java] them list -> other unread=session")
		}
		// What is released is free for everybody.
		free := lock
		free.Version, free.State, free.Session, free.End = rand.Text(), driver.Released, "", driver.EndReleased
		swap(lock, free)
		s.play("them try x -> owner=them")
	})
}

// TestJavaListsTheTable: the Java client lists all items of a table, and fails at an item
// that does not look like a lock. Tenure's items must all look like one.
func TestJavaListsTheTable(t *testing.T) {
	t.Parallel()
	s := newFixture(t, peers.Java)
	s.play(`
		them open lease=20s heartbeat=0s
		us open lease=20s
		them acquire theirs
		us acquire ours history data=d
		us acquire ours-free
		us release ours-free
		us acquire ours-past history
		us release ours-past
		us acquire ours-past history                # two terms are in the history
		us release ours-past`)
	if past, err := s.actors["us"].History(t.Context(), "ours-past"); err != nil || len(past) == 0 {
		t.Fatalf("history: %v, %v", past, err)
	}
	if _, err := s.store().RaiseFence(t.Context(), "ours", s.tokens["ours"]); err != nil {
		t.Fatal(err)
	}
	s.play("them list -> theirs=them ours=us ours-free=us ours-past=us")
	// Or else it was not shown that they do no harm.
	listed := slices.Collect(maps.Keys(s.act(command{actor: "them", verb: "list"}).fields))
	for _, kind := range []string{"token", "fence", "history"} {
		own := func(name string) bool { return strings.HasPrefix(name, driver.OwnPrefix+kind+"/") }
		if !slices.ContainsFunc(listed, own) {
			t.Errorf("no %s item in the list: %v", kind, listed)
		}
	}
	// The other way round, ours show no items of that kind, and theirs as they are.
	seen := map[string]string{}
	for st, err := range s.actors["us"].Locks(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		seen[st.Name] = st.Owner
	}
	if len(seen) != 4 || seen["theirs"] != "them" {
		t.Errorf("Locks: %v", seen)
	}
	s.play(`
		them get ours -> present=true released=false
		them get theirs -> present=true released=false
		us release ours`)
}
