// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/clock"
)

const (
	// pollPeriod is the time between two checks of a condition.
	pollPeriod = 10 * time.Millisecond

	// patience is the limit of a wait, in longest lease durations. A failover takes
	// slightly more than one.
	patience = 20
)

// Leader is the holder of a lock, or the leader of an election.
type Leader struct {
	// Client is nil if the record names an owner that is no client of the world.
	*Client
	// Lock is the name of the lock or of the election.
	Lock string
	// Token is the fencing token.
	Token uint64
}

// Leader waits until the lock or the election of that name has a holder, and returns
// it. It goes by the record, as all clients do: a leader that was killed, paused or
// partitioned is in the record until another one has taken over. To wait for the
// successor, use [World.LeaderAfter].
//
// The test fails if no client leads within 20 lease durations. In a bubble Leader
// returns when everything else has come to rest: the work of the leader has begun.
func (w *World) Leader(lock string) Leader {
	w.t.Helper()
	return w.leader(lock, 0, "there is a holder of")
}

// LeaderAfter waits until the lock has another holder, under a higher token, as
// [World.Leader] does, and returns it. It may be the same client, if that was elected again.
func (w *World) LeaderAfter(former Leader) Leader {
	w.t.Helper()
	return w.leader(former.Lock, former.Token, fmt.Sprintf("token %d has a successor on", former.Token))
}

func (w *World) leader(lock string, after uint64, what string) Leader {
	w.t.Helper()
	var rec driver.Record
	w.wait(func() bool {
		rec = w.record(lock)
		return rec.State == driver.Held && rec.Token > after
	}, func() string { return fmt.Sprintf("%s %q: %s", what, lock, describe(rec)) })

	l := Leader{Lock: lock, Token: rec.Token}
	for _, c := range w.all() {
		if c.Options().Owner == rec.Owner {
			l.Client = c
		}
	}
	return l
}

// Held reports whether the record of the lock says that it is held, without waiting.
// The record of a dead holder says so, too, until another client has taken over.
func (w *World) Held(lock string) bool {
	w.t.Helper()
	w.settle()
	return w.record(lock).State == driver.Held
}

// Until waits until the condition holds, and asks for it each 10 ms; in a bubble, when
// everything else has come to rest. If it does not hold within 20 lease durations, the
// test fails, with a message that names it as what.
func (w *World) Until(what string, condition func() bool) {
	w.t.Helper()
	w.wait(condition, func() string { return what })
}

// wait is Until with a message that is made when it is needed.
func (w *World) wait(condition func() bool, what func() string) {
	w.t.Helper()
	limit := patience * w.longestLease()
	for begun := time.Now(); ; <-time.After(pollPeriod) {
		w.settle()
		if condition() {
			return
		}
		if time.Since(begun) > limit {
			w.t.Fatalf("tenuretest: waited for %v until %s; %s", limit, what(), w.describe())
		}
	}
}

// settle waits, in a bubble, until all other goroutines wait.
func (w *World) settle() {
	if clock.InBubble() {
		synctest.Wait()
	}
}

func (w *World) longestLease() time.Duration {
	longest := time.Duration(0)
	for _, c := range w.all() {
		longest = max(longest, c.Options().LeaseDuration)
	}
	return longest
}

// record returns the record of the lock, or a zero record if the lock has none. A lock
// under a session that has ended is released.
func (w *World) record(lock string) driver.Record {
	w.t.Helper()
	rec := w.Record(lock)
	if rec.Session != "" && w.Record(driver.SessionKey(rec.Session)).State != driver.Alive {
		rec.State = driver.Released
	}
	return rec
}

// Record returns the record of that key as the store has it, past all faults, or a record
// without a Key if the store has none.
func (w *World) Record(key string) driver.Record {
	w.t.Helper()
	rec, err := w.store.Get(context.WithoutCancel(w.t.Context()), key, driver.Strong)
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		w.t.Fatalf("tenuretest: record of %q: %v", key, err)
	}
	return rec
}

// MustRecord is Record, and ends the test if the store has no such record.
func (w *World) MustRecord(key string) driver.Record {
	w.t.Helper()
	rec := w.Record(key)
	if rec.Key == "" {
		w.t.Fatalf("tenuretest: there is no record of %q", key)
	}
	return rec
}

// describe describes a record.
func describe(rec driver.Record) string {
	if rec.Key == "" {
		return "it was never held"
	}
	return fmt.Sprintf("it is %s, token %d, of %q", rec.State, rec.Token, rec.Owner)
}

// describe describes the clients.
func (w *World) describe() string {
	var states []string
	for _, c := range w.all() {
		states = append(states, fmt.Sprintf("%q is %s", c.Options().Owner, c.state()))
	}
	if len(states) == 0 {
		return "the world has no clients: make them with World.Client"
	}
	return strings.Join(states, ", ")
}
