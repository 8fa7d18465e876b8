// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"

	"github.com/tenurelock/tenure"
)

// task is a task as it was added.
type task struct {
	name, kind string
	run        func(context.Context, inputs) error
	check      func() error // what else is wrong with it, nil if nothing can be
}

// inputs is what a task gets besides its context, by its kind.
type inputs struct {
	lease    *tenure.Lease
	followed *Followed
}

// worker is a task under way.
type worker struct {
	*task
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it has returned, and what it returned was noted
}

// crew is the set of running tasks of one kind. One goroutine at a time uses it.
type crew struct {
	g       *Group
	workers []*worker
}

// start starts the tasks in their order, until go on says no.
func (c *crew) start(ctx context.Context, tasks []*task, s inputs, goOn func() bool) {
	for _, t := range tasks {
		if !goOn() {
			return
		}
		w := &worker{task: t, done: make(chan struct{})}
		w.ctx, w.cancel = context.WithCancelCause(ctx)
		c.workers = append(c.workers, w)
		c.g.log(slog.LevelInfo, "task started", w, nil)
		go c.g.work(w, s)
	}
}

// stop stops the workers one by one, the last one first, and waits for each before it
// stops the next. If their shared context has ended, all of them have been stopped. It
// returns the workers that did not return in time.
func (c *crew) stop(cause error) (stuck []*worker) {
	for _, w := range slices.Backward(c.workers) {
		w.cancel(cause)
		timeout, stop := context.WithTimeout(context.Background(), c.g.options.StopTimeout)
		if !c.g.await(timeout, w) {
			stuck = append(stuck, w)
		}
		stop()
	}
	c.workers = nil
	return stuck
}

// await waits for the worker. A worker that takes too long fails the group.
func (g *Group) await(timeout context.Context, w *worker) bool {
	select {
	case <-w.done:
		return true
	case <-timeout.Done():
	}
	select {
	case <-w.done: // both at once
		return true
	default:
	}
	g.log(slog.LevelError, "task did not stop in time", w, context.Cause(w.ctx))
	g.fail(&Error{w.name, fmt.Errorf("%w: the stop timeout is %v", ErrStopTimeout, g.options.StopTimeout)})
	return false
}

// work runs the task in a goroutine of its own.
func (g *Group) work(w *worker, s inputs) {
	defer close(w.done)
	defer w.cancel(errEnded)
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			g.panics(w, &PanicError{Task: w.name, Value: v, Stack: debug.Stack()})
			return
		}
		g.ended(w, s, ErrGoexit)
	}()
	err := w.run(w.ctx, s)
	returned = true
	g.ended(w, s, err)
}

// ended notes how a task ended, and begins the stop if it must.
func (g *Group) ended(w *worker, s inputs, err error) {
	told := w.ctx.Err()
	switch {
	case err == nil, told != nil && (errors.Is(err, told) || errors.Is(err, context.Cause(w.ctx))):
		g.log(slog.LevelInfo, "task returned", w, nil)
	case s.lease != nil && (s.lease.Check() != nil || s.lease.Context().Err() != nil):
		// The context of the task may be late; Check is not.
		g.log(slog.LevelWarn, "task returned an error after its term", w, err)
	case errors.Is(err, ErrStop):
		g.log(slog.LevelInfo, "task stops the group", w, nil)
		g.stop(&Error{w.name, err})
	default:
		g.log(slog.LevelError, "task failed", w, err)
		g.fail(&Error{w.name, err})
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left--; g.left == 0 && len(g.leading) == 0 {
		g.stop(errDone)
	}
}

// panics notes the panic of a task, for Run to panic with. If Run has returned already,
// no one is left to do that.
func (g *Group) panics(w *worker, p *PanicError) {
	g.log(slog.LevelError, "task panicked", w, p)
	g.mu.Lock()
	returned := g.returned
	if g.panicked == nil {
		g.panicked = p
	}
	g.mu.Unlock()
	if returned {
		panic(p) //nolint:forbidigo // handed on
	}
	g.stop(p)
}

func (g *Group) log(level slog.Level, message string, w *worker, err error) {
	attrs := []slog.Attr{slog.String("task", w.name), slog.String("kind", w.kind)}
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	g.options.Logger.LogAttrs(w.ctx, level, message, attrs...)
}
