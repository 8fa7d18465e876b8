// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/chaos/trial"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/holds"
	"github.com/tenurelock/tenure/evidence/peers/service"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestRound is a round in which much must happen, and nothing wrong: clients in three
// languages at three replicas of tenured.
func TestRound(t *testing.T) {
	p := plan{Replicas: 3, Lease: 2 * time.Second, Seed: 1, Length: 16 * time.Second}
	for _, kind := range service.Kinds {
		program, err := service.Build(t.Context(), kind)
		if errors.Is(err, peers.ErrNoToolchain) {
			enginetest.Missing(t, "a client's toolchain", "scripts/setup installs it: "+err.Error())
		}
		if err != nil {
			t.Fatal(err)
		}
		p.Programs = append(p.Programs, program, program)
	}
	var err error
	if p.Tenured, err = service.BuildTenured(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	v, err := p.play(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	result{p.Seed, p.Length, *v}.show(&text)
	t.Logf("%sthe nemesis: %s\nthe gates: %s\nerrors of work: %s", &text, counted(v.Faults), counted(v.Weather),
		counted(v.Errors))
	for _, text := range v.Wrong {
		t.Error(text)
	}
	if v.Holds < 4 || len(v.Of) < len(service.Kinds) || v.Effects < 200 || len(v.Faults) < 8 || len(v.Weather) < 5 {
		t.Errorf("too little happened for a verdict: %+v", v)
	}
}

// The holds of a round are what its clients have written, its effects, and the history of the
// service.
func TestVerdict(t *testing.T) {
	written := []holds.Hold{
		{Owner: "java-1.1", Token: 1, Begin: 10, End: 90, Killed: true}, {
			Owner: "java-2.1", Token: 2, Begin: 50,
			End: 60,
		},
	}
	effects := []trial.Effect{
		{Lock: lockName, Owner: "java-1.1", Token: 1, Checked: 40, Came: 41, Entered: 42, Left: 43},
		{Lock: lockName, Owner: "java-2.1", Token: 2, Checked: 51, Came: 52, Entered: 53, Left: 54},
	}
	for _, c := range []struct {
		name    string
		tenures []service.Tenure
		want    []string
	}{
		{"as it is", []service.Tenure{{Token: 2, Owner: "java-2.1"}, {Token: 1, Owner: "java-1.1"}}, nil},
		{"a crash hides the owner", []service.Tenure{{Token: 2, Owner: "java-2.1"}, {Token: 1}}, nil},
		{
			"a hold without a tenure",
			[]service.Tenure{{Token: 2, Owner: "java-2.1"}},
			[]string{"token 1 of java-1.1 is in no tenure"},
		},
		{
			"a tenure of another",
			[]service.Tenure{{Token: 2, Owner: "c"}, {Token: 1}},
			[]string{"token 2 was held by java-2.1, and the history says by c"},
		},
	} {
		v := judge(logOf(written, effects), c.tenures)
		if !slices.EqualFunc(v.Wrong, c.want, strings.Contains) || v.Of["java"] != 2 || v.Tokens != 2 {
			t.Errorf("%s: %q, want %q; %+v", c.name, v.Wrong, c.want, v)
		}
	}
}

// TestFlags: a command line that is wrong is refused with a reason.
func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-replicas 0":    "want 1 to 9",
		"-each 10":       "want 1 to 9",
		"-lease 10ms":    "want 1s at least",
		"-round 1s":      "five leases",
		"more":           `unexpected argument "more"`,
		"-clients cobol": "", // told when it is built
		"-duration -1s":  "five leases",
		"-faults rain":   "is not known",
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

// TestPage holds the page to the run that it shows, and the run to be one without a fault
// of ours.
func TestPage(t *testing.T) {
	var r report
	if err := page.ReadJSON(filepath.Join("..", "..", resultsFile), &r); err != nil {
		t.Fatal(err)
	}
	if wrong := r.wrong(); len(wrong) > 0 || len(r.Rounds) == 0 {
		t.Errorf("%d rounds: %q", len(r.Rounds), wrong)
	}
	if err := page.Check(filepath.Join("..", "..", pageFile), r.markdown(), command); err != nil {
		t.Error(err)
	}
}
