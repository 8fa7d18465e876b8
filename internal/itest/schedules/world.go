// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// world is a plan being carried out.
type world struct {
	plan      *Plan
	begun     time.Time
	records   *memstore.Store
	ledger    *ledger
	referee   *referee
	processes []*process

	storms   context.Context // ends when the faults do
	still    context.CancelFunc
	over     atomic.Bool    // the faults have stopped
	acts     sync.WaitGroup // what steps do
	watchers sync.WaitGroup
	ends     sync.WaitGroup // of clients

	mu    sync.Mutex
	log   []string
	names map[string]string // of sessions, by key
	tally map[string]int    // how often what has happened, to see that it does
}

// process is one that comes back after a crash.
type process struct {
	w     *world
	n     int
	setup Setup
	clock *clock

	mu     sync.Mutex
	lives  []*line
	up     *line         // nil: it does not run
	awoken chan struct{} // closed while it is awake
	stormy bool
	cutOff bool
	busy   int // acts under way
	ctx    context.Context
	stop   context.CancelFunc
	// sessions are those that are open, as far as is known.
	sessions []*tenure.Session
}

// maxBusy bounds what one process does at once.
const maxBusy = 8

func (p *process) awake() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.awoken
}

func (p *process) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (w *world) elapsed() time.Duration { return time.Since(w.begun) }

func (w *world) owner(n int) string {
	if w.plan.SameOwner {
		return "one"
	}
	return fmt.Sprint("p", n)
}

// start starts a process, for the first time or again.
func (w *world) start(p *process) error {
	ln := newLine(p, len(p.lives)+1, &book{w.records.Open(), w.ledger})
	o := p.setup.Options
	o.Owner, o.Host, o.Clock = w.owner(p.n), "host", p.clock
	c, err := tenure.New(ln.driver(), &o)
	if err != nil {
		return fmt.Errorf("p%d: %w", p.n, err)
	}
	ln.client = c
	p.set(func() {
		p.lives = append(p.lives, ln)
		p.up, p.sessions = ln, nil
		p.ctx, p.stop = context.WithCancel(context.Background())
	})
	return nil
}

// down takes a process that runs out of use, and returns its life.
func (p *process) down() *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	ln := p.up
	p.up = nil
	if p.stop != nil {
		p.stop()
	}
	return ln
}

// name returns how a key is called in the log: ids of sessions are long.
func (w *world) name(key string) string {
	if !strings.HasPrefix(key, driver.SessionPrefix) || key == driver.SessionPrefix {
		return key
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name, ok := w.names[key]
	if !ok {
		name = fmt.Sprint("session/", len(w.names)+1)
		w.names[key] = name
	}
	return name
}

var longID = regexp.MustCompile(`[A-Z2-7]{26}`)

// short returns the text of an error without ids.
func (w *world) short(err error) string {
	return longID.ReplaceAllString(err.Error(), "…")
}

// maxLog is how many lines of a schedule are kept.
const maxLog = 200_000

func (w *world) logf(format string, args ...any) {
	line := fmt.Sprintf("%12v ", w.elapsed().Round(time.Microsecond)) + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.log) < maxLog {
		w.log = append(w.log, line)
	}
}

// happened counts what has happened.
func (w *world) happened(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally[what]++
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
