// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// relayed is one call that carries out what a holder elsewhere has sent.
type relayed struct {
	c        *Client
	of       protocol.Dispatch
	run      engine.Run
	m        *protocol.Relay
	ended    chan struct{} // closed when the machine has its answer
	answered bool
}

func newRelayed(c *Client, d protocol.Dispatch) *relayed {
	w := &relayed{c: c, of: d, ended: make(chan struct{})}
	w.m = protocol.NewRelay(c.timing, c.env, d, c.lately.of(d.Key), 3*c.timing.RequestTimeout)
	w.run = engine.Run{
		Machine: w.m, Mutex: new(sync.Mutex), Clock: c.contender, Timers: c.looks,
		// As urgent as the heartbeat of a lease that is renewed in time.
		Send: func(call *protocol.Call, to engine.Caller) {
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
	if engine.Newsworthy(res.Err) {
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
