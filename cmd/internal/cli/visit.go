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

// visit opens the store, which must be there. Options may be nil.
func (f *storeFlags) visit(c *console, options *tenure.Options) (*visit, error) {
	at, err := f.location(c, os.Getenv)
	if err != nil {
		return nil, err
	}
	if err := mustExist(at); err != nil {
		return nil, err
	}
	return visitAt(at, options)
}

func visitAt(at storeurl.Location, options *tenure.Options) (*visit, error) {
	store, err := at.Open()
	if err != nil {
		return nil, storeFailed(err)
	}
	client, err := tenure.New(store, options)
	if err != nil {
		_ = store.Close() // nothing was written
		return nil, usage("%w", err)
	}
	ctx, stop := catchSignals().cancel(context.Background())
	return &visit{ctx, store, client, func() {
		_ = client.Close(context.WithoutCancel(ctx)) // it holds nothing
		_ = store.Close()                            // every write was confirmed, or told of
		stop()
	}}, nil
}
