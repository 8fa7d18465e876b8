// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Watch has hint called after each change of key that [driver.Watcher] names. It watches
// a key that heartbeats do not write. A member without a leader ends the watch, which is
// then created again through another member.
func (s *Store) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	if hint == nil {
		panic("etcdstore: Watch with a nil hint") //nolint:forbidigo // a programmer's error
	}
	return s.life.Watch(ctx, hint, func(ctx context.Context, standing func()) error {
		return s.failed(s.watchOnce(clientv3.WithRequireLeader(ctx), s.wakeKey(key), hint, standing))
	})
}

var errWatchEnded = errors.New("the watch has ended")

// watchOnce watches until etcd ends the watch: because of a compaction, say. The client
// itself goes on after a lost connection, from the last revision that it received.
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
