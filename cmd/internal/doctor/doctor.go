// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor examines a store, and the machine, for what would make leases
// fail: `tenure doctor`. It tells what it finds, and what to do.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
)

// Level says how bad a finding is.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // works, and may not one day
	Bad  Level = "bad"  // does not work, or not safely
)

// Finding is one thing that was found.
type Finding struct {
	Check   string `json:"check"`
	Level   Level  `json:"level"`
	Finding string `json:"finding"`
	Advice  string `json:"advice,omitempty"`
}

// String returns it as a line.
func (f Finding) String() string {
	text := fmt.Sprintf("%-4s  %s: %s", f.Level, f.Check, f.Finding)
	if f.Advice != "" {
		text += "; " + f.Advice
	}
	return text
}

// Patient is what is examined.
type Patient struct {
	// File is the database file, if the store is one.
	File string
	// Engine is what the store is kept in, if it is no file.
	Engine Engine
	// Open opens the store; it is called twice.
	Open func() (driver.Store, error)
	// Store returns the URL of the store for people, once it was opened; nil if none is to
	// be shown.
	Store func() string
	// Options are a client's, with their defaults.
	Options tenure.Options
	// Tell is called with each finding.
	Tell func(Finding)
}

// Engine is a database elsewhere, which is examined past the store: that may not
// even open. What the store says of itself is not told twice.
type Engine interface {
	examine(ctx context.Context, p *Patient)
	// eventualReads says that driver.Eventual is another read than driver.Strong.
	eventualReads() bool
}

// errNoStore says that the store could not be reached at all.
var errNoStore = errors.New("the store is out of reach")

// openPatience is longer than a store waits for a file that is locked.
const openPatience = 8 * time.Second

// Examine makes all checks, and returns whether something is bad. It takes a
// few seconds.
func Examine(ctx context.Context, p Patient) (bad bool, err error) {
	tell := p.Tell
	p.Tell = func(f Finding) {
		bad = bad || f.Level == Bad
		tell(f)
	}
	for _, f := range Numbers(p.Options) {
		p.Tell(f)
	}
	for _, f := range clocks(p.Options.MaxClockDrift) {
		p.Tell(f)
	}
	if p.File != "" {
		p.file()
	}
	if p.Engine != nil {
		p.Engine.examine(ctx, &p)
	}
	store, err := p.open(ctx)
	if err != nil {
		p.Tell(Finding{"store", Bad, "cannot be opened: " + err.Error(), "fix that first"})
		p.blockers(ctx, true)
		return true, errors.Join(errNoStore, err)
	}
	defer func() { _ = store.Close() }()
	busy, err := p.try(ctx, store)
	p.blockers(ctx, busy)
	if err != nil {
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
