// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tenurelock/tenure"
)

func TestRollRoundTrip(t *testing.T) {
	r := membership{Format: membershipFormat, Epoch: 7, Revision: 3, Members: []member{
		{Place: 0, Session: "s1", Owner: "a <&> b", Weight: 1.5, Zone: "z", Max: 4},
		{Place: 1, Weight: 2},
		{Place: 2, Session: "s2", Owner: "b", Weight: 1, Leaving: true},
	}}
	got, ok, err := parseMembership(r.bytes())
	if !ok || err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	if m, in := got.sessions()["s2"]; !in || m.active() || m.vacant() {
		t.Errorf("%+v", m)
	}
	if len(got.sessions()) != 2 {
		t.Error("a vacant place counts as a member")
	}
	if _, ok, err := parseMembership(nil); ok || err != nil {
		t.Errorf("none: %v, %v", ok, err)
	}
	for _, bad := range []string{"x", "{}", `{"format":2,"epoch":1}`, `{"format":1,"epoch":0}`, `{"format":1,"epoch":1} x`, `{"format":1,"epoch":1,"members":[{"place":2},{"place":1}]}`} {
		if _, ok, err := parseMembership([]byte(bad)); ok || !errors.Is(err, tenure.ErrUnreadable) {
			t.Errorf("%s: %v, %v", bad, ok, err)
		}
	}
}

// The largest membership fits into a record.
func TestLargestRoll(t *testing.T) {
	r := membership{Format: membershipFormat, Epoch: 1 << 63, Revision: 1 << 63}
	for i := range maxPlaces {
		r.Members = append(r.Members, member{
			Place: i, Session: strings.Repeat("s", 64), Owner: strings.Repeat("\"", maxOwnerShown),
			Weight: 123456.789, Zone: strings.Repeat("z", maxZoneLen), Max: MaxPartitions, Leaving: true,
		})
	}
	full := len(r.bytes())
	if full > maxDataLen {
		t.Errorf("a membership of %d places has %d bytes", maxPlaces, full)
	}
	got, ok, err := parseMembership(r.bytes())
	if !ok || err != nil || len(got.Members) != maxPlaces {
		t.Errorf("%v, %v", ok, err)
	}
}

func TestFillUp(t *testing.T) {
	before := []member{{Place: 0, Session: "a", Weight: 3, Zone: "x"}, {Place: 1, Session: "b", Weight: 1}, {Place: 3, Session: "c", Weight: 1}}
	got := fillUp([]member{{Place: 1, Session: "b", Weight: 1}, {Place: 3, Session: "c", Weight: 1}}, before)
	want := []member{{Place: 0, Weight: 3, Zone: "x"}, before[1], {Place: 2, Weight: 1}, before[2]}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	// The weight of who was there last stays while the place is vacant.
	if again := fillUp([]member{before[1]}, got); again[0] != want[0] || len(again) != 2 {
		t.Errorf("%+v", again)
	}
	if fillUp(nil, before) != nil {
		t.Error("the group has no workers, but it has places")
	}
}

func TestSpec(t *testing.T) {
	names, _ := newSpec(0, []string{"b", "a"}, nil)
	count, _ := newSpec(3, nil, nil)
	for _, s := range []spec{names, count} {
		s.Revision = 9
		got, ok, err := parseSpec(s.bytes())
		if !ok || err != nil || !got.same(s) || got.Revision != 9 {
			t.Errorf("%+v: %+v, %v, %v", s, got, ok, err)
		}
	}
	if !slices.Equal(count.ids(), []string{"0", "1", "2"}) || names.len() != 2 || count.len() != 3 {
		t.Error(count.ids(), names.len(), count.len())
	}
	for _, bad := range []string{"x", "{}", `{"revision":1}`, `{"revision":0,"partitions":1}`, `{"revision":1,"partitions":-1}`, `{"revision":1,"partitions":1,"names":["x"]}`, `{"revision":1,"names":["x","x"]}`, `{"revision":1,"partitions":1,"base":-1}`, `{"revision":1,"partitions":1,"base":9999999}`} {
		if _, ok, err := parseSpec([]byte(bad)); ok || !errors.Is(err, tenure.ErrUnreadable) {
			t.Errorf("%s: %v, %v", bad, ok, err)
		}
	}
	long := make([]string, 2000)
	for i := range long {
		long[i] = strings.Repeat("x", 200) + strconv.Itoa(i)
	}
	if _, err := newSpec(0, long, nil); err == nil {
		t.Error("names are taken that do not fit into a record")
	}
}

// A few partitions more or less keep the base of the plan; many start a new one.
func TestBase(t *testing.T) {
	number := func(n int) spec { return spec{Count: n} }
	s := number(110).after(number(100))
	if len(s.base()) != 100 {
		t.Errorf("a base of %d", len(s.base()))
	}
	if s = number(120).after(s); len(s.base()) != 100 {
		t.Errorf("a base of %d", len(s.base()))
	}
	if back := number(100).after(s); back.base() != nil {
		t.Errorf("back at its base, it has one of %d", len(back.base()))
	}
	if s = number(130).after(s); s.base() != nil {
		t.Errorf("a base of %d of 130", len(s.base()))
	}
	letters := spec{Names: []string{"a", "b", "c", "d", "e", "f", "g", "h"}}
	if s = (spec{Names: letters.Names[:7]}).after(letters); !slices.Equal(s.base(), letters.Names) {
		t.Errorf("a base of %v", s.base())
	}
	if s = (spec{Names: []string{"x"}}).after(letters); s.base() != nil {
		t.Errorf("a base of %v", s.base())
	}
}

func TestProfile(t *testing.T) {
	p := memberInfo{Weight: 2, Zone: "z", Max: 3, Leaving: true, Address: "10.0.0.1:80"}
	if got, ok := parseMemberInfo(p.bytes()); !ok || got != p {
		t.Errorf("%+v, %v", got, ok)
	}
	for _, bad := range []string{"", "x", "{}", `{"weight":-1}`, `{"weight":1,"max":-1}`, `{"weight":1,"zone":"` + strings.Repeat("z", 65) + `"}`} {
		if _, ok := parseMemberInfo([]byte(bad)); ok {
			t.Errorf("%s is taken for a worker", bad)
		}
	}
	if o := parseCoordinatorState([]byte("x")); o.Places != minPlaces || o.Epoch != 0 {
		t.Errorf("%+v", o)
	}
	if o := parseCoordinatorState(coordinatorState{Epoch: 3, Places: 1 << 30}.bytes()); o.Places != maxPlaces || o.Epoch != 3 {
		t.Errorf("%+v", o)
	}
}

// TestOutdated: a partition that was handed out is not looked at for a while, unless a
// later plan gives it back.
func TestOutdated(t *testing.T) {
	at := func(place int, leaving bool) member {
		return member{Place: place, Session: fmt.Sprint("s", place), Owner: fmt.Sprint("w", place), Weight: 1, Leaving: leaving}
	}
	both := newView(membership{Format: membershipFormat, Epoch: 1, Members: []member{at(0, false), at(1, false)}}, spec{Count: 8}, nil)
	alone := newView(membership{Format: membershipFormat, Epoch: 2, Members: []member{at(0, false), at(1, true)}}, spec{Count: 8}, both)
	left := newView(membership{Format: membershipFormat, Epoch: 3, Members: []member{at(0, false)}}, spec{Count: 8}, alone)
	theirs, mine := "", ""
	for _, id := range both.ids {
		if both.gives(id, "s1") {
			theirs = id
		} else {
			mine = id
		}
	}
	for _, tc := range []struct {
		name        string
		id          string
		k           observation
		before, now *view
		want        bool
	}{
		{"given back", theirs, observation{}, both, alone, true},
		{"not given", theirs, observation{}, alone, both, false},
		{"mine before as well", mine, observation{}, both, alone, false},
		{"held by a leaving worker", theirs, observation{session: "s1"}, both, alone, false},
		{"held by a worker that has left", theirs, observation{session: "s1"}, alone, left, true},
	} {
		if got := tc.k.outdated(tc.id, "s0", tc.before, tc.now); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
