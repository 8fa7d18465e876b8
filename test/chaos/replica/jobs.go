// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/chaos/trial"
)

// EveryLeases is how many leases are a period of the job that is run each period. The others have
// an occasion in each lease.
const EveryLeases = 3

// runJobs runs a job of each rule, which is its name.
func (r *replica) runJobs(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var slots sync.WaitGroup
	defer slots.Wait()
	defer stop()
	slots.Go(func() { r.runSlots(ctx, trial.InOrder, &once.Options{Wait: true, MaxAhead: 20}) })
	slots.Go(func() {
		r.runSlots(ctx, trial.Redo, &once.Options{Wait: true, MaxAhead: -1, OutOfOrder: true, Redo: true})
	})
	return once.Every(ctx, r.client, string(trial.Every), EveryLeases*r.Lease, nil, r.job(trial.Every))
}

// runSlots asks for each occasion of a schedule by its own wall clock, until it has an answer.
func (r *replica) runSlots(ctx context.Context, rule trial.Rule, options *once.Options) {
	for answered := int64(0); ctx.Err() == nil; wait.Rest(ctx, r.Lease/20) {
		slot := int64(r.source.Now().Wall / r.Lease)
		if slot == answered {
			continue
		}
		result, err := once.Once(ctx, r.client, string(rule), slot, options, r.job(rule))
		came := "no answer of the store"
		done, told := errors.AsType[*once.DoneError](err)
		of := Line{Lock: once.LockName(string(rule)), Owner: r.Name, Occasion: slot, Rule: rule}
		switch {
		case result.Run.Token > 0:
			if came = "run"; result.Recorded {
				of.Kind, of.Token = Finished, result.Run.Token
				r.say(of)
			}
		case told && done.Run.Token > 0:
			came = "begun elsewhere"
			of.Kind, of.Token, of.Text = Told, done.Run.Token, string(done.Run.State)
			r.say(of)
		case told, errors.Is(err, once.ErrPassed):
			came = "passed"
		case errors.Is(err, once.ErrSlotAhead):
			came = "ahead"
		case errors.Is(err, once.ErrNotRun):
			came = "marked and not run"
		case errors.Is(err, tenure.ErrUnreadable), errors.Is(err, tenure.ErrPermanent):
			r.say(Line{Kind: Trouble, Text: err.Error()})
		}
		r.say(Line{Kind: Came, Text: fmt.Sprint(rule, " ", came)})
		if came != "no answer of the store" {
			answered = slot
		}
	}
}

// job is what is done for an occasion: one effect, in a time of half a lease at most.
func (r *replica) job(rule trial.Rule) once.Work {
	return func(ctx context.Context, turn *once.Turn) error {
		h := &hold{
			replica: r, lease: turn, lock: turn.Name(), owner: r.Name, token: turn.Token(), rule: rule,
			occasion: turn.Slot(),
		}
		return h.work(ctx, func(ctx context.Context) error {
			dwell := func() { <-time.After(rand.N(maxDwell)) }
			_, err := h.perform(ctx, h.http, fmt.Sprint("occasion ", turn.Slot()), dwell)
			wait.Rest(ctx, rand.N(r.Lease/2))
			if err == nil && rule == trial.Every {
				h.say(Line{Kind: Came, Text: "every run"})
			}
			return err
		})
	}
}
