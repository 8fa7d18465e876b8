// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tenurelock/tenure/shard/internal/plan"
)

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("shard-%06d", i)
	}
	return out
}

func members(n int) []plan.Member {
	out := make([]plan.Member, n)
	for i := range out {
		out[i].Place = i
	}
	return out
}

// leaving returns the members with some on their way out.
func leaving(all []plan.Member, places ...int) []plan.Member {
	all = slices.Clone(all)
	for i := range all {
		if slices.Contains(places, all[i].Place) {
			all[i].Leaving = true
		}
	}
	return all
}

// sound checks what holds for every plan: Owner, Of and Unassigned say the same,
// only members that take part have partitions, no member has more than it may, and no
// partition is without an owner while a member has room.
func sound(t *testing.T, in plan.Input, p *plan.Plan) {
	t.Helper()
	room := 0
	total := len(p.Unassigned())
	limit := map[int]int{}
	for _, m := range in.Members {
		if m.Leaving {
			continue
		}
		most := math.MaxInt32
		if m.Max > 0 {
			most = m.Max
		}
		limit[m.Place] = most
		have := p.Of(m.Place)
		total += len(have)
		if len(have) > most {
			t.Fatalf("place %d has %d partitions and may have %d", m.Place, len(have), most)
		}
		room += most - len(have)
		if !slices.IsSorted(have) {
			t.Fatalf("place %d: not in order: %v", m.Place, have)
		}
		for _, i := range have {
			if p.Owner(i) != m.Place {
				t.Fatalf("partition %d is among those of %d and owned by %d", i, m.Place, p.Owner(i))
			}
		}
	}
	if total != len(in.Partitions) {
		t.Fatalf("%d partitions have an owner that takes part, or none, of %d", total, len(in.Partitions))
	}
	if room > 0 && len(p.Unassigned()) > 0 {
		t.Fatalf("%d partitions have no owner, and there is room for %d", len(p.Unassigned()), room)
	}
	for i := range in.Partitions {
		if _, ok := limit[p.Owner(i)]; !ok && p.Owner(i) != plan.None {
			t.Fatalf("partition %d is owned by %d, who takes no part", i, p.Owner(i))
		}
	}
}

// random returns a membership with all that a membership can have.
func random(r *rand.Rand) plan.Input {
	in := plan.Input{Partitions: names(r.IntN(600)), Zones: map[string]string{}}
	zones := []string{"", "a", "b", "c"}
	flat, limits := r.IntN(2) == 0, r.IntN(2) == 0
	for place := range 1 + r.IntN(30) {
		if r.IntN(6) == 0 {
			continue
		}
		m := plan.Member{Place: place, Zone: zones[r.IntN(4)], Leaving: r.IntN(6) == 0}
		if !flat {
			m.Weight = 0.25 + 4*r.Float64()
		}
		if limits {
			m.Max = r.IntN(60)
		}
		in.Members = append(in.Members, m)
	}
	for _, name := range in.Partitions {
		in.Zones[name] = zones[r.IntN(4)]
	}
	if r.IntN(3) == 0 {
		in.Base = names(r.IntN(600))
	}
	return in
}

func TestSound(t *testing.T) {
	for seed := range uint64(400) {
		in := random(rand.New(rand.NewPCG(seed, 1)))
		sound(t, in, plan.Make(in))
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		in := random(r)
		p := plan.Make(in)
		other := in
		other.Partitions, other.Members = slices.Clone(in.Partitions), slices.Clone(in.Members)
		r.Shuffle(len(other.Partitions), func(i, j int) {
			other.Partitions[i], other.Partitions[j] = other.Partitions[j], other.Partitions[i]
		})
		r.Shuffle(len(other.Members), func(i, j int) {
			other.Members[i], other.Members[j] = other.Members[j], other.Members[i]
		})
		if d := plan.Moves(p, plan.Make(other)); d.Moved != 0 || d.Added != 0 || d.Removed != 0 {
			t.Fatalf("seed %d: in another order, another plan: %+v", seed, d)
		}
	}
}

func TestBalanceEqual(t *testing.T) {
	for _, partitions := range []int{0, 1, 7, 100, 1_999} {
		for n := 1; n <= 120; n += 1 + n/20 {
			in := plan.Input{Partitions: names(partitions), Members: members(n)}
			p := plan.Make(in)
			for _, l := range p.Balance().Loads {
				if l.Planned != partitions/n && l.Planned != (partitions+n-1)/n {
					t.Fatalf("%d partitions, %d members: place %d has %d", partitions, n, l.Place, l.Planned)
				}
			}
		}
	}
}

// Webster's method strays from the exact share by more than one only where one
// member is many times as heavy as others.
func TestBalanceWeighted(t *testing.T) {
	worst := 0.0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		in := plan.Input{Partitions: names(200 + r.IntN(2_000)), Members: members(1 + r.IntN(60))}
		for i := range in.Members {
			in.Members[i].Weight = 0.5 + 3.5*r.Float64()
		}
		for _, l := range plan.Make(in).Balance().Loads {
			worst = max(worst, math.Abs(float64(l.Planned)-l.Target))
		}
	}
	t.Logf("weights from 0.5 to 4: at most %.2f from the share", worst)
	if worst > 1 {
		t.Fatalf("a load is %.2f from its share", worst)
	}
}

// A new place takes its share, from all, and nothing else moves.
func TestJoin(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 4))
		n := 1 + r.IntN(60)
		in := plan.Input{Partitions: names(r.IntN(2_000)), Members: members(n + 1)}
		if seed%2 == 0 {
			for i := range in.Members {
				in.Members[i].Weight = 0.5 + 3.5*r.Float64()
			}
		}
		after := plan.Make(in)
		in.Members = in.Members[:n]
		before := plan.Make(in)
		d := plan.Moves(before, after)
		share := after.Balance().Loads[n]
		if d.Moved != len(after.Of(n)) {
			t.Fatalf("seed %d: %d moved, the newcomer has %d", seed, d.Moved, len(after.Of(n)))
		}
		if float64(d.Moved) > math.Ceil(share.Target) {
			t.Fatalf("seed %d: %d moved to a newcomer whose share is %.2f", seed, d.Moved, share.Target)
		}
		for _, c := range d.Changes {
			if c.Place != n && c.In > 0 {
				t.Fatalf("seed %d: %d moved to place %d, which was there before", seed, c.In, c.Place)
			}
		}
	}
}

// When a member leaves and no other is away, only its partitions move, and all others
// stay within a sixteenth of their share.
func TestLeave(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		n := 2 + r.IntN(60)
		in := plan.Input{Partitions: names(r.IntN(2_000)), Members: members(n)}
		if seed%2 == 0 {
			for i := range in.Members {
				in.Members[i].Weight = 0.5 + 3.5*r.Float64()
			}
		}
		before := plan.Make(in)
		gone := r.IntN(n)
		without := in
		without.Members = leaving(in.Members, gone)
		after := plan.Make(without)
		sound(t, without, after)
		if d := plan.Moves(before, after); d.Moved != len(before.Of(gone)) {
			t.Fatalf("seed %d: %d moved, the leaver had %d", seed, d.Moved, len(before.Of(gone)))
		}
		bounded(t, after)
		if d := plan.Moves(before, plan.Make(in)); d.Moved != 0 {
			t.Fatalf("seed %d: back, and the plan is another: %+v", seed, d)
		}
	}
}

// bounded checks the bound that holds with vacancies.
func bounded(t *testing.T, p *plan.Plan) {
	t.Helper()
	for _, l := range p.Balance().Loads {
		if float64(l.Planned) > math.Ceil(l.Target*17/16)+1e-6 {
			t.Fatalf("place %d has %d, its share is %.2f", l.Place, l.Planned, l.Target)
		}
	}
}

// A place that is given as leaving, an omitted place, and a place beyond the last taken
// one are the same.
func TestGoneIsLeaving(t *testing.T) {
	in := plan.Input{Partitions: names(1_000), Members: members(20)}
	for gone := range 20 {
		marked, absent := in, in
		marked.Members = leaving(in.Members, gone)
		absent.Members = slices.Delete(slices.Clone(in.Members), gone, gone+1)
		if d := plan.Moves(plan.Make(marked), plan.Make(absent)); d.Moved != 0 {
			t.Fatalf("place %d: leaving and gone differ: %+v", gone, d)
		}
	}
}

// Twenty workers with 2,000 partitions are restarted one after the other.
func TestRollingRestart(t *testing.T) {
	in := plan.Input{Partitions: names(2_000), Members: members(20)}
	start := plan.Make(in)
	moves := make([]int, 2_000)
	was := start
	step := func(all []plan.Member) {
		now := in
		now.Members = all
		is := plan.Make(now)
		for i := range moves {
			if was.Owner(i) != is.Owner(i) {
				moves[i]++
			}
		}
		was = is
	}
	for place := range 20 {
		step(leaving(in.Members, place))
		step(in.Members)
	}
	if most := slices.Max(moves); most != 2 {
		t.Errorf("a partition moved %d times, not twice", most)
	}
	if d := plan.Moves(start, was); d.Moved != 0 {
		t.Errorf("after all restarts the plan is another: %+v", d)
	}
}

func TestLimits(t *testing.T) {
	in := plan.Input{Partitions: names(1_000), Members: members(10)}
	for i := range in.Members {
		in.Members[i].Max = 90
	}
	p := plan.Make(in)
	sound(t, in, p)
	if len(p.Unassigned()) != 100 {
		t.Errorf("%d are without an owner, not 100", len(p.Unassigned()))
	}
	in.Members[3].Max = 0
	p = plan.Make(in)
	sound(t, in, p)
	if len(p.Of(3)) != 190 {
		t.Errorf("who has no limit has %d, not 190", len(p.Of(3)))
	}
	in.Members[4].Leaving = true
	sound(t, in, plan.Make(in))
	if p = plan.Make(plan.Input{Partitions: names(7)}); len(p.Unassigned()) != 7 {
		t.Errorf("without members, %v have no owner", p.Unassigned())
	}
}

// What cannot be is as good as not there, and of two in one place everybody takes
// the same.
func TestOddMembers(t *testing.T) {
	in := plan.Input{Partitions: names(50), Members: []plan.Member{
		{Place: -1},
		{Place: plan.MaxPlaces},
		{Place: 1, Weight: math.NaN()},
		{Place: 0, Weight: -3},
		{Place: 1, Zone: "a", Max: 2},
		{Place: 2, Leaving: true, Weight: math.Inf(1)},
	}}
	p := plan.Make(in)
	if !slices.Equal(p.Places(), []int{0, 1}) || len(p.Of(0)) != 25 || len(p.Of(1)) != 25 {
		t.Errorf("places %v with %d and %d", p.Places(), len(p.Of(0)), len(p.Of(1)))
	}
	slices.Reverse(in.Members)
	if d := plan.Moves(p, plan.Make(in)); d.Moved != 0 {
		t.Errorf("in another order %d move", d.Moved)
	}
}

// Partitions are worked on in their zone, as long as no member there has a quarter more
// than its share.
func TestZones(t *testing.T) {
	in := plan.Input{Partitions: names(3_000), Members: members(30), Zones: map[string]string{}}
	for i := range in.Members {
		in.Members[i].Zone = string(rune('a' + i%3))
	}
	for i, name := range in.Partitions {
		in.Zones[name] = string(rune('a' + i%3))
	}
	p := plan.Make(in)
	sound(t, in, p)
	b := p.Balance()
	t.Logf("as many partitions in each zone: %d of 3,000 abroad, the fullest has %.3f of its share", b.Abroad, b.Worst)
	if b.Abroad != 0 || b.Worst > 1.25 {
		t.Errorf("%d abroad, the fullest has %.3f", b.Abroad, b.Worst)
	}
	for _, name := range in.Partitions {
		in.Zones[name] = "a"
	}
	p = plan.Make(in)
	sound(t, in, p)
	b = p.Balance()
	t.Logf("all in one zone: %d of 3,000 abroad, the fullest has %.3f of its share", b.Abroad, b.Worst)
	if b.Abroad != 1_750 || b.Worst != 1.25 {
		t.Errorf("%d abroad, the fullest has %.3f: ten members of 100 should have a quarter more", b.Abroad, b.Worst)
	}
	in.Members = leaving(in.Members, 0, 3, 6, 9, 12, 15, 18, 21, 24, 27)
	if b = plan.Make(in).Balance(); b.Abroad != 0 || b.Unassigned != 0 {
		t.Errorf("no member in the zone, and %d are abroad, %d nowhere", b.Abroad, b.Unassigned)
	}
}
