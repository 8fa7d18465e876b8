// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest

import (
	"context"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// Observe has f called with each record that a client writes, in the order of the
// writes, when the store has made the write: also one whose reply is lost, or that
// comes late. It is for a judge of what no client may know. Give it before the first
// client is made. f must neither block nor use the world.
func (w *World) Observe(f func(driver.Record)) { w.observer = f }

// observed is a store whose writes the world's observer sees.
type observed struct {
	*memstore.Store
	w *World
}

func (o observed) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	o.w.writing.Lock()
	defer o.w.writing.Unlock()
	now, prev, err = o.Store.Claim(ctx, next)
	o.tell(now, err)
	return now, prev, err
}

func (o observed) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	o.w.writing.Lock()
	defer o.w.writing.Unlock()
	now, err := o.Store.Swap(ctx, prev, next)
	o.tell(now, err)
	return now, err
}

func (o observed) tell(now driver.Record, err error) {
	if err == nil && o.w.observer != nil {
		o.w.observer(now)
	}
}
