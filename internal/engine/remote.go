// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// RemoteAcquire takes a lock for the remote holder that want names, and returns the granted
// record. With history, the client also writes the former holder's term into the history, beside the grant.
// waiting, unless nil, is called for each holder that the call waits for.
func (c *Client) RemoteAcquire(
	ctx context.Context, want protocol.Want, history bool, waiting func(held error),
) (driver.Record, error) {
	k, err := c.tracker(want.Key)
	if err != nil {
		return driver.Record{}, err
	}
	// A remote holder of that owner name may be alive, although this process has no lease.
	want.ReadFirst, want.Holds = c.charges, true
	a := k.newAcquire(AcquireOptions{Want: want, Timing: &c.timing, History: history})
	a.remote = &remoteAcquire{c: c, waiting: waiting, held: make(chan error, 1)}
	a.join()
	got := a.wait(ctx)
	if got.err != nil {
		return driver.Record{}, got.err
	}
	return got.o.rec, nil
}

// RemoteCounts is called just before a grant is sent to its remote holder. It returns for how long
// the holder may act after it sent its acquire, which arrived at began, an instant of [Client.Clock];
// 0 if the holder must not count the grant, for example because the acquire has waited. A grant
// that may be counted is never released here.
func (c *Client) RemoteCounts(key string, token uint64, began time.Duration) (usable time.Duration) {
	if o := c.grants.of(key, token); o != nil && !o.waited {
		o.run.do(func(now time.Duration) protocol.Action {
			usable = o.m.Counts(now, c.clock()-began)
			return protocol.Action{}
		})
	}
	return usable
}

// RemoteDiscard releases at once a lock that was granted to a remote holder, if that holder
// has shown no life through this process, and may not have counted the grant.
func (c *Client) RemoteDiscard(key string, token uint64) {
	if o := c.grants.take(key, token); o != nil {
		o.giveUp()
	}
}

// RemoteWrite carries out what a remote holder has sent, and returns the resulting record. The
// error says which record has ended the lease or, without an answer, matches ErrUncertain.
func (c *Client) RemoteWrite(ctx context.Context, d protocol.RemoteHeartbeat) (driver.Record, error) {
	if err := c.Usable(); err != nil {
		return driver.Record{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Record{}, uncertain(Done(ctx))
	}
	w := newRemoteWrite(c, d)
	w.run.step()
	select {
	case <-w.ended:
	case <-ctx.Done():
		w.run.do(w.m.GiveUp)
		return driver.Record{}, uncertain(Done(ctx))
	case <-c.gone:
		return driver.Record{}, uncertain(ErrClosed)
	}
	w.run.mutex.Lock()
	answer, rec, err := w.m.Answer()
	w.run.mutex.Unlock()
	switch answer {
	case protocol.Done:
		if d.Releases() {
			c.records.forget(d.Key)
		} else {
			c.records.note(rec)
		}
		if rec.State == driver.Closed {
			c.remoteClosed(rec)
		}
		if o := c.grants.of(d.Key, d.Token); o != nil {
			o.taken(d.After)
		}
		return rec, nil
	case protocol.HolderChanged:
		c.records.forget(d.Key)
		return driver.Record{}, c.options.API.Superseded(d.Token, rec)
	case protocol.Unusable:
		return driver.Record{}, uncertain(err)
	}
	return driver.Record{}, uncertain(ErrClosed)
}

// remoteAcquire links an acquire to its remote holder.
type remoteAcquire struct {
	c       *Client
	waiting func(error)
	held    chan error // buffer of one: the latest
	waited  bool       // for a holder
}

// meets notes the holder that the acquire waits for. The caller holds viewMu.
func (w *remoteAcquire) meets(held error) {
	if w.waited = true; w.waiting == nil {
		return
	}
	select {
	case <-w.held: //nolint:errcheck // an older one
	default:
	}
	w.held <- held
}

// offer takes the grant, and releases the lock if no caller waits for it any more.
func (w *remoteAcquire) offer(g protocol.Grant, wanted bool) *unconfirmedGrant {
	c := w.c
	o := c.newGrant(g)
	o.waited = w.waited
	if !wanted {
		o.giveUp()
		return o
	}
	c.records.note(g.Record)
	c.grants.put(o)
	o.run.step()
	return o
}

// unconfirmedGrant is a lock that was granted to a remote holder, until that holder shows
// life.
type unconfirmedGrant struct {
	nobody
	c       *Client
	rec     driver.Record
	run     run
	m       *protocol.UnconfirmedGrant
	waited  bool // its acquire, for another holder
	awaited bool // Close waits for it
	ended   bool
}

func (c *Client) newGrant(g protocol.Grant) *unconfirmedGrant {
	o := &unconfirmedGrant{c: c, rec: g.Record, m: protocol.NewUnconfirmedGrant(c.timing, c.env, g)}
	o.run = c.run(o.m, o, new(sync.Mutex))
	return o
}

func (o *unconfirmedGrant) replied(_ time.Duration, _ *protocol.Call, r protocol.Result) {
	if r.Outcome == protocol.Applied {
		o.c.Released(o.rec.Key)
	}
}

func (o *unconfirmedGrant) stepped(time.Duration, protocol.Action) {
	if !o.m.Over() || o.ended {
		return
	}
	o.ended = true
	o.c.grants.drop(o)
	if o.awaited {
		o.c.finished()
	}
}

// giveUp releases the lock at once. Close waits for that release; it does not wait for
// a grant that the holder may confirm through another process.
func (o *unconfirmedGrant) giveUp() {
	o.run.do(func(now time.Duration) protocol.Action {
		if !o.ended && !o.awaited {
			o.awaited = true
			_ = o.c.began() // closed or not: the lock is released, or expires
		}
		return o.m.GiveUp(now)
	})
}

// taken ends the unconfirmed grant if its holder has shown life: see [protocol.UnconfirmedGrant.Taken].
func (o *unconfirmedGrant) taken(after string) {
	o.run.do(func(now time.Duration) protocol.Action {
		o.m.Taken(after)
		return protocol.Action{}
	})
}

// unconfirmedGrants are the unconfirmed grants of one client.
type unconfirmedGrants struct {
	mu  sync.Mutex
	all map[grantKey]*unconfirmedGrant
}

type grantKey struct {
	key   string
	token uint64
}

func (s *unconfirmedGrants) put(o *unconfirmedGrant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[grantKey{o.rec.Key, o.rec.Token}] = o
}

// of returns the unconfirmed grant of a lock, or nil.
func (s *unconfirmedGrants) of(key string, token uint64) *unconfirmedGrant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[grantKey{key, token}]
}

// take removes and returns the unconfirmed grant of a lock, or nil.
func (s *unconfirmedGrants) take(key string, token uint64) *unconfirmedGrant {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.all[grantKey{key, token}]
	delete(s.all, grantKey{key, token})
	return o
}

func (s *unconfirmedGrants) drop(o *unconfirmedGrant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := (grantKey{o.rec.Key, o.rec.Token}); s.all[id] == o {
		delete(s.all, id)
	}
}

// remoteWrite is one call that carries out what a remote holder has sent.
type remoteWrite struct {
	nobody
	c     *Client
	of    protocol.RemoteHeartbeat
	run   run
	m     *protocol.RemoteWrite
	ended chan struct{} // closed when the machine has its answer
}

func newRemoteWrite(c *Client, d protocol.RemoteHeartbeat) *remoteWrite {
	w := &remoteWrite{c: c, of: d, ended: make(chan struct{})}
	w.m = protocol.NewRemoteWrite(c.timing, c.env, d, c.records.of(d.Key), 3*c.timing.RequestTimeout)
	w.run = c.run(w.m, w, new(sync.Mutex))
	return w
}

// neededBy is the earliest possible deadline of a lease of this process's length: on the worst
// clock, last renewed one heartbeat period ago.
func (w *remoteWrite) neededBy() time.Duration {
	usable := w.c.timing.UsableOf(driver.Record{Lease: w.c.timing.Lease})
	return w.c.leaseClock() + usable - w.c.timing.Heartbeat
}

func (w *remoteWrite) stepped(time.Duration, protocol.Action) {
	if answer, _, _ := w.m.Answer(); answer != protocol.NoAnswer {
		closeOnce(w.ended)
	}
}

func (w *remoteWrite) replied(_ time.Duration, call *protocol.Call, res protocol.Result) {
	w.c.events.storeFailed(call.Key, w.of.Token, res.Err)
}

// recordCache has the records of remote holders as last read. It saves the read before a
// heartbeat, and decides nothing: each write names the version that it replaces.
type recordCache struct {
	mu     sync.Mutex
	all    map[string]*list.Element
	recent list.List // the latest first
}

// maxCached bounds the number of records, and maxCachedData the size of the data of
// each: less than 100 MB in all.
const (
	maxCached     = 20_000
	maxCachedData = 4 << 10
)

func (s *recordCache) of(key string) driver.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[key]; e != nil {
		return e.Value.(driver.Record)
	}
	return driver.Record{}
}

func (s *recordCache) note(rec driver.Record) {
	if len(rec.Data) > maxCachedData {
		s.forget(rec.Key)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[rec.Key]; e != nil {
		e.Value = rec
		s.recent.MoveToFront(e)
		return
	}
	s.all[rec.Key] = s.recent.PushFront(rec)
	if s.recent.Len() > maxCached {
		delete(s.all, s.recent.Remove(s.recent.Back()).(driver.Record).Key)
	}
}

func (s *recordCache) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[key]; e != nil {
		s.recent.Remove(e)
		delete(s.all, key)
	}
}
