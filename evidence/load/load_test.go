// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestQuick takes each step with each peer for a moment.
func TestQuick(t *testing.T) {
	program := enginetest.Program(t, "etcd", "etcd")
	var out strings.Builder
	if err := run(t.Context(), []string{"-quick", "-etcd", program}, &out, t.Output()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{pairsStep(1), contended, handOver, beats, beats + inBatches, memory, processor, onEtcd, onSQLite, gateway, "not be: 0."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
}

// TestPage holds the page to the run that it shows.
func TestPage(t *testing.T) {
	r := &report{}
	if err := page.ReadJSON("results.json", r); err != nil {
		t.Fatal(err)
	}
	if r.Wrong != 0 {
		t.Errorf("%d times a lock was granted or lost when it must not be", r.Wrong)
	}
	for _, step := range []string{pairsStep(64), contended, handOver, beats, memory, processor} {
		for _, peer := range []string{gateway, sessions, onEtcd, onSQLite} {
			if r.of(step, peer) == nil {
				t.Errorf("%s: nothing of %s", step, peer)
			}
		}
	}
	if err := page.Check("../../docs/evidence/performance.md", r.markdown(), command); err != nil {
		t.Error(err)
	}
}

// careless is a service that grants what is held, or gives an old number, or forgets a lock.
type careless struct {
	mu      *sync.Mutex
	number  *atomic.Uint64
	grants  bool // locks or not
	numbers bool // rise or not
	forgets bool
}

func (c careless) acquire(context.Context, string) (held, uint64, error) {
	if !c.grants {
		c.mu.Lock()
	}
	if c.numbers {
		return 0, c.number.Add(1), nil
	}
	return 0, 7, nil
}

func (c careless) release(context.Context, held) error {
	if !c.grants {
		c.mu.Unlock()
	}
	return nil
}

func (c careless) beat(_ context.Context, all []held) (int, error) {
	if c.forgets {
		return 0, errLost
	}
	return len(all), nil
}

func (c careless) beatsForAll() bool { return false }

// TestWrongIsSeen makes each mistake that is counted.
func TestWrongIsSeen(t *testing.T) {
	for name, c := range map[string]struct {
		careless
		wrong bool
	}{
		"right":         {careless{numbers: true}, false},
		"grants":        {careless{numbers: true, grants: true}, true},
		"numbers stand": {careless{}, true},
		"forgets":       {careless{numbers: true, forgets: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.mu, c.number = new(sync.Mutex), new(atomic.Uint64)
			r := &report{Figures: map[string]map[string][]float64{}}
			p := &peer{name: name, open: func(context.Context) (holder, error) { return c.careless, nil }}
			if _, err := pairs(t.Context(), p, 4, 1, 200*time.Millisecond, r); err != nil {
				t.Fatal(err)
			}
			err := beat(t.Context(), p.open, name, 1, size{Beating: 1, Length: time.Millisecond}, r)
			if err != nil && !errors.Is(err, errLost) {
				t.Fatal(err)
			}
			if (r.Wrong > 0) != c.wrong {
				t.Errorf("wrong %d times", r.Wrong)
			}
		})
	}
}

func TestNoEtcd(t *testing.T) {
	if err := run(t.Context(), []string{"-quick", "-etcd", "/nonexistent/etcd"}, &strings.Builder{}, t.Output()); err == nil {
		t.Error("it runs without etcd")
	}
}
