// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// statusOf returns what everybody may see of a lock who may read it: no data.
func statusOf(st *tenure.Status) wire.Status {
	of := wire.Status{
		Name: st.Name, State: string(st.State), Holder: st.Owner, Host: st.Host, Label: st.Label, Token: st.Token,
		Since: wallTime(st.Since), Until: wallTime(st.Until),
		SeenAliveMs: floorMs(st.Unchanged), FreeInMs: ceilMs(st.FreeIn),
		LeaseMs: floorMs(st.Lease), HeartbeatMs: floorMs(st.Heartbeat),
		Session: st.Session, Priority: int64(st.Priority),
		ReservedFor: st.ReservedFor, ReservedForLabel: st.ReservedForLabel,
		Requests: []wire.RequestInfo{}, End: st.End, EndedBy: requestOf(st.EndedBy), DataBytes: int64(len(st.Data)),
	}
	of.InDoubt = st.State == tenure.StateHeld && Late(st.Unchanged, st.Heartbeat, st.Lease)
	if st.Request != nil {
		of.Requests = append(of.Requests, requestOf(st.Request))
	}
	if st.Previous != nil {
		of.Previous = tenureOf(*st.Previous)
	}
	return of
}

// Late says whether a holder is in doubt whose sign of life has stood for so long: a whole
// heartbeat is missing. One beat that comes late is ordinary; a second one that is missing is
// seen before the lease is over. A heartbeat of 0 is the default, a fifth of the lease.
func Late(unchanged, heartbeat, lease time.Duration) bool {
	return unchanged >= 2*cmp.Or(max(heartbeat, 0), lease/5)
}

func tenureOf(t tenure.Tenure) wire.Tenure {
	return wire.Tenure{
		Token: t.Token, Holder: t.Owner, Host: t.Host, Label: t.Label,
		Since: wallTime(t.Since), Until: wallTime(t.Until), End: t.End, Request: requestOf(t.Request), Unknown: t.Unknown,
	}
}

// requestKinds are the words of the service for what the library asks.
var requestKinds = map[tenure.RequestKind]string{
	tenure.RequestStepDown: "step-down", tenure.RequestHandOver: "hand-over",
	tenure.RequestReleaseDead: "release-dead", tenure.RequestRevoke: "revoke",
}

// kindOf returns what the library calls such a request; "" if it is none.
func kindOf(word string) tenure.RequestKind {
	for kind, of := range requestKinds {
		if of == word {
			return kind
		}
	}
	return ""
}

func requestOf(q *tenure.Request) wire.RequestInfo {
	if q == nil {
		return wire.RequestInfo{}
	}
	kind, known := requestKinds[q.Kind]
	if !known {
		kind = string(q.Kind)
	}
	return wire.RequestInfo{Kind: kind, By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel, At: wallTime(q.At)}
}

// wallTime is a wall clock's time as it is shown: in UTC, to the millisecond.
func wallTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond)
}
