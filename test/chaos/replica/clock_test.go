// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/clock"
)

func TestShiftedClock(t *testing.T) {
	const much = 10 * time.Minute
	for _, test := range []struct {
		name              string
		shift             Shift
		holder, contender time.Duration // by how much they are ahead of real time then
	}{
		{"nothing", Shift{}, 0, 0},
		{"suspend", Shift{MonoBack: much}, 0, 0},
		{"paused machine", Shift{MonoBack: much, BootBack: much}, 0, -much},
		{"wall clock set forward", Shift{WallOn: much}, much, 0},
		{"wall clock set back", Shift{WallOn: -much}, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			page, err := OpenPage(filepath.Join(t.TempDir(), "page"))
			if err != nil {
				t.Fatal(err)
			}
			source := newShifted(page, 0)
			c := clock.From(source, clock.Options{})
			began := time.Now()
			page.Add(test.shift)
			holder, contender := c.Holder(), c.Contender()
			took := time.Since(began)
			near := func(what string, got, want time.Duration) {
				if got < want-10*time.Millisecond || got > want+took+10*time.Millisecond {
					t.Errorf("%s: %v, want about %v", what, got, want)
				}
			}
			near("holder", holder, test.holder)
			near("contender", contender, test.contender)
			real, seen, change := source.both()
			if change != 1 || seen.Mono != real.Mono-test.shift.MonoBack ||
				seen.Boot != real.Boot-test.shift.BootBack || seen.Wall != real.Wall+test.shift.WallOn {
				t.Errorf("change %d: real %+v, seen %+v", change, real, seen)
			}
			if sleepy := (sleepy{source}); test.shift.MonoBack > 0 && sleepy.Holder() >= real.Mono {
				t.Errorf("the wrong clock counts a suspend")
			}
		})
	}
}

// A clock of another rate disagrees with nothing: the clocks that are compared
// have the same rate.
func TestRate(t *testing.T) {
	page, err := OpenPage(filepath.Join(t.TempDir(), "page"))
	if err != nil {
		t.Fatal(err)
	}
	source := newShifted(page, -0.25)
	source.began.Mono -= 8 * time.Second
	source.began.Boot -= 8 * time.Second
	source.began.Wall -= 8 * time.Second
	before := source.Read()
	c := clock.From(source, clock.Options{})
	page.Add(Shift{MonoBack: 4 * time.Second}) // a suspend
	after := source.Read()
	real, _, _ := source.both()
	if slow := real.Mono - before.Mono; slow < 2*time.Second || slow > 3*time.Second {
		t.Errorf("after 8 s a clock that loses a quarter is %v behind", slow)
	}
	if slept := (after.Boot - before.Boot) - (after.Mono - before.Mono); (slept - 3*time.Second).Abs() > time.Millisecond {
		t.Errorf("a suspend of 4 s takes %v of its time", slept)
	}
	if holder := c.Holder(); holder.Abs() > 10*time.Millisecond {
		t.Errorf("holder: %v", holder)
	}
}

func TestPageIsShared(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page")
	one, err := OpenPage(file)
	if err != nil {
		t.Fatal(err)
	}
	other, err := OpenPage(file)
	if err != nil {
		t.Fatal(err)
	}
	one.Add(Shift{MonoBack: 1, BootBack: 2, WallOn: -3})
	one.Add(Shift{MonoBack: 10})
	if s, change := other.Load(); change != 2 || s != (Shift{MonoBack: 11, BootBack: 2, WallOn: -3}) {
		t.Errorf("change %d: %+v", change, s)
	}
}
