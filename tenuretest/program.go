// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest

import "context"

// Go runs f in a goroutine, as the program of the client, or as a part of it. The context
// ends when the process is asked to stop ([Client.Stop]), when it was killed, and with the
// test, which does not end before f has returned. An error that f returns fails the test,
// unless the client was killed by then, or the test has ended.
func (c *Client) Go(f func(ctx context.Context) error) {
	c.w.t.Helper()
	if !c.lives("Go") {
		return
	}
	c.running.Go(func() {
		if err := f(c.ctx); err != nil && !c.killed() && c.w.t.Context().Err() == nil {
			c.w.t.Errorf("tenuretest: the program of %q: %v", c.name, err)
		}
	})
}

// Stop asks the process of the client to end, as SIGTERM does: the context of [Client.Go]
// ends. Stop does not wait for that.
func (c *Client) Stop() {
	c.w.t.Helper()
	if c.lives("Stop") {
		c.stop()
	}
}

// Stop stops all clients, as [Client.Stop] does, and waits until everything that they run by
// [Client.Go] has returned.
func (w *World) Stop() {
	clients := w.all()
	for _, c := range clients {
		c.stop()
	}
	for _, c := range clients {
		c.running.Wait()
	}
}
