// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
)

// Times so long that no heartbeat falls into a count of something else.
var longTimes = timing{10 * time.Minute, 150 * time.Second, time.Second}

// What is counted one at a time.
const (
	takeFree     = "take a free lock"
	oneHeartbeat = "one heartbeat"
	tryHeld      = "a try at a lock that is held"
	releaseOne   = "release"
	takeReleased = "take a lock that was released"
	takeHistory  = "take and release, with history, as elections have it"
	takeShared   = "take a lock that was released, in a table shared with another client"
	takeDead     = "take over a dead holder's lock"
)

// single counts the requests of what is done one at a time.
func single(ctx context.Context, r *rig) error {
	setting := fmt.Sprintf("%v; each client's own default at release: the Java client deletes the item, the others keep it", longTimes)
	var all findings
	err := r.eachClient(ctx, longTimes, func(ctx context.Context, s *stage) error {
		holder, err := s.member(ctx, true)
		if err != nil {
			return err
		}
		other, err := s.member(ctx, true)
		if err != nil {
			return err
		}
		names := numbered(r.size.locks)
		acquire := func(name string) error { _, err := holder.acquire(ctx, name); return err }
		release := func(name string) error { _, err := holder.release(ctx, name); return err }
		for _, part := range []struct {
			what string
			do   func(name string) error
		}{
			{takeFree, acquire},
			{oneHeartbeat, func(name string) error { return holder.heartbeat(ctx, name) }},
			{tryHeld, func(name string) error { return other.refused(ctx, name) }},
			{releaseOne, release},
			{takeReleased, acquire},
		} {
			if _, err := s.wire.take(); err != nil {
				return err
			}
			for _, name := range names {
				if err := part.do(name); err != nil {
					return fmt.Errorf("%s: %w", part.what, err)
				}
			}
			u, err := s.wire.take()
			if err != nil {
				return err
			}
			all.put(row{Step: "single", What: part.what, Setting: setting, Kind: counted}, s.name, perMillion(u.over(float64(len(names)))))
		}
		return nil
	})
	r.add(all.inOrder([]string{takeFree, takeReleased, tryHeld, oneHeartbeat, releaseOne})...)
	return err
}

// variants counts what Tenure does for more, which the others have not.
func variants(ctx context.Context, r *rig) error {
	setting := fmt.Sprintf("Tenure alone, in the process of the benchmark; %v; after a first round", longTimes)
	return r.staged(ctx, tenureClient(), longTimes, func(ctx context.Context, s *stage) error {
		rounds := func(name string, options *dynamostore.Options, acquire *tenure.AcquireOptions) (took, both usage, err error) {
			store, err := dynamostore.New(connect(s.wire.URL), s.table, options)
			if err != nil {
				return took, both, err
			}
			client, err := tenure.New(store, &tenure.Options{LeaseDuration: s.lease, HeartbeatPeriod: s.heartbeat, RefreshPeriod: s.refresh})
			if err != nil {
				return took, both, err
			}
			defer func() { err = firstOf(err, client.Close(context.WithoutCancel(ctx))) }()
			for i := range r.size.locks + 1 {
				lease, err := client.Acquire(ctx, name, acquire)
				if err != nil {
					return took, both, err
				}
				acquired, err := s.wire.take()
				if err != nil {
					return took, both, err
				}
				if err := lease.Release(ctx); err != nil {
					return took, both, err
				}
				released, err := s.wire.take()
				if err != nil {
					return took, both, err
				}
				if i > 0 { // before the first one there was no tenure
					took.add(acquired)
					both.add(acquired)
					both.add(released)
				}
			}
			return took, both, nil
		}
		n := float64(r.size.locks)
		_, history, err := rounds("with-history", nil, &tenure.AcquireOptions{History: true})
		if err != nil {
			return err
		}
		shared, _, err := rounds("shared", &dynamostore.Options{SharedTable: true}, nil)
		if err != nil {
			return err
		}
		var all findings
		all.put(row{Step: "variants", What: takeHistory, Setting: setting, Kind: counted}, tenureName, perMillion(history.over(n)))
		all.put(row{Step: "variants", What: takeShared, Setting: setting, Kind: counted}, tenureName, perMillion(shared.over(n)))
		r.add(all.rows...)
		return nil
	})
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// takeover counts what it takes to get the lock of a holder that was killed, from
// the first request of a process that comes afterwards.
func takeover(ctx context.Context, r *rig) error {
	setting := fmt.Sprintf("%v; the holder was killed before; the requests of the successor, who comes afterwards and waits", r.size.takeover)
	var all findings
	err := r.eachClient(ctx, r.size.takeover, func(ctx context.Context, s *stage) error {
		names := numbered(r.size.locks)
		if err := s.orphan(ctx, names); err != nil {
			return err
		}
		successor, err := s.member(ctx, true)
		if err != nil {
			return err
		}
		if err := acquireAll(ctx, successor, names); err != nil {
			return err
		}
		// All come within a heartbeat period, so none of these is in it.
		u, err := s.wire.take()
		if err != nil {
			return err
		}
		all.put(row{Step: "takeover", What: takeDead, Setting: setting, Kind: counted}, s.name, perMillion(u.over(float64(len(names)))))
		return nil
	})
	r.add(all.rows...)
	return err
}

// orphan leaves locks whose holder is dead.
func (s *stage) orphan(ctx context.Context, names []string) error {
	holder, err := s.member(ctx, false)
	if err != nil {
		return err
	}
	if err := acquireAll(ctx, holder, names); err != nil {
		return err
	}
	holder.Kill()
	return nil
}

func acquireAll(ctx context.Context, m *member, names []string) error {
	return atOnce(ctx, len(names), 16, func(ctx context.Context, i int) error {
		_, err := m.acquire(ctx, names[i])
		return err
	})
}
