// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// putHistory writes terms into the history of a lock. It waits as long as the work must
// wait, or until ctx ends; the writing goes on in the background.
func (c *Client) putHistory(ctx context.Context, lock string, past []driver.Term) {
	all := c.writeHistory(lock, past, (*protocol.HistoryWriter).Step)
	for _, w := range all {
		select {
		case <-w.ready:
		case <-ctx.Done():
			for _, w := range all {
				w.run.do(w.m.GiveUp)
			}
			return
		case <-c.gone:
			return
		}
	}
}

// writePast writes terms into the history of a lock, and does not wait.
func (c *Client) writePast(lock string, past []driver.Term) {
	c.writeHistory(lock, past, (*protocol.HistoryWriter).GiveUp)
}

// writeHistory begins to write terms into the history of a lock, each with its own
// machine.
func (c *Client) writeHistory(lock string, past []driver.Term, begin func(*protocol.HistoryWriter, time.Duration) protocol.Action) []*historyWrite {
	all := make([]*historyWrite, len(past))
	for i, t := range past {
		w := &historyWrite{c: c, lock: lock, ready: make(chan struct{})}
		w.m = protocol.NewHistoryWriter(c.timing, c.env, lock, t, uint64(c.options.HistoryLimit))
		w.run = c.run(w.m, w, new(sync.Mutex))
		c.writes(1)
		all[i] = w
		w.run.do(func(now time.Duration) protocol.Action { return begin(w.m, now) })
	}
	return all
}

// historyWrite is the write of one term into the history.
type historyWrite struct {
	nobody
	c        *Client
	lock     string
	run      run
	m        *protocol.HistoryWriter
	ready    chan struct{} // closed when the work need not wait any more
	written  bool          // Close need not wait any more
	reported bool          // an error was reported
}

func (w *historyWrite) stepped(time.Duration, protocol.Action) {
	if !w.m.Awaited() {
		closeOnce(w.ready)
	}
	if !w.written && (w.m.Written() || w.m.Over()) {
		w.written = true
		w.c.writes(-1)
	}
	if err := w.m.Err(); err != nil && !w.reported {
		w.reported = true
		err = fmt.Errorf("history entry of token %d not written: %w", w.m.Token(), err)
		w.c.events.emit(Event{Kind: EventStoreError, Lock: w.lock, Token: w.m.Token(), Err: err})
	}
}
