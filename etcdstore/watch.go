// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/driver"
)

// The pause before a watch that has ended is made again grows from the first to the
// last.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Watch has hint called after each change of key that [driver.Watcher] names. It watches
// a key that heartbeats do not write. A member that has no leader ends the watch, which
// is made again through another one.
func (s *Store) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	if hint == nil {
		panic("etcdstore: Watch with a nil hint") //nolint:forbidigo // a programmer's error
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.closing.Lock()
	if s.closed {
		s.closing.Unlock()
		return nil, driver.ErrClosed
	}
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(s.ctx))
	stands := make(chan error, 1)
	s.watchers.Go(func() { s.keepWatching(watching, s.wakeKey(key), hint, stands) })
	s.closing.Unlock()
	select {
	case err = <-stands:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return cancel, nil
}

// keepWatching watches until ctx ends. It tells once whether the first watch stands.
func (s *Store) keepWatching(ctx context.Context, key string, hint func(), stands chan<- error) {
	stood, pause := false, firstPause
	for {
		once, end := context.WithCancel(ctx)
		err := s.watchOnce(once, key, hint, func() {
			if stood {
				hint() // what has changed meanwhile is unknown
			} else {
				stands <- nil
			}
			stood, pause = true, firstPause
		})
		end()
		switch {
		case ctx.Err() != nil:
			if !stood {
				stands <- driver.ErrClosed
			}
			return
		case !stood:
			stands <- s.failed(err)
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, lastPause)
	}
}

var errWatchEnded = errors.New("the watch has ended")

// watchOnce watches until etcd ends the watch: because of a compaction, say. The client
// itself goes on after a lost connection, from the last revision that it was told of.
func (s *Store) watchOnce(ctx context.Context, key string, hint, standing func()) error {
	for answer := range s.client.Watch(ctx, key, clientv3.WithCreatedNotify()) {
		if err := answer.Err(); err != nil {
			return err
		}
		if answer.Created {
			standing()
		}
		if len(answer.Events) > 0 {
			hint()
		}
	}
	return errWatchEnded
}
