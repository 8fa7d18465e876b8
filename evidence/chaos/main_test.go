// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/chaos/replica"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// The replicas of these tests are the test binary itself.
func TestMain(m *testing.M) {
	proc.Play(roles)
	os.Exit(m.Run())
}

// noNamespaces declares that this machine allows no time namespaces.
const noNamespaces = "TENURE_NO_TIME_NAMESPACES"

// newPlan returns a short round. Namespaces are used where there are any.
func newPlan(t *testing.T, engine string, length time.Duration) plan {
	t.Helper()
	p := plan{Engine: engine, Seed: 1, Replicas: 4, Lease: 1500 * time.Millisecond, Length: length, Drift: drift}
	var err error
	if engine == "dynoxide" {
		p.dynoxide, err = findDynoxide()
		switch {
		case err == nil:
		case os.Getenv(enginetest.Required) == "" || os.Getenv(enginetest.Other) != "":
			t.Skip(err)
		default:
			t.Fatal(err)
		}
	}
	switch err = tryNamespace(t.Context()); {
	case err == nil:
		p.namespaces = true
	case os.Getenv(enginetest.Required) != "" && os.Getenv(noNamespaces) == "":
		t.Fatalf("no replica can be started in a time namespace: %v; set %s if that is as it should be", err, noNamespaces)
	default:
		t.Logf("without replicas in time namespaces: %v", err)
	}
	return p
}

// A round that cannot begin is an error, whatever was opened until then.
func TestRoundThatCannotBegin(t *testing.T) {
	for _, p := range []plan{{Engine: "paper"}, {Engine: "dynoxide", dynoxide: "/no/such/program"}} {
		if r, err := p.play(t.Context()); r != nil || err == nil {
			t.Errorf("%s: round %v, error %v", p.Engine, r, err)
		}
	}
	if _, err := parse([]string{"-engines", "paper"}); err == nil || !strings.Contains(err.Error(), `"paper"`) {
		t.Errorf("error %v", err)
	}
}

func (p plan) mustPlay(t *testing.T) result {
	t.Helper()
	r, err := p.play(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x := r.result(1)
	var text bytes.Buffer
	x.print(&text)
	t.Log(text.String())
	return x
}

// TestChaosShort is a round on each engine. `make chaos` runs for as long as
// one likes.
func TestChaosShort(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "dynoxide"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			p := newPlan(t, engine, 12*time.Second)
			x := p.mustPlay(t)
			for _, sin := range x.Verdict.Violations {
				t.Errorf("%s: %s", sin.Sin, sin.Text)
			}
			c := x.Verdict.counts
			if c.Kills == 0 || c.Tenancies < 3 || c.Fenced < 50 || c.Plain < 50 || c.Checks < 100 || c.Namespaces == 0 && p.namespaces {
				t.Errorf("too little happened for a verdict: %+v", c)
			}
			rep := &report{Command: "test", Rounds: []result{x}}
			if missing := rep.unproved(); len(missing) > 0 || len(c.Proved) == 0 {
				t.Errorf("faults of which nothing shows that they struck: %v; shown are %v", missing, c.Proved)
			}
			file := filepath.Join(t.TempDir(), "chaos.html")
			if err := rep.save(file); err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "Round 1") {
				t.Errorf("the report lacks the round (%v)", err)
			}
		})
	}
}

// TestChaosBites shows that a run finds what it is for. What is wrong comes to
// light only when the nemesis hits at the right moment, so there are several
// rounds.
func TestChaosBites(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		engine string
		plan   plan
		want   []sin
	}{
		{"replicas that never ask, and an open fence", "sqlite", plan{Wrong: replica.NoCheck, Open: true, Only: []kind{stop, kill}}, []sin{overlap, unlinear}},
		{"clocks whose rates differ by more than is allowed for", "dynoxide", plan{Seed: 1, Drift: 0.4, Only: []kind{blackHole}}, []sin{overlap}},
		{"a clock that stands still in a suspend", "sqlite", plan{Wrong: replica.GoClock, Only: []kind{suspend}}, []sin{overlap, hook}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPlan(t, test.engine, 8*time.Second)
			p.Wrong, p.Open, p.Only, p.Drift = test.plan.Wrong, test.plan.Open, test.plan.Only, test.plan.Drift
			missing := slices.Clone(test.want)
			for round := 0; round < 6 && len(missing) > 0; round++ {
				p.Seed = test.plan.Seed + uint64(round) + 1
				v := p.mustPlay(t).Verdict
				missing = slices.DeleteFunc(missing, v.has)
			}
			if len(missing) > 0 {
				t.Errorf("not found: %v", missing)
			}
		})
	}
}
