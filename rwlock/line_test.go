// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/tenurelock/tenure/semaphore"
)

// A semaphore of the same name is another lock. Whoever has its slot gets in to write,
// although another process waits for that slot: the two would wait for each other.
func TestSemaphoreOfTheSameName(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		slots := func(p *process) *semaphore.Semaphore {
			sem, err := semaphore.New(p.client.Client, name, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			return sem
		}
		r, first, second := s.process("r"), s.process("first"), s.process("second")
		read := r.read(t.Context())
		slot, err := slots(first).Acquire(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			slot, err := slots(second).Acquire(t.Context(), nil)
			if err == nil {
				err = slot.Release(t.Context())
			}
			got <- err
		}()
		time.Sleep(2 * refresh) // it stands at the front of the semaphore's line
		time.AfterFunc(2*refresh, func() { r.release(read) })
		ctx, stop := context.WithTimeout(t.Context(), 6*refresh)
		defer stop()
		first.release(first.write(ctx))
		if err := slot.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}
