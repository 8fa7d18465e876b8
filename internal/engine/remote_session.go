// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// RemoteOpen opens a session for the remote holder that rec names, and returns its record. See
// [protocol.NewRemoteSessionOpener].
func (c *Client) RemoteOpen(ctx context.Context, rec driver.Record) (driver.Record, error) {
	m := protocol.NewRemoteSessionOpener(c.timing, c.env, rec, 3*c.timing.RequestTimeout)
	return c.remoteAnswer(ctx, m, "")
}

// RemoteLook returns the record of a remote holder's session, as a strong read shows it now; beat is
// any of its beats. The errors are those of RemoteWrite.
func (c *Client) RemoteLook(ctx context.Context, id, beat string) (driver.Record, error) {
	key := driver.SessionKey(id)
	m := protocol.NewSessionLook(c.timing, c.env, id, beat, 3*c.timing.RequestTimeout)
	return c.remoteAnswer(ctx, m, key)
}

// remoteMachine is a machine that ends with a record.
type remoteMachine interface {
	protocol.Machine
	Answer() (protocol.Answer, driver.Record, error)
}

// remoteAnswer drives a machine until it has its answer. An error without an answer matches
// ErrUncertain.
func (c *Client) remoteAnswer(ctx context.Context, m remoteMachine, key string) (driver.Record, error) {
	if err := c.Usable(); err != nil {
		return driver.Record{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Record{}, uncertain(Done(ctx))
	}
	w := &remoteRun{c: c, key: key, m: m, ended: make(chan struct{})}
	w.run = c.run(m, w, new(sync.Mutex))
	w.run.step()
	select {
	case <-w.ended:
	case <-ctx.Done():
		w.run.do(m.GiveUp)
		return driver.Record{}, uncertain(Done(ctx))
	case <-c.gone:
		return driver.Record{}, uncertain(ErrClosed)
	}
	w.run.mutex.Lock()
	answer, rec, err := m.Answer()
	w.run.mutex.Unlock()
	switch answer {
	case protocol.Done:
		return rec, nil
	case protocol.HolderChanged:
		return driver.Record{}, c.options.API.Superseded(0, rec)
	case protocol.Unusable:
		return driver.Record{}, uncertain(err)
	}
	return driver.Record{}, uncertain(ErrClosed)
}

// remoteRun is one machine that a call of a remote holder waits for.
type remoteRun struct {
	nobody
	c     *Client
	key   string // of the record, empty if it has none yet
	run   run
	m     remoteMachine
	ended chan struct{} // closed when the machine has its answer
}

func (w *remoteRun) stepped(time.Duration, protocol.Action) {
	if answer, _, _ := w.m.Answer(); answer != protocol.NoAnswer {
		closeOnce(w.ended)
	}
}

func (w *remoteRun) replied(_ time.Duration, _ *protocol.Call, res protocol.Result) {
	w.c.events.storeFailed(w.key, 0, res.Err)
}

// remoteClosed notes that a remote holder has closed its session: waiters for the locks under it
// read them at once, and its record is deleted when that is allowed.
func (c *Client) remoteClosed(rec driver.Record) {
	id := driver.SessionID(rec.Key)
	c.viewMu.Lock()
	now := c.clock()
	c.sessions.Of(id).Observe(now, now, driver.Strong, rec, true)
	c.reapLater(id)
	c.viewMu.Unlock()
	c.mu.Lock()
	all := make([]*tracker, 0, len(c.trackers))
	for _, k := range c.trackers {
		all = append(all, k)
	}
	c.mu.Unlock()
	for _, k := range all {
		if k.awaited.Load() && k.isUnder(id) {
			k.hint()
		}
	}
}

// isUnder says whether the lock was last read under the session.
func (k *tracker) isUnder(session string) bool {
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	rec, _ := k.view.Record()
	return k.view.UnderSession() && rec.Session == session
}
