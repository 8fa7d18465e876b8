// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/service"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// within has a client take the lock, and says what is wrong if it has it only after a bound,
// counted from an instant.
func (a *act) within(ctx context.Context, two *client, since int64, bound time.Duration, after string) ([]string, error) {
	return a.granted(ctx, two.Begin(two.Asking(wire.Acquire, lockName)), since, bound, after)
}

// granted waits for an acquire, as within does.
func (a *act) granted(ctx context.Context, acquire *peers.Call, since int64, bound time.Duration, after string) ([]string, error) {
	patient, cancel := context.WithTimeout(ctx, 2*bound)
	defer cancel()
	got, err := acquire.Wait(patient)
	switch took := time.Duration(got.GotNs - since); {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case patient.Err() != nil:
		return []string{fmt.Sprintf("the lock was not free within %v after %s", 2*bound, after)}, nil
	case err != nil:
		return nil, err
	case took > bound:
		return []string{fmt.Sprintf("the lock was free %v after %s; want %v at most", took.Round(time.Millisecond), after, bound)}, nil
	}
	return nil, nil
}

// deadHolder: the holder is killed, and an attacker sends its calls again, one after the
// other. None of them may keep the lock. The one who waits does so at another replica, which
// has not seen the beats before: it would know one that comes back.
func deadHolder(ctx context.Context, a *act) ([]string, error) {
	one, err := a.at(ctx, 0, a.one)
	if err != nil {
		return nil, err
	}
	// Without a wait: who sends that again gets the lock only if it is free just then.
	try := one.Asking(wire.Acquire, lockName)
	try.TryOnly = true
	if _, err := one.Do(ctx, try); err != nil {
		return nil, err
	}
	const beats = 8
	err = wait.Until(ctx, "some heartbeats are seen", func() bool {
		return len(one.front.Captured(service.IsCall(service.HeartbeatPath))) >= beats
	})
	if err != nil {
		return nil, err
	}
	one.Kill()
	died := proc.Monotonic()
	two, err := a.at(ctx, 1, a.two)
	if err != nil {
		return nil, err
	}
	attack, stop := context.WithCancel(ctx)
	var attacking sync.WaitGroup
	defer attacking.Wait()
	defer stop()
	for _, path := range []string{service.AcquirePath, service.HeartbeatPath} {
		attacking.Go(func() { one.front.Attack(attack, 4*a.Lease/5, beats, service.IsCall(path)) })
	}
	// A lease that the other replica sees pass, one more if the last heartbeat had not arrived
	// yet, a third for a grant that nobody learns of; and a machine that is busy.
	return a.within(ctx, two, died, 4*a.Lease, "the death of its holder")
}

// beatAfterRelease: a heartbeat is held back until its holder has released the lock, and
// arrives then.
func beatAfterRelease(ctx context.Context, a *act) ([]string, error) {
	one, err := a.first(ctx)
	if err != nil {
		return nil, err
	}
	two, err := a.second(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := one.Acquire(ctx, lockName); err != nil {
		return nil, err
	}
	held := one.strike(gate.Withhold)
	if err := held.Hit(ctx); err != nil {
		return nil, err
	}
	if _, err := one.Release(ctx, lockName); err != nil {
		return nil, err
	}
	released := proc.Monotonic()
	beats := one.front.Captured(service.IsCall(service.HeartbeatPath))
	one.front.Resend(ctx, beats[len(beats)-1])
	return a.within(ctx, two, released, a.Lease/3, "its release")
}

// stepDown: the holder is asked to step down, while it sends heartbeats and another one
// waits.
func stepDown(ctx context.Context, a *act) ([]string, error) {
	if _, err := a.working(ctx); err != nil {
		return nil, err
	}
	two, err := a.second(ctx)
	if err != nil {
		return nil, err
	}
	waiting := two.Begin(two.Asking(wire.Acquire, lockName))
	if err := wait.For(ctx, a.Lease/4); err != nil {
		return nil, err
	}
	began := proc.Monotonic()
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		_, _ = a.Post(ctx, 0, a.Operator, "/v1/requests", map[string]any{ // what comes of it shows the lock
			"name": lockName, "kind": "step-down", "reason": "to see whether it is told", "wait_ms": a.Lease.Milliseconds(),
		})
	})
	return a.granted(ctx, waiting, began, a.Lease, "a request to step down")
}

// grant is what an acquire is answered.
type grant struct {
	Token uint64 `json:"token"`
	Beat  string `json:"beat"`
}

// otherToken: a heartbeat has the right beats, and a token that is not the record's. By the
// network alone a token and a beat of two tenures do not meet, since no beat comes back:
// the simulator has stores that write late.
func otherToken(ctx context.Context, a *act) ([]string, error) {
	answer, err := a.Post(ctx, 0, a.Worker, service.AcquirePath, map[string]any{"name": lockName, "owner": "naive"})
	if err != nil {
		return nil, err
	}
	var g grant
	if err := json.Unmarshal(answer.Body, &g); err != nil || g.Token == 0 {
		return nil, fmt.Errorf("acquire: %d %s: %w", answer.Status, answer.Body, err)
	}
	answer, err = a.Post(ctx, 0, a.Worker, service.HeartbeatPath, map[string]any{
		"name": lockName, "token": g.Token + 1, "after": g.Beat, "next": nextBeat(g.Beat),
	})
	if err != nil || answer.Status == http.StatusGone {
		return nil, err
	}
	return []string{fmt.Sprintf("a heartbeat with token %d where the record has %d: %d %s; want 410", g.Token+1, g.Token, answer.Status, answer.Body)}, nil
}

// waitersGone: three callers wait for the lock and go away. None of them may get it.
func waitersGone(ctx context.Context, a *act) ([]string, error) {
	one, err := a.first(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := one.Acquire(ctx, lockName); err != nil {
		return nil, err
	}
	const gone = 3
	err = wait.AtOnce(ctx, gone, gone, func(ctx context.Context, i int) error {
		leaves, cancel := context.WithTimeout(ctx, a.Lease/10)
		defer cancel()
		answer, err := a.Post(leaves, 0, a.Worker, service.AcquirePath, map[string]any{
			"name": lockName, "owner": fmt.Sprintf("gone-%d", i+1), "wait_ms": 20_000,
		})
		if leaves.Err() == nil {
			return fmt.Errorf("a waiter has an answer: %d %s, %w", answer.Status, answer.Body, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	two, err := a.second(ctx)
	if err != nil {
		return nil, err
	}
	waiting := two.Begin(two.Asking(wire.Acquire, lockName))
	if err := wait.For(ctx, a.Lease/10); err != nil {
		return nil, err
	}
	released := proc.Monotonic()
	if _, err := one.Release(ctx, lockName); err != nil {
		return nil, err
	}
	return a.granted(ctx, waiting, released, a.Lease/4, "its release, to one who waits")
}
