// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"strings"
	"testing"
)

// Shapes of schedules with clients of a lock service.
var (
	served = (*Config).Served
	// servedLong has time for much to come late.
	servedLong = func(c *Config) {
		c.Served()
		c.Length = 12 * c.Timing.Lease
	}
	// servedTwice has calls and claims that come twice.
	servedTwice = func(c *Config) {
		servedLong(c)
		c.Rough, c.Doubled = true, true
	}
	// servedHarm judges what comes of what clients do alone.
	servedHarm = func(c *Config) {
		servedLong(c)
		c.Harm = true
	}
)

// TestClients: holders behind replicas of a lock service, beside processes with the store.
// No two hold one lock, tokens rise, what has ended has no effect, an unused grant is freed
// and a request is told; and somebody has each lock in the end.
func TestClients(t *testing.T) {
	var sum Tally
	seeds := uint64(900)
	for seed := range seeds {
		shape := func(c *Config) {
			[...]func(*Config){served, servedLong, servedTwice}[seed%3](c)
			c.Faults = seed%8 > 0
			c.Labels, c.Cools = seed%16 == 7, seed%16 == 9
			c.Mixed = c.Mixed || seed%4 == 0
		}
		tally, err := RunSeed(seed, shape, nil)
		if err != nil {
			_, err = RunSeed(seed, shape, &Trace{})
			t.Fatalf("seed %d: %v", seed, err)
		}
		sum.Offered += tally.Offered
		sum.Taken += tally.Taken
		sum.Unused += tally.Unused
		sum.Replayed += tally.Replayed
		sum.Heeded += tally.Heeded
	}
	t.Logf("%d grants for clients, %d confirmed, %d freed unused; %d calls carried out again; %d clients asked to stop",
		sum.Offered, sum.Taken, sum.Unused, sum.Replayed, sum.Heeded)
	for what, n := range map[string]int{
		"confirmed grant": sum.Taken, "unused grant": sum.Unused, "call that is carried out again": sum.Replayed, "client that is asked": sum.Heeded,
	} {
		if n < int(seeds)/10 {
			t.Errorf("the schedules have hardly a %s any more: %d", what, n)
		}
	}
}

// TestReplicasWithOtherLeases: a heartbeat that is carried out by a replica with a shorter
// lease does not let others in before the client learns of it. It did: the record had the
// replica's lease from then on. `go test ./internal/protocol -run TestRelayKeepsTheLease`
// has it alone.
func TestReplicasWithOtherLeases(t *testing.T) {
	for _, seed := range []uint64{93, 262, 564, 754, 956, 993, 1470, 1507, 1856, 2095, 2370} {
		shape := func(c *Config) {
			servedLong(c)
			c.Mixed = true
		}
		if _, err := RunSeed(seed, shape, nil); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// wrongTest is a mistake of clients, replicas or proxies, and by which rule schedules of a
// shape fail with it.
type wrongTest struct {
	wrong  Wrong
	shape  func(*Config)
	within uint64
	want   string
}

func (tt wrongTest) find(t *testing.T) {
	wrong := func(c *Config) {
		tt.shape(c)
		c.Wrong = tt.wrong
	}
	found := map[string]int{}
	for seed := range tt.within {
		_, err := RunSeed(seed, wrong, nil)
		if err == nil {
			continue
		}
		v := err.(*Violation) //nolint:errorlint // it is never wrapped
		found[v.Rule]++
		if !strings.Contains(v.What, tt.want) {
			continue
		}
		t.Logf("found by seed %d: %s", seed, v.What)
		if _, err := RunSeed(seed, tt.shape, nil); err != nil {
			t.Errorf("the same schedule without the mistake: %v", err)
		}
		return
	}
	t.Errorf("not found in %d schedules; others: %v", tt.within, found)
}

// TestMistakesAroundTheService makes one deliberate mistake in clients, replicas or proxies
// at a time. Those that make two holders are found before there are two, and as two.
func TestMistakesAroundTheService(t *testing.T) {
	const late = "later than any applied write gives it"
	for _, tt := range []wrongTest{
		{CountedFromGrant, served, 50, late},
		{CountedFromGrant, servedHarm, 50, "both hold"},
		{CountedFromAnswer, served, 50, late},
		{CountedFromAnswer, servedHarm, 500, "both hold"},
		{CountedFromRepeat, served, 50, late},
		{CountedFromRepeat, servedHarm, 500, "both hold"},
		{AcquireRenews, served, 50, late},
		{AcquireRenews, servedHarm, 500, "both hold"},
		{AnsweredFromMemory, served, 50, "nobody has written that"},
		{AnsweredFromMemory, servedHarm, 50, "both hold"},
		{CachedByLock, served, 50, "nobody has written that"},
		{CachedByLock, servedHarm, 50, "both hold"},
		{ReleaseTakenBack, served, 500, "both hold"},
		{WaitOutlives, served, 50, "for a call that has ended"},
		{LateAnswerRevives, servedLong, 500, "passes its check again"},
		{LostFromMemory, served, 50, "is lost, and it is not"},
		{AskedUntold, served, 100, "is not told"},
	} {
		t.Run(tt.wrong.String(), tt.find)
	}
}

// TestWhatOtherRulesMakeHarmless: two mistakes that do no harm by themselves.
//
//   - A proxy that answers a repeated heartbeat as it answered the same call before says
//     what is so: each heartbeat has a beat that is new, and the client counts from before
//     its first sending. One that takes the heartbeats of a token for the same call makes
//     two holders: CachedByLock, above.
//   - A replica that waits on for a client which has hung up gets a lock that nobody uses.
//     The offer frees it after a third of a lease. So this is found by the rule that it
//     breaks alone: WaitOutlives, above.
func TestWhatOtherRulesMakeHarmless(t *testing.T) {
	cached := 0
	for _, tt := range []struct {
		wrong Wrong
		shape func(*Config)
	}{
		{CachedByCall, servedLong},
		{CachedByCall, servedTwice},
		{WaitOutlives, servedHarm},
	} {
		for seed := range uint64(200) {
			tally, err := RunSeed(seed, func(c *Config) {
				tt.shape(c)
				c.Wrong = tt.wrong
			}, nil)
			if err != nil {
				t.Fatalf("%s, seed %d: %v", tt.wrong, seed, err)
			}
			cached += tally.Cached
		}
	}
	if cached < 200 {
		t.Errorf("hardly a heartbeat is answered from a cache any more: %d", cached)
	}
}
