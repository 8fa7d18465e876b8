// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/service"
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
	p := plan{
		Engine: engine, Seed: 1, Seats: 4, Lease: 1500 * time.Millisecond, Length: length, Drift: drift,
		workload: newReplicas(0, false),
	}
	if err := checkEngine(engine); err != nil {
		if os.Getenv(enginetest.Other) != "" {
			t.Skip(err)
		}
		enginetest.Missing(t, engine, err.Error())
	}
	switch err := tryNamespace(t.Context()); {
	case err == nil:
		p.namespaces = true
	case os.Getenv(enginetest.Required) != "" && os.Getenv(noNamespaces) == "":
		t.Fatalf("no replica can be started in a time namespace: %v; set %s if that is as it should be", err,
			noNamespaces)
	default:
		t.Logf("without replicas in time namespaces: %v", err)
	}
	return p
}

// TestFlags: a command line that is wrong is refused with a reason.
func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-engines paper":                     `"paper"`,
		"-engines sqlite":                    "",
		"-engines sqlite more":               `["more"]`,
		"-engines sqlite -lease 10ms":        "want 500ms at least",
		"-engines sqlite -round 1s":          "takes 1 lease at least",
		"-workload dance":                    `"dance"`,
		"-workload readers -engines paper":   `"paper"`,
		"-workload readers -readers 0":       "want 1 of each",
		"-workload once -engines sqlite":     "",
		"-workload once -engines redis":      "it has locks alone",
		"-workload service":                  "",
		"-workload service -lease 10ms":      "want 1s at least",
		"-workload service -duration -1s":    "5 leases",
		"-workload shards -engines sqlite":   "",
		"-workload shards -engines dynalite": `"dynalite" is not known`,
	} {
		_, err := parse(strings.Fields(args), t.Output())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestLeaderIsKilled shows that the crash of a cluster is one of its leader, and that
// another one leads then.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"etcd-cluster", "postgres-standby", "zookeeper-cluster"} {
		t.Run(name, func(t *testing.T) { crash(t, name, 4*time.Second, 1) })
	}
}

// TestKubernetesKills shows that Kubernetes crashes are crashes of the API server and of
// its etcd, in turn.
func TestKubernetesKills(t *testing.T) {
	t.Parallel()
	crash(t, kubernetesEngine, time.Millisecond, 3)
}

// crash has an engine crash a few times. What was written outlives that.
func crash(t *testing.T, engine string, down time.Duration, times int) {
	t.Helper()
	newPlan(t, engine, time.Second)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // servers may have a user
		t.Fatal(err)
	}
	var scope peers.Scope
	err := must.Try(func() {
		scope.Run(func() { crashed(t, openServed(t.Context(), servers[engine](dir), t.TempDir(), 1, &scope), down, times) })
	})
	if err != nil {
		t.Fatal(err)
	}
}

func crashed(t *testing.T, s *served, down time.Duration, times int) {
	t.Helper()
	store := replica.OpenStore(s.store(0), "")
	defer store.Close()
	rec, _, err := store.Claim(t.Context(),
		driver.Record{Key: "lock", Version: "1", Beat: "1", Owner: "a", State: driver.Held, Lease: time.Minute})
	must.Do(err)
	for n := range times {
		var before []member
		for _, m := range s.members {
			before = append(before, *m)
		}
		struck := s.chosen(t.Context(), n)
		if s.leads == nil && struck != n%len(s.members) ||
			s.leads != nil && !s.leads(t.Context(), struck) {
			t.Errorf("crash %d is of member %d", n, struck)
		}
		s.restart(t.Context(), down, -1)
		for i, m := range s.members {
			if killed := m.process != before[i].process; killed != (i == struck) || m.process.HasEnded() {
				t.Errorf("a crash of member %d: member %d was killed: %v; it has ended: %v", struck, i, killed,
					m.process.HasEnded())
			}
		}
		if s.leads != nil && s.chosen(t.Context(), 0) == struck {
			t.Errorf("member %d leads again", struck)
		}
		var got driver.Record
		if !wait.Within(t.Context(), wait.Bound, func() bool {
			got, err = store.Get(t.Context(), "lock", driver.Strong)
			return err == nil
		}) || got.Version != rec.Version {
			t.Errorf("after a crash of member %d: %+v, %v", struck, got, err)
		}
	}
}

func (p plan) mustPlay(t *testing.T) *verdict {
	t.Helper()
	r, err := p.play(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := r.judge(1)
	t.Log(v)
	return v
}

// TestChaosShort is a round on each engine but Kubernetes and versitygw, which take minutes to
// build: see TestKubernetesChaos and TestVersitygwChaos. `make chaos` runs for as long as one likes.
func TestChaosShort(t *testing.T) {
	t.Parallel()
	for _, engine := range engineNames() {
		if engine == kubernetesEngine || engine == versitygwEngine {
			continue
		}
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			length := 12 * time.Second
			if isRedis(engine) { // where nobody is granted the lock for seconds
				length = 24 * time.Second
			}
			playShort(t, engine, length)
		})
	}
}

// TestKubernetesChaos is a round on Kubernetes, which `make kubernetes` runs. It is longer than
// the others: an API server needs seconds to come back.
func TestKubernetesChaos(t *testing.T) {
	t.Parallel()
	playShort(t, kubernetesEngine, 36*time.Second)
}

// TestVersitygwChaos is a round in a bucket, which `make buckets` runs.
func TestVersitygwChaos(t *testing.T) {
	t.Parallel()
	playShort(t, versitygwEngine, 24*time.Second)
}

func playShort(t *testing.T, engine string, length time.Duration) {
	t.Helper()
	p := newPlan(t, engine, length)
	x := p.playWell(t, func(c counts) bool {
		return c.Kills > 0 && c.Terms >= 3 && c.Operations >= 100 && c.Checks >= 100 && len(c.Proved) > 0 &&
			(c.Namespaces > 0 || !p.namespaces)
	})
	rep := &report{Rounds: []*verdict{x}}
	if missing := rep.unproved(); len(missing) > 0 {
		t.Errorf("nothing shows that faults struck: %v", missing)
	}
}

// playWell plays a round in which enough must happen, and nothing wrong.
func (p plan) playWell(t *testing.T, enough func(counts) bool) *verdict {
	t.Helper()
	x := p.mustPlay(t)
	for _, sin := range x.violations {
		t.Errorf("%s: %s", sin.Sin, sin.Text)
	}
	if !enough(x.Counts) {
		t.Errorf("too little happened for a verdict: %+v", x.Counts)
	}
	return x
}

// TestReaders has readers and writers of one register, and jobs, be struck by all faults.
func TestReaders(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres", "dynoxide"} {
		for name, workload := range map[string]func(*round) workload{
			"readers": newReplicas(2, false), "once": newReplicas(0, true),
		} {
			t.Run(name+" on "+engine, func(t *testing.T) {
				t.Parallel()
				p := newPlan(t, engine, 8*time.Second)
				p.Seats, p.Lease, p.workload = 5, 2*time.Second, workload
				p.playWell(t, func(c counts) bool { return c.Terms > 0 }) // and all that must come of it
			})
		}
	}
}

// TestServiceChaos is a round of each mode, of clients in four languages at three replicas of tenured.
func TestServiceChaos(t *testing.T) {
	var made func(*round) workload
	err := must.Try(func() { made = newClients(t.Context(), t.TempDir()) })
	if errors.Is(err, peers.ErrNoToolchain) {
		enginetest.Missing(t, "a client's toolchain", "scripts/setup installs it: "+err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(3) {
		p := plan{Engine: "service", Lease: 2 * time.Second, Seed: seed, Length: 16 * time.Second}
		p.Seats, p.workload = clientsEach*len(service.Kinds), made
		p.playWell(t, func(c counts) bool {
			return c.Terms >= 4 && len(c.Of) == len(service.Kinds) && c.Operations >= 200 && len(c.Faults) >= 8 &&
				len(c.Weather) >= 5
		})
	}
}

// TestPage holds the pages to the runs that they show.
func TestPage(t *testing.T) {
	service, shards := &report{}, &results{}
	if err := errors.Join(parts["service"].Read(service), parts["shards"].Read(shards)); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(parts["service"].Check(service.markdown()), parts["shards"].Check(shards.markdown()))
	if err != nil {
		t.Error(err)
	}
	if shards.Setting.Quick {
		t.Error("shards were measured by a quick run")
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
		want   []trial.Sin
	}{
		{
			"clocks whose rates differ by more than is allowed for", "dynoxide",
			plan{workload: newReplicas(0, false), Seed: 1, Drift: 0.4, Only: []kind{blackHole}},
			[]trial.Sin{trial.Overlap},
		},
		{
			"an open fence before readers and writers", "sqlite",
			plan{workload: newReplicas(3, false), Open: true, Only: []kind{stop}},
			[]trial.Sin{trial.Fence},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPlan(t, test.engine, 8*time.Second)
			p.Open, p.Only, p.Drift = test.plan.Open, test.plan.Only, test.plan.Drift
			p.workload = test.plan.workload
			missing := slices.Clone(test.want)
			for round := 0; round < 6 && len(missing) > 0; round++ {
				p.Seed = test.plan.Seed + uint64(round) + 1
				v := p.mustPlay(t)
				missing = slices.DeleteFunc(missing, v.has)
			}
			if len(missing) > 0 {
				t.Errorf("not found: %v", missing)
			}
		})
	}
}
