// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package trial is what the workloads of chaos have in common: the nemesis that deals faults,
// the resource that holders write to, and the judge of the log that a run leaves.
package trial

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/wait"
)

// Fault is a card in the deck of a nemesis.
type Fault struct {
	Least, Most time.Duration // how long it lasts
	Strike      func(ctx context.Context, length time.Duration, random *rand.Rand)
}

// Deal deals faults until ctx ends, each a while after the one before, and returns when they
// are over.
func Deal(ctx context.Context, deck []Fault, least, most time.Duration, random *rand.Rand) {
	var under sync.WaitGroup
	defer under.Wait()
	for n := 0; ctx.Err() == nil && len(deck) > 0; n++ {
		if n%len(deck) == 0 {
			random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		f := deck[n%len(deck)]
		length, after := between(random, f.Least, f.Most), between(random, least, most)
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		// A fault that has begun ends in its own time.
		under.Go(func() { f.Strike(context.WithoutCancel(ctx), length, own) })
		wait.Rest(ctx, after)
	}
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Float64()*float64(most-least))
}

// Counter counts by name. It may be used concurrently.
type Counter struct {
	mu sync.Mutex
	of map[string]int
}

// Add adds n to what was counted under a name.
func (c *Counter) Add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[name] += n
}

// All is what was counted.
func (c *Counter) All() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.of)
}
