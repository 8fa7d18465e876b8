// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"sync"
	"time"

	"github.com/tenurelock/tenure"
)

// leaders are the answers of /v1/leader to those without a token: load balancers that ask
// each second, and whoever comes through them. One that somebody leads is kept for as long as
// readiness is; that a leader has come is seen at once.
type leaders struct {
	client *tenure.Client

	mu sync.Mutex
	by map[string]*led
}

// led is who leads one lock.
type led = recent[tenure.Leader]

// maxLed bounds how many names have an answer.
const maxLed = 1000

// ask returns who leads a lock, as it was known within the last second. It counts only reads of
// the store, and of those only the first one of a name, and those of a name that nobody leads:
// a load balancer that asks for a leader is never told to wait because of what strangers ask.
func (l *leaders) ask(name string, count func() error) (tenure.Leader, error) {
	l.mu.Lock()
	of := l.by[name]
	if of == nil {
		l.makeRoom()
		if err := count(); err != nil { // not for long: it asks no store
			l.mu.Unlock()
			return tenure.Leader{}, err
		}
		of = &led{}
		l.by[name] = of
	}
	l.mu.Unlock()
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.err != nil || of.over() {
		if of.err != nil {
			if err := count(); err != nil {
				return tenure.Leader{}, err
			}
		}
		of.ask(l.client.Election(name, nil).Leader)
	}
	return of.value, of.err
}

// makeRoom forgets names, if there are many: first those that nobody leads, or asks for. The
// caller holds the mutex.
func (l *leaders) makeRoom() {
	if len(l.by) >= maxLed {
		for name, of := range l.by {
			if of.mu.TryLock() {
				if of.err != nil || time.Since(of.asked) > time.Minute {
					delete(l.by, name)
				}
				of.mu.Unlock()
			}
		}
	}
	if len(l.by) >= maxLed || l.by == nil {
		l.by = map[string]*led{}
	}
}
