// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest

import (
	"fmt"
	"slices"
)

// Work notes that the program is at work under the lock or the election of that name, until
// done is called; and fails the test if a client, this one or another, is at the same work
// already. A client that was killed, or is paused, does not count: its goroutines run on in
// a test, and would not in a real process.
//
//	defer client.Work("scheduler")()
func (c *Client) Work(lock string) (done func()) {
	c.w.t.Helper()
	c.w.mu.Lock()
	for _, other := range c.w.working[lock] {
		if !other.killed() && !other.process.paused() {
			c.w.t.Errorf("tenuretest: %q begins its work under %q beside %q", c.name, lock, other.name)
		}
	}
	c.w.working[lock] = append(c.w.working[lock], c)
	c.w.mu.Unlock()
	return func() {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		i := slices.Index(c.w.working[lock], c)
		c.w.working[lock] = slices.Delete(c.w.working[lock], i, i+1)
	}
}

// Working returns the clients that are at work under the lock or the election of that name
// (see [Client.Work]), in the order in which they began.
func (w *World) Working(lock string) []*Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.working[lock])
}

// Worker waits until one client, and no other one, is at work under the lock or the election
// of that name, and returns it: see [World.Until] and [Client.Work].
func (w *World) Worker(lock string) *Client {
	w.t.Helper()
	var at []*Client
	w.Until(fmt.Sprintf("one client is at work under %q", lock), func() bool {
		at = w.Working(lock)
		return len(at) == 1
	})
	return at[0]
}
