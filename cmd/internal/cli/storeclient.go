// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
)

// storeClient is a store, and a client on it that holds nothing, for a command that looks or
// asks. A signal ends its context.
type storeClient struct {
	ctx    context.Context //nolint:containedctx // it is one command, which a signal ends
	store  driver.Store
	client *tenure.Client
	close  func()
}

// client opens the store, which must be there. Options, and the plan for a bell, may be nil;
// with a plan there must be options.
func (f *storeFlags) client(c *console, options *tenure.Options, plan *bellPlan) (*storeClient, error) {
	at, err := f.location(c)
	if err != nil {
		return nil, err
	}
	if err := mustExist(at); err != nil {
		return nil, err
	}
	return clientAt(at, options, func() func() { return plan.ring(c, at, options) })
}

// clientAt opens a store. Ring gives the options a bell, and returns what closes it; it may
// be nil.
func clientAt(at storeurl.Location, options *tenure.Options, ring func() func()) (*storeClient, error) {
	store, err := at.Open()
	if err != nil {
		return nil, storeFailed(err)
	}
	hush := func() {}
	if ring != nil {
		hush = ring()
	}
	client, err := tenure.New(store, options)
	if err != nil {
		hush()
		_ = store.Close() // nothing was written
		return nil, usage("%w", err)
	}
	ctx, stop := catchSignals().cancel(context.Background())
	return &storeClient{ctx, store, client, func() {
		_ = client.Close(context.WithoutCancel(ctx)) // it holds nothing
		hush()
		_ = store.Close() // every write was confirmed, or told of
		stop()
	}}, nil
}

// ended returns what to end with.
func (v *storeClient) ended(err error) error {
	if err == nil {
		return nil
	}
	return lookFailed(v.ctx, err)
}
