// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/server/dashboard"
	"github.com/tenurelock/tenure/tenuretest"
)

// rootToken is the secret of alice, who has all rights.
const rootToken = "secret-of-alice-0123456789"

// world is a world with a server, and with the pages over it.
type world struct {
	*tenuretest.World
	t      *testing.T
	client *tenuretest.Client // of the server
	pages  *httptest.Server
	gone   atomic.Bool // the pages answer nothing
}

// newWorld makes the pages over an empty store.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: tenuretest.New(t), t: t}
	w.client = w.Client("tenured-1")
	principals := testutil.Must(server.ParsePrincipals("alice " + rootToken + " admin:"))(t)
	service := testutil.Must(server.New(w.client.Client, server.Options{Principals: principals}))(t)
	pages := testutil.Must(dashboard.New(dashboard.Options{Server: service, Title: "production"}))(t)
	w.pages = httptest.NewServer(http.HandlerFunc(func(r http.ResponseWriter, q *http.Request) {
		if w.gone.Load() {
			panic(http.ErrAbortHandler)
		}
		pages.ServeHTTP(r, q)
	}))
	t.Cleanup(func() {
		_ = service.Shutdown(context.WithoutCancel(t.Context()))
		pages.Close()
		w.pages.Close()
	})
	return w
}
