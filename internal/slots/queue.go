// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"sync"

	"github.com/tenurelock/tenure/internal/engine"
)

// Queue is the order in which the callers of one process wait: the first acts, the
// others wait for their turn. The zero value is empty.
type Queue struct {
	mu      sync.Mutex
	waiting []chan struct{} // closed when it is its turn; the first one has it
}

// Enter waits for the caller's turn. leave passes the turn on.
func (q *Queue) Enter(ctx context.Context) (leave func(), err error) {
	turn := make(chan struct{})
	q.mu.Lock()
	q.waiting = append(q.waiting, turn)
	if len(q.waiting) == 1 {
		close(turn)
	}
	q.mu.Unlock()
	leave = func() { q.leave(turn) }
	select {
	case <-turn:
		return leave, nil
	case <-ctx.Done():
		leave()
		return nil, engine.Done(ctx)
	}
}

func (q *Queue) leave(turn chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, t := range q.waiting {
		if t != turn {
			continue
		}
		q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
		if i == 0 && len(q.waiting) > 0 {
			close(q.waiting[0])
		}
		return
	}
}
