// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/test/harness/gate"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/serve"
)

func TestMain(m *testing.M) {
	proc.Play(serve.Roles) // this binary is the program that the benchmark starts
	os.Exit(m.Run())
}

// TestQuick makes a quick run of each part, and looks at what was counted, and for texts in its
// tables: times mean nothing on a busy machine.
func TestQuick(t *testing.T) {
	for name, texts := range map[string][]string{
		"bench": {"| Tenure, 200 locks | 0 |"},
		"load": {
			pairsRow(1), contended, handedOver, beats, batches, memory, processor, onEtcd, onSQLite, gateway, "or lost: 0.",
		},
		"native": {"| etcd | `concurrency.Mutex` | **", "| Redis | redsync | **", "| Redis | the store alone | **"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &options{quick: true, say: t.Logf}
			switch name {
			case "bench":
				enginetest.Shared(t, enginetest.Dynoxide, "dynoxide")
				if _, err := peers.Make(t.Context(), peers.Java); errors.Is(err, peers.ErrNoToolchain) {
					enginetest.Missing(t, "a client's toolchain", "scripts/setup installs it: "+err.Error())
				}
			case "native":
				enginetest.Shared(t, enginetest.Etcd, "etcd")
				enginetest.Shared(t, enginetest.Redis, "redis")
			default:
				enginetest.Program(t, "etcd", "etcd")
			}
			p, err := measure(t.Context(), name, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range p.Rows {
				if len(r.Values) == 0 {
					t.Errorf("%s: nothing was found", r.What)
				}
			}
			tables, err := p.markdown(name)
			for _, text := range texts {
				if err != nil || !strings.Contains(tables, text) {
					t.Errorf("%v; it does not say %q:\n%s", err, text, tables)
				}
			}
			if name == "bench" {
				checkCounts(t, p)
			}
		})
	}
}

// checkCounts holds Tenure to what docs/evidence/performance.md says, and to be better than the
// others where they are not the best possible; and sessions to one write a heartbeat period,
// however many locks are held, and to cost as much as one lock.
func checkCounts(t *testing.T, p *part) {
	t.Helper()
	for what, w := range map[string]struct {
		requests, write, read float64
		lessThanPeers         bool
	}{
		takeFree:     {1, 1, 0, true},
		takeReleased: {1, 1, 0, true},
		tryHeld:      {1, 0, 1, false},
		oneHeartbeat: {1, 1, 0, false},
		releaseOne:   {1, 1, 0, false},
		takeHistory:  {3, 3, 0, false},
		takeShared:   {2, 4, 2, false},
	} {
		ours := p.row(what).Values[tenureName].Used
		if ours == nil || ours.Requests != w.requests || ours.WriteUnits != w.write || ours.ReadUnits != w.read {
			t.Errorf("%s: %+v; want %v requests, %v and %v units", what, ours, w.requests, w.write, w.read)
			continue
		}
		for name, v := range p.row(what).Values {
			if w.lessThanPeers && name != tenureName && v.Used.Requests <= ours.Requests {
				t.Errorf("%s: %v requests, and %s has %v", what, ours.Requests, name, v.Used.Requests)
			}
		}
	}
	for _, r := range p.Of(crowded) {
		h := r.Values[tenureName].Held
		if h == nil {
			continue
		}
		beats := h.Used.WriteUnits*h.Periods >= h.Periods-1-edges && h.Used.ReadUnits == 0
		if missed := h.missed(); missed != nil || !beats || h.LockHeap <= 0 || h.CPUMinute <= 0 {
			t.Errorf("%s: %+v; %v", r.What, h, missed)
		}
	}
	one, many := p.row(standings[0].what).Values[tenureName].Used, p.row(standings[1].what).Values[tenureName].Used
	cut := edges / countedFor(p).Seconds()
	if one == nil || many == nil || math.Abs(many.WriteUnits-one.WriteUnits) > 0.3*one.WriteUnits+cut {
		t.Errorf("one lock uses %+v in a second, and a session %+v", one, many)
	}
}

// TestMissed spoils each figure that must be as it is.
func TestMissed(t *testing.T) {
	for want, spoil := range map[string]func(*holding){
		"":              func(*holding) {},
		"heartbeat pe":  func(h *holding) { h.Used.WriteUnits = 1.1 },
		"1 locks lost":  func(h *holding) { h.Lost = 1 },
		"50 goroutines": func(h *holding) { h.Goroutines = mostGoroutines },
	} {
		h := &holding{Locks: 100, Periods: 50.2, Goroutines: 7, Used: gate.Usage{WriteUnits: 1}}
		spoil(h)
		if missed := strings.Join(h.missed(), "; "); (missed == "") != (want == "") || !strings.Contains(missed, want) {
			t.Errorf("missed %q, want %q", missed, want)
		}
	}
}

// TestPage holds the page to the runs that it shows, and these to be whole.
func TestPage(t *testing.T) {
	all := map[string]*part{}
	for name := range parts {
		p := &part{}
		if err := at(name).Read(p); err != nil {
			t.Fatal(err)
		}
		all[name] = p
		text, err := p.markdown(name)
		if err := errors.Join(err, at(name).Check(text)); err != nil {
			t.Error(err)
		}
		if p.Quick || len(p.Wrong) > 0 {
			t.Errorf("%s: results.json is of a quick run, or has what must not be: %v", name, p.Wrong)
		}
	}
	checkCounts(t, all["bench"])
	for _, row := range all["native"].Engines() {
		if row[3] == none || row[5] == none {
			t.Errorf("%s was not looked at: %q", row[0], row)
		}
	}
	for _, what := range []string{pairsRow(64), contended, handedOver, beats, memory, processor} {
		for _, who := range []string{gateway, oneLease, onEtcd, onSQLite} {
			if all["load"].row(what).Values[who].Spread == nil {
				t.Errorf("%s: nothing of %s", what, who)
			}
		}
	}
	for _, who := range []string{onEtcd, onSQLite} {
		if all["load"].row(processor + underOne).Values[who].Spread == nil {
			t.Errorf("%s: nothing of locks under one session", who)
		}
	}
}

// TestWrongIsSeen makes each mistake that is taken down, with a service that grants what is held,
// or gives an old number, or forgets a lock.
func TestWrongIsSeen(t *testing.T) {
	for wrong, careless := range map[string]struct{ grants, repeats, forgets bool }{
		"":                                  {},
		"before another caller released it": {grants: true},
		"has not risen":                     {repeats: true},
		"was refused":                       {forgets: true},
	} {
		var mu sync.Mutex
		var number atomic.Uint64
		c := caller{
			acquire: func(context.Context, string) *heldLock {
				if !careless.grants {
					mu.Lock()
				}
				l := &heldLock{number: 7, release: func(context.Context) {
					if !careless.grants {
						mu.Unlock()
					}
				}}
				if !careless.repeats {
					l.number = number.Add(1)
				}
				return l
			},
			beat: func(_ context.Context, all []*heldLock) int {
				if careless.forgets {
					must.Do(errLost)
				}
				return len(all)
			},
		}
		l := &load{harness: &harness{part: &part{}}, beaten: 1, length: time.Millisecond}
		p := &peer{open: func(context.Context) caller { return c }}
		err := must.Try(func() {
			l.pairs(t.Context(), "", p, 4, 1, 200*time.Millisecond)
			l.beating(t.Context(), beats, p, p.open, 1)
		})
		if err != nil && !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		if all := strings.Join(l.Wrong, "; "); (all != "") != (wrong != "") || !strings.Contains(all, wrong) {
			t.Errorf("%q, want %q", all, wrong)
		}
	}
}
