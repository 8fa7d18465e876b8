// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"context"
	"sync"

	"github.com/tenurelock/tenure/zkstore/internal/wire"
)

// watch is what this store watches of one node.
type watch struct {
	hints map[*func()]struct{}
}

// Watch has hint called after each change of key that [driver.Watcher] names. ZooKeeper
// watches the children of the record's node, and a heartbeat changes no child. A watch
// of ZooKeeper fires once: it is set again before hint is called. After a connection was
// lost all watches are set again, and call their hints.
func (s *Store) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	if hint == nil {
		panic("zkstore: Watch with a nil hint") //nolint:forbidigo // a programmer's error
	}
	if err := s.life.Ready(ctx); err != nil {
		return nil, err
	}
	path := s.path(key)
	s.mu.Lock()
	w := s.watches[path]
	if w == nil {
		w = &watch{hints: map[*func()]struct{}{}}
		s.watches[path] = w
	}
	w.hints[&hint] = struct{}{}
	s.mu.Unlock()
	stop = sync.OnceFunc(func() { s.unwatch(path, &hint) })
	if err := s.set(ctx, path); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// unwatch ends one watch of a path. After the last one ZooKeeper need not report changes any
// more.
func (s *Store) unwatch(path string, hint *func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watches[path]
	if w == nil {
		return
	}
	delete(w.hints, hint)
	if len(w.hints) == 0 {
		delete(s.watches, path)
		s.client.Go(func([]wire.Reply, error) {}, wire.RemoveWatches(path))
	}
}

// set sets the watch of a path, and waits for that.
func (s *Store) set(ctx context.Context, path string) error {
	replies, err := s.client.Do(ctx, wire.GetChildren(path, true))
	if err == nil && replies[0].Code == wire.NoNode {
		replies, err = s.client.Do(ctx, wire.WatchCreation(path))
		if err == nil && replies[0].Code == wire.NoNode {
			return nil // and the watch stands
		}
	}
	if err != nil {
		return s.failed(err)
	}
	if code := replies[0].Code; code != wire.OK {
		return s.refused(code)
	}
	return nil
}

// setAgain sets the watch of a path and calls its hints then. It does not wait.
func (s *Store) setAgain(path string) {
	s.client.Go(func(replies []wire.Reply, err error) {
		switch {
		case err != nil: // the next connection sets it again
		case replies[0].Code == wire.NoNode:
			s.client.Go(func(_ []wire.Reply, err error) {
				if err == nil {
					s.hint(path)
				}
			}, wire.WatchCreation(path))
		default:
			s.hint(path)
		}
	}, wire.GetChildren(path, true))
}

func (s *Store) hint(path string) {
	var hints []func()
	s.mu.Lock()
	if w := s.watches[path]; w != nil {
		for hint := range w.hints {
			hints = append(hints, *hint)
		}
	}
	s.mu.Unlock()
	for _, hint := range hints {
		hint()
	}
}

// fired is called when a watch has fired.
func (s *Store) fired(path string) {
	s.mu.Lock()
	watched := s.watches[path] != nil
	s.mu.Unlock()
	if watched {
		s.setAgain(path)
	}
}

// connected is called with each new connection, which has no watches.
func (s *Store) connected() {
	s.mu.Lock()
	var paths []string
	for path := range s.watches {
		paths = append(paths, path)
	}
	s.mu.Unlock()
	for _, path := range paths {
		s.setAgain(path)
	}
}
