// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"container/list"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
)

// Client is what all locks of one process share: the store, the heartbeats,
// the timers. A process needs one for each store. All methods may be called
// concurrently.
type Client struct {
	base
	trackers

	offers offers // of locks that were granted for holders elsewhere
	lately lately // what was seen of theirs
}

// New returns a client that keeps its locks in the store. The store stays the
// caller's to close, after [Client.Close]. Options may be nil; an error names
// each rule that they break, with its numbers.
func New(store driver.Store, options *Options) (*Client, error) {
	o := options.withDefaults()
	err := o.validate()
	if store == nil {
		err = errors.Join(errors.New("store is nil: open one, such as memstore.New()"), err)
	}
	if err != nil {
		return nil, refused("tenure: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	c := &Client{}
	c.begin(o)
	c.trackers = trackers{b: &c.base, all: map[string]*tracker{}, idle: list.New()}
	c.released = c.hint
	c.store = engine.NewCheckedStore(store, c.endAll)
	c.watcher, _ = store.(driver.Watcher)
	if r, ok := store.(driver.RefusalCharger); ok {
		c.charges = r.ChargesRefusals()
	}
	c.notice(store)
	return c, nil
}

// Options returns the options of the client, with the defaults filled in for what
// was left zero, except for the callbacks and the clock.
func (c *Client) Options() Options { return c.options }

// A store is replaced when others find another one under its name: its file was
// deleted, or another one was put in its place. What this client reads and writes
// then excludes nobody any more, and a successor may have begun already. So all that
// rests on the store ends at once: leases and sessions as superseded, waits with the
// store's error. Nothing more is sent to the store, a release included: no other
// process would see it.

var errNotified = errors.New("others find another store under the name of this one: restart every program that uses it")

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
			c.store.Replace(driver.Replaced(errNotified))
		case <-c.gone:
		}
	})
}

// endAll ends all that rests on the store.
func (c *Client) endAll(err error) {
	c.mu.Lock()
	kept, trackers := c.inOrder(), slices.Collect(maps.Values(c.all))
	c.mu.Unlock()

	close(c.voided)
	for _, k := range kept {
		k.void() // Check fails from here on, whatever else is to be done
	}
	for _, k := range trackers {
		k.fails(err)
	}
	for _, k := range kept {
		k.replaced(err)
	}
}
