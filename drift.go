// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"strings"
	"sync"

	"github.com/tenurelock/tenure/driver"
)

// drifts reports holders that count with another bound of the drift of clocks.
type drifts struct {
	own  float64
	emit func(Event)

	mu   sync.Mutex
	told map[string]struct{} // the owners
}

// maxDriftsTold bounds the owners that are reported. The wrong setting is known
// long before.
const maxDriftsTold = 1000

// differs reports the holder that a record shows, once for each owner.
func (d *drifts) differs(rec driver.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, told := d.told[rec.Owner]; told || len(d.told) >= maxDriftsTold {
		return
	}
	d.told[rec.Owner] = struct{}{}
	ev := Event{
		Kind: EventDrift, Lock: rec.Key, Session: rec.Session, Owner: rec.Owner, Token: rec.Token,
		Err: refused("the holder counts with a MaxClockDrift of %v, this client with %v", rec.Drift, d.own),
	}
	if id, ok := strings.CutPrefix(rec.Key, driver.SessionPrefix); ok {
		ev.Lock, ev.Session, ev.Token = "", id, 0
	}
	d.emit(ev)
}
