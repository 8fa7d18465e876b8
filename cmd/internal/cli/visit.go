// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
)

// visit is a store, and a client on it that holds nothing, for a command that looks or
// asks. A signal ends its context.
type visit struct {
	ctx    context.Context //nolint:containedctx // it is one command, which a signal ends
	store  driver.Store
	client *tenure.Client
	close  func()
}

// visit opens the store, which must be there. Options, and the plan for a bell, may be nil;
// with a plan there must be options.
func (f *storeFlags) visit(c *console, options *tenure.Options, plan *bellPlan) (*visit, error) {
	at, err := f.location(c, os.Getenv)
	if err != nil {
		return nil, err
	}
	if err := mustExist(at); err != nil {
		return nil, err
	}
	return visitAt(at, options, func() func() { return plan.ring(c, at, options) })
}

// visitAt opens a store. Ring gives the options a bell, and returns what closes it; it may
// be nil.
func visitAt(at storeurl.Location, options *tenure.Options, ring func() func()) (*visit, error) {
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
	return &visit{ctx, store, client, func() {
		_ = client.Close(context.WithoutCancel(ctx)) // it holds nothing
		hush()
		_ = store.Close() // every write was confirmed, or told of
		stop()
	}}, nil
}
