// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/rueidis"

	"github.com/tenurelock/tenure/driver"
)

// watches are those of a store, which share one subscription. It is made with the first, and ends with the store.
type watches struct {
	making chan struct{} // holds the only token while the subscription is made

	mu     sync.Mutex
	stands bool // it was made, and is kept
	hints  map[string]map[*func()]bool
}

func newWatches() watches {
	return watches{making: make(chan struct{}, 1), hints: map[string]map[*func()]bool{}}
}

// Watch has hint called after each change of key that [driver.Watcher] names.
func (s *Store) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	if hint == nil {
		panic("redisstore: Watch with a nil hint") //nolint:forbidigo // a programmer's error
	}
	if err := s.life.Ready(ctx); err != nil {
		return nil, err
	}
	w := &s.watches
	w.add(key, &hint) // before the subscription, so that no change comes between
	stop = func() { w.remove(key, &hint) }
	if err := s.subscribed(ctx); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// subscribed makes the subscription, unless there is one. An interrupted one hints all watches when it is set again.
func (s *Store) subscribed(ctx context.Context) error {
	w := &s.watches
	select {
	case w.making <- struct{}{}:
		defer func() { <-w.making }()
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mu.Lock()
	stands := w.stands
	w.mu.Unlock()
	if stands {
		return nil
	}
	_, err := s.life.Watch(ctx, w.all, s.subscribe)
	w.mu.Lock()
	w.stands = err == nil
	w.mu.Unlock()
	return err
}

// subscribe hears of changes until the subscription ends.
func (s *Store) subscribe(ctx context.Context, standing func()) error {
	client, err := s.connected(undated{ctx}, true)
	if err != nil {
		return err
	}
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(p rueidis.PubSubSubscription) {
		if p.Kind == "subscribe" {
			standing()
		}
	})
	err = client.Receive(ctx, client.B().Subscribe().Channel(s.key("wake")).Build(), func(m rueidis.PubSubMessage) {
		s.watches.hear(m.Message)
	})
	if err == nil {
		err = errors.New("redis: the subscription has ended")
	}
	return s.failed(ctx, err)
}

func (w *watches) add(key string, hint *func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hints[key] == nil {
		w.hints[key] = map[*func()]bool{}
	}
	w.hints[key][hint] = true
}

func (w *watches) remove(key string, hint *func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.hints[key], hint)
	if len(w.hints[key]) == 0 {
		delete(w.hints, key)
	}
}

// hear hints the watches of a key.
func (w *watches) hear(key string) {
	w.mu.Lock()
	hints := make([]func(), 0, len(w.hints[key]))
	for hint := range w.hints[key] {
		hints = append(hints, *hint)
	}
	w.mu.Unlock()
	for _, hint := range hints {
		hint()
	}
}

// all hints all watches.
func (w *watches) all() {
	w.mu.Lock()
	var hints []func()
	for _, of := range w.hints {
		for hint := range of {
			hints = append(hints, *hint)
		}
	}
	w.mu.Unlock()
	for _, hint := range hints {
		hint()
	}
}

var _ driver.Watcher = (*Store)(nil)
