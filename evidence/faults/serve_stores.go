// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// tenureOn is this library on a store, whose place is the request's table.
func tenureOn(name string) serve.Library {
	return serve.Library{Name: name, Open: func(r *wire.Request) (serve.Client, error) {
		ctx, cancel := context.WithTimeout(context.Background(), openBound)
		defer cancel()
		store, err := tenureStores[name].open(ctx, r.Endpoint, r.Table)
		if err != nil {
			return nil, err
		}
		client, err := tenure.New(store, serve.TenureOptions(r))
		if err != nil {
			return nil, errors.Join(err, store.Close())
		}
		c := &storeClient{serve.TenureClient{Client: client}, store}
		if r.Session {
			if c.Session, err = client.OpenSession(ctx, nil); err != nil {
				return nil, errors.Join(err, c.Close())
			}
		}
		return c, nil
	}}
}

// storeClient closes its store as well.
type storeClient struct {
	serve.TenureClient
	store driver.Store
}

func (c *storeClient) Close() error { return errors.Join(c.TenureClient.Close(), c.store.Close()) }
