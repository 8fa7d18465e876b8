// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Client is what all locks of one process share: the store, the heartbeats,
// the timers. A process needs one for each store. All methods may be called
// concurrently.
type Client struct {
	engine  *engine.Client
	options Options
	timing  protocol.Timing
}

// New returns a client that keeps its locks in the store. The caller closes the store,
// after [Client.Close]. Options may be nil; an error names each rule that they break,
// with the values.
func New(store driver.Store, options *Options) (*Client, error) {
	o := options.withDefaults(store)
	err := o.validate()
	if store == nil {
		err = errors.Join(errors.New("store is nil: open one, such as memstore.New()"), err)
	}
	if err != nil {
		return nil, refused("tenure: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	c := &Client{options: o, timing: o.timing()}
	if guarded, is := store.(driver.Guarded); is {
		// A holder that the engine has lost may have the best of clocks, and keep the least margin.
		lost := driver.Record{Beat: "lost", Lease: guarded.Waits(), Drift: protocol.RawDrift}
		c.timing.Waits = c.timing.Wait(lost)
	}
	c.options.LossyStore = c.timing.Waits > 0
	quick, slowdown := quickOf(o.Clock)
	c.engine = engine.New(store, engine.Options{
		Owner: o.Owner, Host: o.Host, Label: o.Label, Timing: c.timing, HistoryLimit: o.HistoryLimit, MaxInFlight: o.MaxInFlight,
		Holder: o.Clock.Holder, Contender: o.Clock.Contender, Transport: o.Notify,
		Quick: quick, QuickSlowdown: slowdown,
		OnEvent: handlerOf(o.OnEvent, o.Logger),
		API: engine.API{
			Held: heldError, Superseded: superseded, Replaced: replaced, SteppedDown: steppedDown, Requested: requested,
			NewLease: func() *engine.LeaseHolder {
				l := &Lease{}
				l.held.Of = l
				return &l.held
			},
		},
	})
	return c, nil
}

// quickOf returns the clock that Check reads instead of a raw clock, and how many times slower
// it may run. For another clock it returns nil.
func quickOf(c Clock) (quick func() time.Duration, slowdown int) {
	if raw, ok := c.(*clock.Raw); ok {
		return raw.Elapsed().Holder, clock.MaxSlowdown
	}
	return nil, 0
}

// Engine returns the implementation of the client. It is only for packages of this module,
// and changes without notice.
func (c *Client) Engine() *engine.Client { return c.engine }

// Options returns the options of the client. Defaults replace zero values, except for
// the callbacks. Clock is the clock that the client uses.
func (c *Client) Options() Options { return c.options }

// Close ends the client. Waiting acquires fail at once with [ErrClosed], and the
// contexts of all leases are cancelled with it. The heartbeats of a lease that is
// not released yet go on until it is, for [Options.StopTimeout] at most. Close
// returns when that is done and everything of the client has ended, or when ctx
// ends. Close waits up to half a lease more for history entries that are not written
// yet. Close returns an error if leases were left behind: their records expire by
// themselves. Closing again returns [ErrClosed]. Do not call it from OnEvent: Close
// waits for OnEvent, and for the logger, to return. When everything else has ended it
// waits for them for at most StopTimeout and a lease duration, and returns an error if
// they have not returned by then.
//
// A context that is already done at the call, or that Close itself ends, is
// ignored, so that a deferred Close works with the context of a signal. Close then
// takes at most StopTimeout and a lease duration.
func (c *Client) Close(ctx context.Context) error { return c.engine.Close(ctx) }
