// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/shard"
)

// bad makes the store of a worker lose requests and replies, and be slow and
// late.
func (w *worker) bad() (remove func()) {
	return w.faults.Inject(faultstore.Rule{Decide: func(faultstore.Call) faultstore.Fault {
		switch rand.N(40) {
		case 0:
			return faultstore.LoseReply()
		case 1:
			return faultstore.LoseRequest()
		case 2:
			return faultstore.Late(rand.N(20 * time.Second))
		case 3:
			return faultstore.BlackHole()
		case 4:
			return faultstore.Refuse()
		}
		return faultstore.Slow(rand.N(100*time.Millisecond), rand.N(100*time.Millisecond))
	}})
}

// pausing is a handler that looks away now and then, checks, and then writes.
func (w *worker) pausing(ctx context.Context, p *shard.Partition) error {
	w.enter(p)
	defer w.leave(p)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			time.Sleep(rand.N(2 * time.Second))
			return nil
		case <-time.After(time.Second + rand.N(20*time.Second)):
		}
		if p.Check() == nil {
			// Nothing passes between the check and the write here.
			if err := w.s.gate.Do(ctx, p.Name(), p.Token(), func(context.Context) error { return nil }); err != nil {
				w.s.t.Errorf("%s passes its check for partition %s: %v", w.owner, p.ID(), err)
			}
			_ = p.Checkpoint(ctx, fmt.Append(nil, w.owner, n))
		}
	}
}

// On a bad store, with workers that crash, leave, come and are cut off, no two
// have a partition at once, and the resource sees tokens only rise. When all is
// well again, all partitions are where they belong.
func TestChaos(t *testing.T) {
	minutes := 20
	if testing.Short() {
		minutes = 5
	}
	synctest.Test(t, func(t *testing.T) {
		const n, partitions = 8, 60
		s := newStage(t, shard.Options{Partitions: partitions})
		workers := make([]*worker, n)
		var remedies []func()
		begin := func(i, life int) {
			workers[i] = s.make(fmt.Sprintf("w%d-%d", i, life), func(o *shard.Options) { o.Weight = 1 + float64(i%2) })
			remedies = append(remedies, workers[i].bad())
			workers[i].start(workers[i].pausing)
		}
		for i := range workers {
			begin(i, 0)
		}
		crashes, leaves, cuts := 0, 0, 0
		for life := 1; life <= minutes*3; life++ {
			time.Sleep(20 * time.Second)
			i := rand.N(n)
			switch rand.N(4) {
			case 0:
				crashes++
				workers[i].crash()
				begin(i, life)
			case 1:
				leaves++
				workers[i].stop()
				begin(i, life)
			case 2:
				cuts++
				workers[i].faults.SetBlackHole(true)
				time.Sleep(rand.N(2 * lease))
				workers[i].faults.SetBlackHole(false)
			case 3:
				if err := workers[i].Resize(t.Context(), partitions-rand.N(2)*10); err != nil {
					t.Log(err)
				}
			}
		}
		for _, remedy := range remedies {
			remedy()
		}
		t.Logf("%d crashes, %d leaves, %d cuts", crashes, leaves, cuts)
		s.until("all is well again", 20*time.Minute, func() bool {
			if err := workers[0].Resize(t.Context(), partitions); err != nil {
				return false
			}
			return s.calm(n, partitions)
		})
	})
}
