// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"

	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/printable"
)

// checkCmd is tenured check: all of the service but the serving.
type checkCmd struct {
	serveCmd
}

// checked is the lock that is looked at. Nobody takes it.
const checked = "tenured-check"

// Run opens what the service would, and reads from the store.
func (f *checkCmd) Run(c *console) error {
	log, err := f.logger(c.stderr, c.terminal)
	if err != nil {
		return flags.Usage("%w", err)
	}
	if err := f.check(); err != nil {
		return err
	}
	s, err := f.serveCmd.open(c, log)
	if err != nil {
		return err
	}
	defer s.close()
	o := s.client.Options()
	ctx, cancel := context.WithTimeout(context.Background(), o.LeaseDuration)
	defer cancel()
	if _, err := s.client.Status(ctx, checked); err != nil {
		return flags.Failed(flags.StatusStore, fmt.Errorf("store %s: %w", s.location.Shown(), err))
	}
	say := func(format string, args ...any) error {
		_, err := fmt.Fprintln(c.stdout, printable.Text(fmt.Sprintf(format, args...)))
		return err
	}
	for _, a := range s.addresses {
		if err := say("would listen on %s", a); err != nil {
			return err
		}
	}
	if err := say("lease %v, heartbeat every %v, grace %v", o.LeaseDuration, o.HeartbeatPeriod, o.Grace); err != nil {
		return err
	}
	return say("the store answers: %s", s.location.Shown())
}
