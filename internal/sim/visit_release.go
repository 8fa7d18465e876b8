// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"

	"github.com/tenurelock/tenure/internal/protocol"
)

// release begins to release the lock. A heartbeat that is under way is awaited, or its
// beat remembered: perhaps that is in the record.
func (v *visit) release() {
	l := v.l
	v.stage = visitReleases
	v.until = v.clock() + v.rec.Lease
	if l.one(2) {
		v.data = fmt.Appendf(nil, "%d.%d", v.tok, 1)
	}
	v.failed = l.cfg.Fails && !l.final && l.one(2)
	if v.awaits = v.next != "" && l.one(2); !v.awaits {
		v.part()
	}
}

// part sends the release with the newest beat, and then with the one that was confirmed
// last.
func (v *visit) part() {
	v.follows, v.tries = v.confirmed, 0
	if v.next != "" {
		v.follows = v.next
	}
	v.parts(v.begin())
}

func (v *visit) parts(mine func() bool) {
	d := protocol.Dispatch{Key: v.l.key, Token: v.tok, After: v.follows, Data: v.data}
	failed := v.failed
	v.tries++
	v.conn = v.calls("release", v.limit(), func(cn *conn) { cn.p.frees(cn, d, failed) }, func(r reply) {
		if mine() {
			v.partsHeard(r, mine)
		}
	})
}

// partsHeard takes an answer to a release. One that is unknown is repeated: perhaps it has
// released the lock.
func (v *visit) partsHeard(r reply, mine func() bool) {
	switch {
	case r.status == okay:
		v.kept()
		v.over("released")
	case r.status == isLost && v.follows != v.confirmed:
		v.follows = v.confirmed
		v.parts(v.begin())
	case r.status == isLost:
		v.over("lost when it released")
	case v.clock() >= v.until:
		v.over("perhaps released")
	default:
		v.again(mine, func() { v.parts(mine) })
	}
}
