// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"github.com/tenurelock/tenure/internal/protocol"
)

// remoteWait is a holder elsewhere, as its acquire sees it.
type remoteWait struct {
	c       *Client
	waiting func(*HeldError)
	held    chan *HeldError // has room for the latest
}

// meets notes a holder that is waited for. The caller holds the tracker.
func (w *remoteWait) meets(held *HeldError) {
	if w.waiting == nil {
		return
	}
	select {
	case <-w.held: //nolint:errcheck // an older one
	default:
	}
	w.held <- held
}

func (w *remoteWait) news() <-chan *HeldError { return w.held }

func (w *remoteWait) waitsFor(e *HeldError) { w.waiting(e) }

// offer takes the grant, and releases the lock if nobody waits for it any more.
func (w *remoteWait) offer(g protocol.Grant, wanted bool) offered {
	c := w.c
	o := c.offers.offer(&c.base, g)
	if !wanted {
		o.giveUp()
		return o
	}
	c.lately.note(g.Record)
	c.offers.put(o)
	o.run.Step()
	return o
}
