// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tenurelock/tenure/once"
)

// Every adds a task that the leader runs each period, by [once.Every]: the store has
// the number and the age of the period, so that a change of the leader neither doubles
// a run nor restarts the period. Each replica adds it with the same name and period.
// Options may be nil.
//
// Two runs are begun at least a period apart, less what the clocks may be wrong by. The
// first one comes a period after the first leader has begun. A change of the leader makes
// a period longer: by the time without a leader and, as the age is not written all the
// time, by a heartbeat period or a hundredth of the period. After a crash the time
// without a leader is two lease durations. A run that takes longer than the period is
// never beside the next one, which begins when it returns, and is not repeated for the
// periods that it took: see [once.EveryOptions] CatchUp.
//
// A run that was begun is not run again if its leader was lost. When the leadership ends,
// its context ends, and the group waits for it, as for any leading task. An error of a
// run ends nothing: it is logged, and in the ledger, which [once.ShowEvery] reads under
// the name of [EveryName]. [ErrStop] stops the group. A panic stops it too.
//
// The ledger is in a lock of its own, which the leader holds besides: each such task
// costs a heartbeat. The token of the turn, which fences the run, is that lock's. With
// [tenure.Options.ProgressTimeout], a long run reports progress to the lease of its turn,
// which [tenure.FromContext] has; the group's own lease needs another leading task that
// does.
func (g *Group) Every(name string, period time.Duration, options *once.EveryOptions, run once.Work) {
	var o once.EveryOptions
	if options != nil {
		o = *options
	}
	p := &periodic{g: g, name: name, period: period, options: o, work: run}
	t := &task{name: name, kind: "every"}
	if run != nil {
		t.run, t.check = p.run, p.check
	}
	g.add(&g.leading, t)
}

// EveryName is the name under which a periodic task of a group keeps its ledger, by the
// name of the group's election and that of the task. Its lock is
// [once.EveryLockName] of it.
func EveryName(election, task string) string { return election + "/" + task }

// periodic is a task that is run each period.
type periodic struct {
	g       *Group
	name    string
	period  time.Duration
	options once.EveryOptions
	work    once.Work
}

// check returns what is wrong with the period and the options. A context that has ended
// begins nothing.
func (p *periodic) check() error {
	ended, end := context.WithCancel(context.Background())
	end()
	return p.every(ended, p.options, p.work)
}

// run runs the task while this replica leads.
func (p *periodic) run(ctx context.Context, s inputs) error {
	o := p.options
	o.OnRun = func(r once.Run, err error) {
		if err != nil {
			p.g.options.Logger.LogAttrs(ctx, slog.LevelWarn, "run of a task failed",
				slog.String("task", p.name), slog.Int64("period", r.Slot), slog.Any("err", err))
		}
		if p.options.OnRun != nil {
			p.options.OnRun(r, err)
		}
	}
	return p.every(ctx, o, func(ctx context.Context, turn *once.Turn) error {
		if err := s.lease.Check(); err != nil {
			return err // the right to lead has ended, and the context does not say so yet
		}
		err := p.work(ctx, turn)
		if errors.Is(err, ErrStop) && ctx.Err() == nil {
			p.g.stop(&Error{p.name, err})
			return nil
		}
		return err
	})
}

func (p *periodic) every(ctx context.Context, o once.EveryOptions, work once.Work) error {
	e := p.g.election
	return once.Every(ctx, e.Client(), EveryName(e.Name(), p.name), p.period, &o, work)
}
