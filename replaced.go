// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"errors"
	"maps"
	"slices"

	"github.com/tenurelock/tenure/driver"
)

// A store is replaced when others find another one under its name: its file was
// deleted, or another one was put in its place. What this client reads and writes
// then excludes nobody any more, and a successor may have begun already. So all that
// rests on the store ends at once: leases and sessions as superseded, waits with the
// store's error. Nothing more is sent to the store, a release included: no other
// process would see it.

var errNotified = errors.New("others find another store under its name")

// notice ends the client's leases when the store says without a call that it was
// replaced. It is one goroutine of the client, which ends with it.
func (c *Client) notice(store driver.Store) {
	n, ok := store.(driver.ReplacedNotifier)
	if !ok {
		return
	}
	replaced := n.Replaced()
	if replaced == nil {
		return
	}
	c.calls.Beside(func() {
		select {
		case <-replaced:
			c.store.replace(driver.Replaced(errNotified))
		case <-c.gone:
		}
	})
}

// endAll ends all that rests on the store.
func (c *Client) endAll(err error) {
	c.mu.Lock()
	kept := slices.Collect(maps.Keys(c.kept))
	trackers := make([]*tracker, 0, len(c.trackers))
	for _, k := range c.trackers {
		trackers = append(trackers, k)
	}
	c.mu.Unlock()

	close(c.voided)
	for _, k := range kept {
		k.right.end(endedReplaced) // Check fails from here on, whatever else is to be done
	}
	for _, k := range trackers {
		k.fails(err)
	}
	for _, k := range sessionsFirst(kept) {
		k.replaced(err)
	}
}

// usable returns why nothing can be acquired any more, nil if it can. The caller
// holds the client.
func (c *Client) usable() error {
	if c.closed {
		return ErrClosed
	}
	return c.store.gone()
}

// refusal is usable for callers that do not hold the client.
func (c *Client) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usable()
}
