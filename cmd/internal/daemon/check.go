// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"strings"

	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/printable"
)

// checkCmd is tenured check: all of the service but the serving.
type checkCmd struct {
	serveCmd
}

// checked is the lock that is read. No one takes it.
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
	var text strings.Builder
	for _, a := range s.addresses {
		fmt.Fprintf(&text, "would listen on %s\n", printable.Text(a.String()))
	}
	fmt.Fprintf(&text, "lease %v, heartbeat every %v, grace %v\n", o.LeaseDuration, o.HeartbeatPeriod, o.Grace)
	fmt.Fprintf(&text, "the store answers: %s\n", printable.Text(s.location.Shown()))
	_, err = fmt.Fprint(c.stdout, text.String())
	return err
}
