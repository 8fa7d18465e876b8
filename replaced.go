// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// A store is replaced when others find another one under its name: its file was
// deleted, or another one was put in its place. What this client reads and writes
// then excludes nobody any more, and a successor may have begun already. So all that
// rests on the store ends at once: leases and sessions as superseded, waits with the
// store's error. Nothing is released: there is nobody to whom that would tell
// anything, and nothing is sent to the store any more.

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
	c.requests.beside(func() {
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
	leases := make([]*Lease, 0, len(c.leases))
	for l := range c.leases {
		leases = append(leases, l)
	}
	contests := make([]*contest, 0, len(c.contests))
	for _, k := range c.contests {
		contests = append(contests, k)
	}
	c.mu.Unlock()

	close(c.voided)
	for _, l := range leases {
		l.end(endedReplaced) // Check fails from here on, whatever else is to be done
	}
	for _, k := range contests {
		k.fails(err)
	}
	for _, l := range leases {
		if l.heads != nil { // the others end with it
			l.replaced(err)
		}
	}
	for _, l := range leases {
		l.replaced(err)
	}
}

// replaced ends the lease because the store was replaced.
func (l *Lease) replaced(err error) {
	l.end(endedReplaced)
	l.do(func(now time.Duration) protocol.Action { return l.h.Replace(now, err) })
}

// usable returns why nothing can be acquired any more, nil if it can. The caller
// holds the client.
func (c *Client) usable() error {
	if c.closed {
		return ErrClosed
	}
	return c.store.gone()
}

// refusal is usable for those who do not hold the client.
func (c *Client) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usable()
}
