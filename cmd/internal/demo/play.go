// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"time"
)

const (
	replicaCount = 3
	// beatsShown is how many heartbeats of a leader are waited for before it
	// has to end.
	beatsShown = 3
	// patience bounds each step of the play, beside the leases that it takes.
	patience = 10 * time.Second
)

// play has the three replicas lead one after the other.
func (d *demo) play(ctx context.Context) error {
	d.say("Three processes, one lock, %s. The lease is %s.", d.place, exactly(d.lease))
	d.later("one of the three wins the election", time.Time{})
	for i := range replicaCount {
		if err := d.start(fmt.Sprintf("replica-%d", i+1)); err != nil {
			return err
		}
	}

	first, err := d.awaitLeader(ctx, 1)
	if err != nil {
		return err
	}
	d.say("%s leads with token %d. A heartbeat every %s renews its lease.", first.name, first.token, exactly(d.heartbeat()))
	if err := d.watch(ctx, first, "%s, the leader, is killed by SIGKILL"); err != nil {
		return err
	}

	dead := time.Now()
	d.take(report{Kind: killed, Time: dead, Replica: first.name, PID: first.pid, Token: first.token})
	if err := d.process(first).cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", first.name, err)
	}
	d.say("%s (pid %d) is killed by SIGKILL. Its lease must run out.", first.name, first.pid)
	d.later("one of the others takes over when the lease of "+first.name+" has run out", time.Time{})
	second, err := d.awaitLeader(ctx, 2)
	if err != nil {
		return err
	}
	d.say("%s leads with token %d. It took over %s after the kill; the lease is %s, and the last heartbeat was %s before the kill.",
		second.name, second.token, inSeconds(second.since.Sub(dead)), exactly(d.lease), inSeconds(dead.Sub(first.beat)))
	if err := d.watch(ctx, second, "%s is asked to step down"); err != nil {
		return err
	}

	end := time.Now()
	answer := d.stepDown(ctx, second)
	d.say("%s is asked to step down, by a request in the record of the lock. It stops its work, and stays a candidate.", second.name)
	d.later("the last one learns of the release, and takes the lock at once", time.Time{})
	third, err := d.awaitLeader(ctx, 3)
	if err != nil {
		return err
	}
	if err := <-answer; err != nil {
		return err
	}
	d.say("%s leads with token %d: hand-over in %s from the end of the old leader's work, %s from the request.",
		third.name, third.token, inMillis(third.since.Sub(second.stopped)), inMillis(third.since.Sub(end)))
	if err := d.watch(ctx, third, "both are asked to end by SIGTERM, the leader last"); err != nil {
		return err
	}

	if err := d.ask(second); err != nil {
		return err
	}
	if err := d.await(ctx, second.name+" exits", func() bool { return second.gone }); err != nil {
		return err
	}
	if err := d.ask(third); err != nil {
		return err
	}
	d.later("the lock is released", time.Time{})
	if err := d.await(ctx, third.name+" releases the lock", func() bool { return third.freed }); err != nil {
		return err
	}
	d.say("%s and %s (pid %d) are asked to end by SIGTERM. Nobody leads now.", second.name, third.name, third.pid)
	d.later("the demo ends", time.Time{})
	return d.await(ctx, "all replicas exit", func() bool {
		for _, r := range d.stage.replicas {
			if !r.gone {
				return false
			}
		}
		return true
	})
}

func (d *demo) start(name string) error {
	p, err := d.company.start(name, d.place, d.lease)
	if err != nil {
		return err
	}
	d.take(report{Kind: started, Time: time.Now(), Replica: name, PID: p.pid()})
	return nil
}

// awaitLeader waits for the next leader, which must have the token.
func (d *demo) awaitLeader(ctx context.Context, token uint64) (*replica, error) {
	err := d.await(ctx, fmt.Sprintf("a leader with token %d", token), func() bool {
		return d.stage.leader != nil && !d.stage.leader.ending && d.stage.leader.token >= token
	})
	if err != nil {
		return nil, err
	}
	r := d.stage.leader
	if r.token != token {
		return nil, fmt.Errorf("%s leads with token %d: it must be %d", r.name, r.token, token)
	}
	return r, nil
}

// watch lets the leader lead for some heartbeats, and ends in the middle
// between two. next says what comes then.
func (d *demo) watch(ctx context.Context, r *replica, next string) error {
	half := d.heartbeat() / 2
	d.later(fmt.Sprintf(next, r.name), r.since.Add(beatsShown*d.heartbeat()+half))
	err := d.await(ctx, fmt.Sprintf("%d heartbeats of %s", beatsShown, r.name), func() bool { return r.beats >= beatsShown })
	if err != nil {
		return err
	}
	return d.until(ctx, r.beat.Add(half))
}

// reason is why the second leader has to make way.
const reason = "it is another one's turn"

// stepDown asks the leader to step down, as tenure step-down does, and returns
// a channel for what came of it.
func (d *demo) stepDown(ctx context.Context, r *replica) <-chan error {
	answer := make(chan error, 1)
	d.take(report{Kind: steppedDown, Time: time.Now(), Replica: r.name, PID: r.pid, Token: r.token})
	go func() {
		ctx, cancel := context.WithTimeout(ctx, patience+d.lease)
		defer cancel()
		if err := d.operator.StepDown(ctx, d.place.lock, reason); err != nil {
			answer <- fmt.Errorf("ask %s to step down: %w", r.name, err)
			return
		}
		answer <- nil
	}()
	return answer
}

// ask asks the replica to end.
func (d *demo) ask(r *replica) error {
	d.take(report{Kind: asked, Time: time.Now(), Replica: r.name, PID: r.pid, Token: r.token})
	if err := d.process(r).ask(); err != nil {
		return fmt.Errorf("ask %s to end: %w", r.name, err)
	}
	return nil
}

func (d *demo) process(r *replica) *process {
	for _, p := range d.company.members {
		if p.name == r.name {
			return p
		}
	}
	return nil // not reached: replicas are known by their process first
}

// heartbeat is the period that follows from the lease.
func (d *demo) heartbeat() time.Duration { return d.lease / 5 }
