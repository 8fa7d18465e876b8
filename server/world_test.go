// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/tenuretest"
)

const lease = 15 * time.Second

// world is a world with a server in it.
type world struct {
	*testing.T
	*tenuretest.World
	*server.Server
	client *tenuretest.Client         // of the server
	log    bytes.Buffer               // of the server
	do     func(*http.Request) answer // makes a call, and waits for its answer
}

// inWorld runs a test in a bubble of virtual time, with a server.
func inWorld(t *testing.T, test func(*world), edit ...func(*server.Options)) {
	t.Helper()
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) { test(serve(t, w, edit...)) })
}

// logged returns the log of the server, when everything else has come to rest.
func (w *world) logged() string { synctest.Wait(); return w.log.String() }

// serve adds a server to a world.
func serve(t *testing.T, in *tenuretest.World, edit ...func(*server.Options)) *world {
	t.Helper()
	w := &world{T: t, World: in}
	w.do = w.call
	w.client = in.Client("tenured-1", func(o *tenure.Options) {
		o.LeaseDuration, o.HistoryLimit = lease, 1_000
		o.MaxClockDrift = 0.01 // of its own clock, not of its clients'
	})
	options := server.Options{Logger: slog.New(slog.NewTextHandler(&w.log, nil))}
	options.Principals = testutil.Must(server.ParsePrincipals(principalsText))(t)
	for _, e := range edit {
		e(&options)
	}
	w.Server = testutil.Must(server.New(w.client.Client, options))(t)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		testutil.Want(t, errors.Join(w.Shutdown(ctx), w.client.Close(ctx)), nil)
	})
	return w
}
