// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"context"
	"time"

	"github.com/tenurelock/tenure"
)

// The line is a lock that only waiters for a slot take. Its holder is the one
// process that polls the slots; the others poll it.

// lineView is what a waiter has seen of the line.
type lineView struct {
	at     time.Time // zero: nothing
	behind bool
}

// lineAge is how long another process is assumed to be at the front: the place itself
// shows when this one gets there.
func lineAge(client *tenure.Client) time.Duration { return client.Options().HeartbeatPeriod }

// behind says that another process is at the front of the line. A waiter that stands in the
// line learns from its place when it gets to the front, so it asks once; and again if the
// store gave no answer. A line that cannot be read holds no waiter up: nothing rests on it,
// and whether the store answers is seen at the slots.
func (w *waiter) behind(ctx context.Context) bool {
	client := w.s.client
	if w.line.behind && !w.failed && (w.place.Stands() || w.place != nil && time.Since(w.line.at) < lineAge(client)) {
		return true
	}
	at := time.Now()
	list, errs := client.Statuses(ctx, []string{lineName(w.s.name)}, &tenure.ReadOptions{Eventual: true})
	if errs[0] != nil {
		return false
	}
	w.line = lineView{at, list[0].Held}
	return w.line.behind
}
