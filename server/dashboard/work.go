// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"sync"
)

// errClosed says that the dashboard was shut down.
var errClosed = errors.New("the server is shutting down")

// maxWork bounds what goes on at once in the background.
const maxWork = 256

// work is what goes on in the background: questions to the store, and acts that outlast the
// request by which they came. It waits for all of it at the end.
type work struct {
	ctx  context.Context
	stop context.CancelFunc

	mu      sync.Mutex
	running sync.WaitGroup
	n       int
	closed  bool
}

func newWork() *work {
	w := &work{}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// start runs f in a goroutine, unless there is too much already, or the end has come. The
// context of f ends with the work.
func (w *work) start(f func(context.Context)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.n >= maxWork {
		return false
	}
	w.n++
	w.running.Go(func() {
		defer func() {
			w.mu.Lock()
			w.n--
			w.mu.Unlock()
		}()
		f(w.ctx)
	})
	return true
}

// close ends it all, and waits for that.
func (w *work) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.stop()
	w.running.Wait()
}
