// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// stopTimeout is how long calls in progress may take at the end.
const stopTimeout = 5 * time.Second

// httpServer is the server on all listeners.
type httpServer struct {
	server  *http.Server
	failed  chan error // has the error of a listener that has ended by itself
	serving sync.WaitGroup
}

// serveHTTP serves on all listeners until stop. The server has its limits of time from
// package server.
func serveHTTP(s *http.Server, listeners []listener, log *slog.Logger) *httpServer {
	h := &httpServer{server: s, failed: make(chan error, len(listeners))}
	h.server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug) // connections that break off
	h.server.ConnContext, h.server.ConnState = withConn, connState
	for _, l := range listeners {
		h.serving.Go(func() {
			if err := h.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				h.failed <- err
			}
		})
	}
	return h
}

// stop closes the listeners, waits for the calls in progress, and cuts off calls that take
// too long.
func (h *httpServer) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if h.server.Shutdown(ctx) != nil {
		_ = h.server.Close() // their clients see an unknown outcome
	}
	h.serving.Wait()
}
