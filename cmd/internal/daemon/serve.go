// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/cmd/internal/flags"
)

// serveCmd is tenured itself.
type serveCmd struct {
	serviceFlags
	Drain          time.Duration `default:"5s"`
	MaxConnections int           `default:"4096"`
	logFlags
}

// Run serves until a signal comes.
func (f *serveCmd) Run(c *console) error {
	log, err := f.logger(c.stderr, c.terminal)
	if err != nil {
		return flags.Usage("%w", err)
	}
	if err := f.check(); err != nil {
		return err
	}
	signals := catchSignals(c.attended)
	s, err := f.serviceFlags.open(c, log)
	if err != nil {
		return err
	}
	defer s.close()
	listeners, err := f.listen(s)
	if err != nil {
		return flags.Failed(flags.StatusStore, err)
	}
	for _, l := range listeners {
		log.Info("listening", "url", l.url, "store", s.location.Shown())
	}
	go s.identify(log)
	stopReaping := s.reap(f.Reap, log)
	defer stopReaping()
	h := serveHTTP(s.server.HTTPServer(), listeners, log)
	tell(log, "READY=1")
	select {
	case sig := <-signals:
		log.Info("shutting down", "signal", sig.String(), "drain", f.Drain)
	case err = <-h.failed:
	}
	tell(log, "STOPPING=1")
	f.drain(s, h, signals)
	return err
}

// check finds what is wrong with the numbers.
func (f *serveCmd) check() error {
	switch {
	case f.Drain < 0:
		return flags.Usage("--drain %v must not be negative", f.Drain)
	case f.MaxConnections <= 0:
		return flags.Usage("--max-connections %d must be positive", f.MaxConnections)
	}
	return nil
}

// catchSignals takes the signals that end the service. Without a terminal SIGHUP is no
// such: it is what other services take for a sign to read their files again.
func catchSignals(attended bool) chan os.Signal {
	c := make(chan os.Signal, 4)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGQUIT) {
		signal.Notify(c, syscall.SIGQUIT) // which stops some images; stacks come with SIGABRT
	}
	switch {
	case attended && !signal.Ignored(syscall.SIGHUP):
		signal.Notify(c, syscall.SIGHUP)
	default:
		signal.Ignore(syscall.SIGHUP)
	}
	return c
}

// drain ends the service with as little disturbance as possible: first, new clients are not
// sent here, and waiting clients go to another replica; heartbeats are still answered. It
// ends early at another signal.
func (f *serveCmd) drain(s *service, h *httpServer, signals <-chan os.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), f.Drain)
	defer cancel()
	// From here on each answer ends its connection, so that the next call goes to another
	// replica. Connections that are idle stay open: a call may be on its way on one.
	_ = s.server.Shutdown(ctx) // remaining connections are closed below
	select {
	case <-ctx.Done():
	case <-signals:
	}
	h.stop()
}

func tell(log *slog.Logger, state string) {
	if err := flags.Notify(state); err != nil {
		log.Warn("the service manager could not be notified of the state", "state", state, "error", err)
	}
}

// listen opens all addresses, or fails and leaves none open.
func (f *serveCmd) listen(s *service) ([]listener, error) {
	var all []listener
	for _, a := range s.addresses {
		l, err := listen(a, s.tls, f.MaxConnections, s.proxies...)
		if err != nil {
			for _, l := range all {
				err = errors.Join(err, l.Close())
			}
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}
