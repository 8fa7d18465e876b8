// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/holds"
	"github.com/tenurelock/tenure/evidence/peers/service"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// The replicas of some tests are the test binary itself.
func TestMain(m *testing.M) {
	proc.Play(roles)
	os.Exit(m.Run())
}

// need returns the program of a client. Without its language the test is skipped, or fails
// where all has to be there.
func need(t *testing.T, kind peers.Kind) *peers.Program {
	t.Helper()
	p, err := service.Build(t.Context(), kind)
	if errors.Is(err, peers.ErrNoToolchain) {
		enginetest.Missing(t, "a client's toolchain", "scripts/setup installs it: "+err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// mustPlay plays a round.
func (p plan) mustPlay(t *testing.T) *verdict {
	t.Helper()
	v, err := p.play(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	result{p.Seed, p.Length, *v}.show(&text)
	t.Logf("%sthe nemesis: %s\nthe proxies: %s\nerrors of work: %s", &text, counted(v.Faults), counted(v.Weather), counted(v.Errors))
	return v
}

// TestRound is a round in which much must happen, and nothing wrong: clients in three
// languages at three replicas of tenured.
func TestRound(t *testing.T) {
	p := plan{setting: setting{Replicas: 3, Lease: 2 * time.Second}, Seed: 1, Length: 16 * time.Second}
	for _, kind := range service.Kinds {
		program := need(t, kind)
		p.Programs = append(p.Programs, program, program)
	}
	var err error
	if p.Program, err = service.BuildTenured(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	v := p.mustPlay(t)
	for _, text := range v.Wrong {
		t.Error(text)
	}
	if v.Holds < 4 || len(v.Of) < len(service.Kinds) || v.Effects < 200 || len(v.Faults) < 8 || len(v.Weather) < 5 {
		t.Errorf("too little happened for a verdict: %+v", v)
	}
}

// hold, did and came make a past by hand.
func hold(owner string, token uint64, begin, end int64) holds.Hold {
	return holds.Hold{Owner: owner, Token: token, Begin: begin, End: end}
}

func did(owner string, token uint64, checked, came int64) effect {
	return effect{Owner: owner, Token: token, Checked: checked, Came: came}
}

func refused(e effect) effect {
	e.Refused = true
	return e
}

// TestJudge: the judge must see what is wrong.
func TestJudge(t *testing.T) {
	two := []holds.Hold{hold("a", 1, 10, 20), hold("b", 2, 30, 40)}
	tenures := []service.Tenure{{Token: 2, Owner: "b"}, {Token: 1, Owner: "a"}}
	for _, c := range []struct {
		name string
		past past
		want []string
	}{
		{"nothing", past{Holds: two, Tenures: tenures, Effects: []effect{did("a", 1, 12, 13), did("b", 2, 31, 32)}}, nil},
		{"a late effect, refused", past{Holds: two, Tenures: tenures, Effects: []effect{did("b", 2, 31, 32), refused(did("a", 1, 19, 33))}}, nil},
		{"a late effect, let in", past{Holds: two, Tenures: tenures, Effects: []effect{did("b", 2, 31, 32), did("a", 1, 19, 33)}}, []string{"the fence let a in under token 1 after token 2"}},
		{"an effect that is refused for nothing", past{Holds: two, Tenures: tenures, Effects: []effect{refused(did("a", 1, 12, 13))}}, []string{"the fence refused a under token 1"}},
		{"two at once", past{Holds: []holds.Hold{hold("a", 1, 10, 31), hold("b", 2, 30, 40)}, Tenures: tenures}, []string{"b began 1ns before a ended"}},
		{"both act", past{
			Holds: []holds.Hold{hold("a", 1, 10, 35), hold("b", 2, 30, 40)}, Tenures: tenures,
			Effects: []effect{did("b", 2, 31, 32), refused(did("a", 1, 33, 34))},
		}, []string{"b began 5ns before a ended", "a acted under token 1 after b had acted under token 2"}},
		{"a token twice", past{Holds: []holds.Hold{hold("a", 1, 10, 20), hold("b", 1, 30, 40)}, Tenures: []service.Tenure{{Token: 1}}}, []string{"token 1 of b after 1 of a"}},
		{"an effect after its hold", past{Holds: two, Tenures: tenures, Effects: []effect{did("a", 1, 21, 22)}}, []string{"allowed at 21, which is in no hold"}},
		{"an effect of another's token", past{Holds: two, Tenures: tenures, Effects: []effect{did("a", 2, 31, 32)}}, []string{"an effect of a under token 2"}},
		{"a hold without a tenure", past{Holds: two, Tenures: tenures[:1]}, []string{"token 1 of a is in no tenure"}},
		{"a tenure of another", past{Holds: two, Tenures: []service.Tenure{{Token: 2, Owner: "c"}, {Token: 1}}}, []string{"token 2 was held by b, and the history says by c"}},
		{"nobody for long", past{Holds: []holds.Hold{hold("a", 1, 10, 20), hold("b", 2, 200, 240)}, Tenures: tenures}, []string{"from the end of token 1 of a to token 2 of b"}},
		{"nobody at the end", past{Holds: two, Tenures: tenures, Ended: 500}, []string{"nobody held the lock for 0s, from the end of token 2 of b to the end"}},
	} {
		c.past.Gap = 100
		v := judge(&c.past)
		if !slices.EqualFunc(v.Wrong, c.want, strings.Contains) {
			t.Errorf("%s: %q, want %q", c.name, v.Wrong, c.want)
		}
	}
	killed := past{
		Holds:   []holds.Hold{{Owner: "a", Token: 1, Begin: 10, End: 90, Killed: true}, hold("b", 2, 50, 60)},
		Effects: []effect{did("a", 1, 12, 13), did("a", 1, 40, 41), did("b", 2, 51, 52)},
	}
	killed.endKilled()
	if killed.Holds[0].End != 40 || killed.Holds[1].End != 60 {
		t.Errorf("a hold of one that was killed ends at %d, want 40, where its last effect was allowed", killed.Holds[0].End)
	}
}

// TestFlags: a command line that is wrong is refused with a reason.
func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-replicas 0":     "want 1 to 9",
		"-each 10":        "want 1 to 9",
		"-lease 10ms":     "want 1s at least",
		"-round 1s":       "five leases",
		"more":            `unexpected argument "more"`,
		"-clients cobol":  "", // told when it is built
		"-duration -1s":   "five leases",
		"-clients python": "",
	} {
		_, err := parse(strings.Fields(args), t.Output())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	if _, err := service.Build(t.Context(), "cobol"); err == nil || !strings.Contains(err.Error(), `no client "cobol"`) {
		t.Errorf("a client that is not there: %v", err)
	}
}

// TestVariants: each wrong variant has a scene that there is, and each scene a variant.
func TestVariants(t *testing.T) {
	for _, v := range variants {
		if len(v.client) > 0 == (len(v.server+v.mutant) > 0) || v.seen == "" {
			t.Errorf("%q: want a client or a replica that makes it, and what is seen", v.name)
		}
		if !slices.ContainsFunc(scenes, func(s scene) bool { return s.name == v.scene }) {
			t.Errorf("%q: there is no scene %q", v.name, v.scene)
		}
	}
	for _, s := range scenes {
		if !slices.ContainsFunc(variants, func(v variant) bool { return v.scene == s.name }) {
			t.Errorf("the scene %q shows no mistake", s.name)
		}
	}
}

// TestPage holds the page to the run that it shows, and the run to be one without a fault
// of ours.
func TestPage(t *testing.T) {
	var r report
	if err := page.ReadJSON(filepath.Join("..", resultsFile), &r); err != nil {
		t.Fatal(err)
	}
	if wrong := r.wrong(); len(wrong) > 0 || len(r.Rounds) == 0 {
		t.Errorf("%d rounds: %q", len(r.Rounds), wrong)
	}
	if err := page.Check(filepath.Join("..", pageFile), r.markdown(), command); err != nil {
		t.Error(err)
	}
}
