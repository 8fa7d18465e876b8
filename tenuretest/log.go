// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest

import (
	"log/slog"
	"time"
)

// logger returns a logger into the output of the test, where the time is that since the
// world began.
func (w *World) logger(owner string) *slog.Logger {
	handler := slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Duration("at", a.Value.Time().Sub(w.begun).Round(time.Microsecond))
			}
			return a
		},
	})
	return slog.New(handler).With("client", owner)
}
