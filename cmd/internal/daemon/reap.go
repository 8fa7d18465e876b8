// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"sync"

	"github.com/tenurelock/tenure/admin"
)

// reap watches locks in the background, and frees the locks of dead holders, until stop is
// called, which waits for its end. Without prefixes it does nothing.
func (s *service) reap(prefixes []string, log *slog.Logger) (stop func()) {
	if len(prefixes) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		err := admin.Reap(ctx, s.client, admin.ReapOptions{
			Prefixes: prefixes,
			OnReaped: func(r admin.Reaped) {
				if r.Name == "" {
					log.Warn("a dead session was closed: it had shown no sign of life for its lease",
						"session", r.Session, "owner", r.Owner, "host", r.Host)
					return
				}
				log.Warn("the lock of a dead holder was freed: it had shown no sign of life for its lease",
					"lock", r.Name, "owner", r.Owner, "token", r.Token, "host", r.Host)
			},
			OnError: func(err error) { log.Warn("watching for dead holders: an error; trying again", "error", err) },
		})
		if err != nil {
			log.Error("watching for dead holders has ended", "error", err)
		}
	})
	return func() {
		cancel()
		all.Wait()
	}
}
