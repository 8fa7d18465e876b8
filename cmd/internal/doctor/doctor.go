// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor examines a store, and the machine, for what would make leases fail:
// `tenure doctor`. The store itself reports on its engine, see [driver.Diagnoser]; this package
// has the checks for all engines. It examines a lock service as its clients see it.
package doctor

import (
	"context"
	"errors"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/clock"
)

// Patient is what is examined.
type Patient struct {
	// Diagnose examines the engine past the store, which may not even open. It may be nil.
	Diagnose func(context.Context, driver.Timing) []driver.Finding
	// Open opens the store; it is called twice.
	Open func() (driver.Store, error)
	// Store returns the URL of the store for people, after it was opened; nil to show no URL.
	Store func() string
	// Options are a client's, with their defaults.
	Options tenure.Options
	// Tell is called with each finding.
	Tell func(driver.Finding)
}

// errNoStore says that the store could not be reached at all.
var errNoStore = errors.New("the store cannot be reached")

// openPatience is longer than a store waits for a file that is locked.
const openPatience = 8 * time.Second

// Look makes the checks that do not use the store: of the clocks and of the engine. It opens
// no store, and writes no record.
func Look(ctx context.Context, p Patient) []driver.Finding {
	o := p.Options
	_, raw := o.Clock.(*clock.Raw)
	found := clocks(o.MaxClockDrift, raw)
	if p.Diagnose == nil {
		return found
	}
	return append(found, p.Diagnose(ctx, driver.Timing{
		Lease: o.LeaseDuration, Heartbeat: o.HeartbeatPeriod, Grace: o.Grace, Refresh: o.RefreshPeriod,
	})...)
}

// Examine makes all checks, and returns whether something is bad. It takes a
// few seconds.
func Examine(ctx context.Context, p Patient) (bad bool, err error) {
	tell := p.Tell
	p.Tell = func(f driver.Finding) {
		bad = bad || f.Level == driver.LevelBad
		tell(f)
	}
	for _, f := range Numbers(p.Options) {
		p.Tell(f)
	}
	for _, f := range Look(ctx, p) {
		p.Tell(f)
	}
	store, err := p.open(ctx)
	if err != nil {
		p.Tell(driver.Bad("store", "cannot be opened: %v", err).Advise("fix that first"))
		return true, errors.Join(errNoStore, err)
	}
	defer func() { _ = store.Close() }()
	for _, f := range numbersFor(store, p.Options) {
		p.Tell(f)
	}
	if err := p.try(ctx, store); err != nil {
		return true, errors.Join(errNoStore, err)
	}
	p.identity(ctx, store)
	p.records(ctx, store)
	return bad, nil
}

// open opens the store, and does not wait for ever.
func (p *Patient) open(ctx context.Context) (driver.Store, error) {
	type opened struct {
		store driver.Store
		err   error
	}
	answer := make(chan opened, 1)
	go func() {
		s, err := p.Open()
		answer <- opened{s, err}
	}()
	select {
	case o := <-answer:
		return o.store, o.err
	case <-time.After(openPatience):
		return nil, errors.New("no answer within " + openPatience.String())
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
