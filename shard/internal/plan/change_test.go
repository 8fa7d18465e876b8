// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/shard/internal/plan"
)

// While others are away, a leave or a return moves hardly more than the share of
// who leaves or returns.
func TestLeaveAmongVacancies(t *testing.T) {
	enginetest.MakeVerify(t)
	most := 0.0
	shares, excess := 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 11))
		in := plan.Input{Partitions: names(2_000), Members: members(20)}
		away := r.Perm(19)[:2+r.IntN(6)] // the last stays, or the chain is another
		before, after := in, in
		before.Members = leaving(in.Members, away[1:]...)
		after.Members = leaving(in.Members, away...)
		p := plan.Make(before)
		bounded(t, p)
		share := len(p.Of(away[0]))
		more := plan.Moves(p, plan.Make(after)).Moved - share
		most = max(most, float64(more)/float64(share))
		shares += share
		excess += more
	}
	t.Logf("2,000 partitions, 20 places, 2 to 7 vacant: %.2f%% more than the leaver's share moves, at most %.1f%%",
		100*float64(excess)/float64(shares), 100*most)
	if most > 0.15 {
		t.Errorf("%.1f%% more than the share moved", 100*most)
	}
}

// Any number may leave at once, and all be back.
func TestManyLeave(t *testing.T) {
	in := plan.Input{Partitions: names(2_000), Members: members(40)}
	full := plan.Make(in)
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 12))
		away := r.Perm(39)[:1+r.IntN(38)]
		without := in
		without.Members = leaving(in.Members, away...)
		p := plan.Make(without)
		sound(t, without, p)
		bounded(t, p)
		theirs := 0
		for _, place := range away {
			theirs += len(full.Of(place))
		}
		if d := plan.Moves(full, p); d.Moved != theirs {
			t.Fatalf("seed %d: %d moved, the leavers had %d", seed, d.Moved, theirs)
		}
	}
}

// With zones and weights a leave, too, moves little more than what the leaver had.
func TestLeaveWithZones(t *testing.T) {
	in := plan.Input{Partitions: names(2_000), Members: members(21), Zones: map[string]string{}}
	for i := range in.Members {
		in.Members[i].Zone = string(rune('a' + i%3))
		in.Members[i].Weight = float64(1 + i%2)
	}
	for i, name := range in.Partitions {
		in.Zones[name] = []string{"a", "b", "c", ""}[i%4]
	}
	full := plan.Make(in)
	worst, sum, shares := 0, 0, 0
	for gone := range 20 {
		without := in
		without.Members = leaving(in.Members, gone)
		more := plan.Moves(full, plan.Make(without)).Moved - len(full.Of(gone))
		worst, sum, shares = max(worst, more), sum+more, shares+len(full.Of(gone))
	}
	t.Logf("2,000 partitions, 21 members, 3 zones, 2 weights: on average %.1f%% of a share more move, at most %d partitions",
		100*float64(sum)/float64(shares), worst)
	if sum*4 > shares {
		t.Errorf("%d moved beside the leavers' %d", sum, shares)
	}
}

// Partitions that are added or removed move few others: see [plan.Input.Base].
func TestResize(t *testing.T) {
	all := names(2_100)
	few := slices.Concat(all[:700], all[800:]) // 100 of 2,100 removed
	for _, c := range []struct {
		what     string
		from, to plan.Input
		most     int
	}{
		{"100 more of 2,000", plan.Input{Partitions: all[:2_000]}, plan.Input{Partitions: all}, 200},
		{"one more of 2,000", plan.Input{Partitions: all[:2_000]}, plan.Input{Partitions: all[:2_001]}, 80},
		{"100 fewer of 2,100", plan.Input{Partitions: all}, plan.Input{Partitions: few}, 200},
		{"100 more, with a base", plan.Input{Partitions: all[:2_000]}, plan.Input{Partitions: all, Base: all[:2_000]}, 0},
		{"one more, with a base", plan.Input{Partitions: all[:2_000]}, plan.Input{Partitions: all[:2_001], Base: all[:2_000]}, 0},
		{"100 fewer, with a base", plan.Input{Partitions: all}, plan.Input{Partitions: few, Base: all}, 40},
	} {
		c.from.Members, c.to.Members = members(20), members(20)
		from, to := plan.Make(c.from), plan.Make(c.to)
		sound(t, c.to, to)
		d := plan.Moves(from, to)
		t.Logf("%s: %d others move, the fullest has %.3f of its share", c.what, d.Moved, to.Balance().Worst)
		if d.Moved > c.most {
			t.Errorf("%s: %d others move, more than %d", c.what, d.Moved, c.most)
		}
		if d.Added != max(0, len(c.to.Partitions)-len(c.from.Partitions)) {
			t.Errorf("%s: %d added", c.what, d.Added)
		}
	}
}

// What a former plan knows changes nothing.
func TestRemake(t *testing.T) {
	enginetest.MakeVerify(t)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 13))
		in := random(r)
		p := plan.Make(in)
		for range 6 {
			switch r.IntN(6) {
			case 0:
				in = random(r)
			case 1:
				in.Base = names(r.IntN(600))
			case 2:
				in.Zones = random(r).Zones
			case 3:
				in.Partitions = names(r.IntN(600))
			case 4:
				in.Base = nil
			}
			if len(in.Members) > 0 {
				in.Members = slices.Clone(in.Members)
				m := &in.Members[r.IntN(len(in.Members))]
				switch r.IntN(4) {
				case 0:
					m.Leaving = !m.Leaving
				case 1:
					m.Weight++
				case 2:
					m.Max = r.IntN(50)
				case 3:
					m.Zone = "d"
				}
			}
			p = p.Remake(in)
			if d := plan.Moves(p, plan.Make(in)); d.Moved != 0 {
				t.Fatalf("seed %d: remade it is another: %+v", seed, d)
			}
			sound(t, in, p)
		}
	}
}

// The hashes, and the order in which they are used, are part of what
// workers agree on: this plan must never change without a version in the membership.
func TestFrozen(t *testing.T) {
	in := plan.Input{Partitions: names(24), Members: leaving(members(7), 2, 5)}
	in.Members[3].Weight = 2.5
	p := plan.Make(in)
	var got []int
	for i := range in.Partitions {
		got = append(got, p.Owner(i))
	}
	want := []int{3, 1, 6, 6, 3, 3, 1, 6, 1, 0, 3, 6, 3, 1, 0, 3, 3, 4, 0, 0, 4, 3, 4, 4}
	if !slices.Equal(got, want) {
		t.Errorf("the plan is %v, and was %v", got, want)
	}
}
