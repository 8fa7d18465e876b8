// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"cmp"
	"context"

	"github.com/tenurelock/tenure/internal/engine"
)

// sweepAtOnce is how many sessions are watched at once.
const sweepAtOnce = 64

// Sweep clears what ended sessions have left in the store. It closes sessions whose
// heartbeat has stood still for their lease, so that their locks are free. It
// deletes closed sessions, whoever closed them, once it has seen them closed for
// longer than any write of theirs can be late. It watches each session for itself,
// which takes up to five times the longer of its lease and this client's. It returns
// how many records it has deleted. Sessions that show life are left alone.
//
// It reads the records of all sessions, and is for now and then: a client deletes
// by itself what it has closed, if it lives for so long. The error is that of the
// store, or matches the context's; swept still counts what was deleted before it.
func (c *Client) Sweep(ctx context.Context) (swept int, err error) {
	var ids []string
	for st, err := range c.Sessions(ctx) {
		if err != nil {
			return 0, err
		}
		ids = append(ids, st.ID)
	}
	gone, errs := make([]bool, len(ids)), make([]error, len(ids))
	engine.AtOnce(sweepAtOnce, ids, func(i int, id string) {
		if ctx.Err() != nil {
			return
		}
		if gone[i], errs[i] = c.engine.ReapSession(id).Wait(ctx); errs[i] != nil {
			errs[i] = wrap("sweep", "session "+id, errs[i])
		}
	})
	for i, deleted := range gone {
		if deleted {
			swept++
		}
		err = cmp.Or(err, errs[i])
	}
	if err == nil && ctx.Err() != nil {
		err = wrap("sweep", "sessions", engine.Done(ctx))
	}
	return swept, err
}
