// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/keepers"
)

// Times so long that no heartbeat falls into a count of something else.
var longTimes = timing(10*time.Minute, 150*time.Second, time.Second)

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
	line := row{Step: "single", Kind: counted, Setting: fmt.Sprintf("%v; each client's own default at release: the Java client deletes the item, the others keep it", longTimes)}
	r.inOrder(line, takeFree, takeReleased, tryHeld, oneHeartbeat, releaseOne)
	return r.eachClient(ctx, longTimes, func(ctx context.Context, s *stage) error {
		holder, err := s.member(ctx, true)
		if err != nil {
			return err
		}
		other, err := s.member(ctx, true)
		if err != nil {
			return err
		}
		names := keepers.Names(r.size.locks)
		acquire := func(name string) error { _, err := holder.Acquire(ctx, name); return err }
		release := func(name string) error { _, err := holder.Release(ctx, name); return err }
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
			u, err := s.wire.During(func() error {
				for _, name := range names {
					if err := part.do(name); err != nil {
						return fmt.Errorf("%s: %w", part.what, err)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			r.put(line, part.what, s.name, perMillion(u.Over(float64(len(names)))))
		}
		return nil
	})
}

// variants counts what Tenure does for more, which the others have not.
func variants(ctx context.Context, r *rig) error {
	line := row{Step: "variants", Kind: counted, Setting: fmt.Sprintf("Tenure alone, in the process of the benchmark; %v; after a first round", longTimes)}
	return r.staged(ctx, peers.Own(peers.Tenure), longTimes, func(ctx context.Context, s *stage) error {
		rounds := func(name string, options *dynamostore.Options, acquire *tenure.AcquireOptions) (took, both gate.Usage, err error) {
			client, err := s.Tenure(dynamo.Connect(s.wire.Address()), s.table.Name, options)
			if err != nil {
				return took, both, err
			}
			defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
			for i := range r.size.locks + 1 {
				var lease *tenure.Lease
				acquired, err := s.wire.During(func() (err error) { lease, err = client.Acquire(ctx, name, acquire); return err })
				if err != nil {
					return took, both, err
				}
				released, err := s.wire.During(func() error { return lease.Release(ctx) })
				if err != nil {
					return took, both, err
				}
				if i > 0 { // before the first one there was no tenure
					took.Add(acquired)
					both.Add(acquired)
					both.Add(released)
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
		r.put(line, takeHistory, tenureName, perMillion(history.Over(n)))
		r.put(line, takeShared, tenureName, perMillion(shared.Over(n)))
		return nil
	})
}

// takeover counts what it takes to get the lock of a holder that was killed, from
// the first request of a process that comes afterwards.
func takeover(ctx context.Context, r *rig) error {
	line := row{Step: "takeover", Kind: counted, Setting: fmt.Sprintf("%v; the holder was killed before; the requests of the successor, who comes afterwards and waits", r.size.takeover)}
	return r.eachClient(ctx, r.size.takeover, func(ctx context.Context, s *stage) error {
		names := keepers.Names(r.size.locks)
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
		u, err := s.wire.Take()
		if err != nil {
			return err
		}
		r.put(line, takeDead, s.name, perMillion(u.Over(float64(len(names)))))
		return nil
	})
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
