// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"container/list"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/shell"
)

func newRelayed(c *Client, d protocol.Dispatch) *relayed {
	w := &relayed{c: c, of: d, ended: make(chan struct{})}
	w.m = protocol.NewRelay(c.timing, c.env, d, c.lately.of(d.Key), 3*c.timing.RequestTimeout)
	w.run = shell.Run{
		Machine: w.m, Mutex: new(sync.Mutex), Clock: c.contender, Timers: c.looks,
		// As urgent as the heartbeat of a lease that is renewed in time.
		Send: func(call *protocol.Call, to shell.Caller) {
			c.send(c.timing.RequestTimeout, c.clock.Holder()+c.timing.Usable()-c.timing.Heartbeat, call, to)
		},
		Stepped: w.stepped, Replied: w.replied,
	}
	return w
}

func (w *relayed) stepped(time.Duration, protocol.Action) {
	if answer, _, _ := w.m.Answer(); answer != protocol.NoAnswer && !w.answered {
		w.answered = true
		close(w.ended)
	}
}

func (w *relayed) replied(_ time.Duration, call *protocol.Call, res protocol.Result) {
	if news(res.Err) {
		w.c.events.emit(Event{Kind: EventStoreError, Lock: call.Key, Token: w.of.Token, Err: res.Err})
	}
}

// result returns the record that the call led to, or why it led to none.
func (w *relayed) result() (driver.Record, error) {
	c := w.c
	w.run.Mutex.Lock()
	answer, rec, err := w.m.Answer()
	w.run.Mutex.Unlock()
	switch answer {
	case protocol.Done:
		if w.of.Releases() {
			c.lately.forget(w.of.Key)
		} else {
			c.lately.note(rec)
		}
		if o := c.offers.take(w.of.Key, w.of.Token); o != nil {
			o.taken()
		}
		return rec, nil
	case protocol.Changed:
		c.lately.forget(w.of.Key)
		e := &SupersededError{Owner: rec.Owner, Token: rec.Token, Released: rec.State == driver.Released}
		if e.Released {
			e.Request = requestOf(rec.Asked)
		}
		return driver.Record{}, e
	case protocol.Unusable:
		return driver.Record{}, uncertain(err)
	}
	return driver.Record{}, uncertain(ErrClosed)
}

// remoteWait tells a holder elsewhere for whom it waits.
type remoteWait struct {
	waiting func(*HeldError)
	held    chan *HeldError // has room for the latest
}

func newRemoteWait(waiting func(*HeldError)) *remoteWait {
	return &remoteWait{waiting: waiting, held: make(chan *HeldError, 1)}
}

// meets notes a holder that is waited for. The caller holds the tracker.
func (w *remoteWait) meets(held error) {
	e, ok := held.(*HeldError)
	if w == nil || w.waiting == nil || !ok {
		return
	}
	select {
	case <-w.held: // older
	default:
	}
	w.held <- e
}

func (w *remoteWait) news() <-chan *HeldError {
	if w == nil {
		return nil
	}
	return w.held
}

// offer hands a grant to a holder elsewhere, or releases it if nobody waits for it any
// more.
func (a *acquire) offer(g protocol.Grant) {
	c := a.k.c
	o := newOffer(c, g)
	err := c.refusal()
	switch {
	case a.settled:
		o.giveUp()
	case err != nil:
		a.settle(nil, err)
		o.giveUp()
	default:
		c.lately.note(g.Record)
		c.offers.put(o)
		o.run.Step()
		a.settled = true
		a.answer <- acquired{o: o}
	}
	a.note(g)
	a.unqueue()
	a.k.notify()
	a.end()
}

// offer is a lock that was granted for a holder elsewhere, until that shows life.
type offer struct {
	c       *base
	rec     driver.Record
	run     shell.Run
	m       *protocol.Offer
	awaited bool // Close waits for it
	ended   bool
}

func newOffer(c *base, g protocol.Grant) *offer {
	o := &offer{c: c, rec: g.Record, m: protocol.NewOffer(c.timing, c.env, g)}
	o.run = shell.Run{
		Machine: o.m, Mutex: new(sync.Mutex), Clock: c.contender, Timers: c.looks, Send: c.unhurried, Stepped: o.stepped,
		Replied: func(_ time.Duration, _ *protocol.Call, r protocol.Result) {
			if r.Outcome == protocol.Applied {
				c.released(o.rec.Key)
			}
		},
	}
	return o
}

func (o *offer) stepped(time.Duration, protocol.Action) {
	if !o.m.Over() || o.ended {
		return
	}
	o.ended = true
	o.c.offers.drop(o)
	if o.awaited {
		o.c.finished(nil)
	}
}

// giveUp releases the lock at once. The client waits for that when it is closed, as it
// does not for an offer that its holder may take elsewhere.
func (o *offer) giveUp() {
	o.run.Do(func(now time.Duration) protocol.Action {
		if !o.ended && !o.awaited {
			o.awaited = true
			_ = o.c.began(nil) // closed or not: it is released, or runs out
		}
		return o.m.GiveUp(now)
	})
}

// taken ends the offer: its holder has shown life.
func (o *offer) taken() {
	o.run.Do(func(now time.Duration) protocol.Action {
		o.m.Taken()
		return protocol.Action{}
	})
}

// offers are those of one client.
type offers struct {
	mu  sync.Mutex
	all map[offerKey]*offer
}

type offerKey struct {
	key   string
	token uint64
}

func (s *offers) put(o *offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[offerKey]*offer{}
	}
	s.all[offerKey{o.rec.Key, o.rec.Token}] = o
}

// take returns the offer of a lock, nil if there is none any more, and forgets it.
func (s *offers) take(key string, token uint64) *offer {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.all[offerKey{key, token}]
	delete(s.all, offerKey{key, token})
	return o
}

func (s *offers) drop(o *offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := (offerKey{o.rec.Key, o.rec.Token}); s.all[id] == o {
		delete(s.all, id)
	}
}

// lately is what a client has seen last of the records of holders elsewhere. It saves the
// read before a heartbeat, and decides nothing: each write names the version that it
// replaces.
type lately struct {
	mu     sync.Mutex
	all    map[string]*list.Element
	recent list.List // the latest in front
}

// maxLately bounds how many records are kept, and maxLatelyData how many data each may
// have: less than 100 MB in all.
const (
	maxLately     = 20_000
	maxLatelyData = 4 << 10
)

func (s *lately) of(key string) driver.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[key]; e != nil {
		return e.Value.(driver.Record)
	}
	return driver.Record{}
}

func (s *lately) note(rec driver.Record) {
	if len(rec.Data) > maxLatelyData {
		s.forget(rec.Key)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*list.Element{}
	}
	if e := s.all[rec.Key]; e != nil {
		e.Value = rec
		s.recent.MoveToFront(e)
		return
	}
	s.all[rec.Key] = s.recent.PushFront(rec)
	if s.recent.Len() > maxLately {
		delete(s.all, s.recent.Remove(s.recent.Back()).(driver.Record).Key)
	}
}

func (s *lately) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[key]; e != nil {
		s.recent.Remove(e)
		delete(s.all, key)
	}
}
