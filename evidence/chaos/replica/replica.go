// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/internal/clock"
)

// Orders are the lines that a replica reads.
const (
	OrderEnd      = "end"       // end in peace
	OrderStepDown = "step-down" // ask the leader, whoever it is, to step down
)

type replica struct {
	config Config
	watch  Watch
	source *shifted
	held   tenure.Clock // that the locks go by
	client *tenure.Client
	http   *http.Client
	fixed  func(uint64) *http.Client
	serial atomic.Int64
	said   atomic.Int64 // the change of the page that was told last
	out    *proc.Lines
}

// say writes a line.
func (r *replica) say(l Line) {
	l.At = r.watch.Now()
	_ = r.out.Say(l) // nobody is there to be told
}

// choose returns the clock that the locks go by.
func (r *replica) choose() tenure.Clock {
	right := clock.From(r.source, clock.Options{})
	switch r.config.Wrong {
	case SlowClock:
		return slow{right}
	case GoClock:
		return sleepy{r.source}
	default:
		return right
	}
}

// obey ends the process with its input, as a crash does.
func (r *replica) obey(in io.Reader, stop func()) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		switch lines.Text() {
		case OrderEnd:
			stop()
		case OrderStepDown:
			go func() {
				ctx, done := context.WithTimeout(context.Background(), r.config.Lease)
				defer done()
				_ = r.client.Election(LockName, nil).StepDown(ctx, "chaos") // nobody may lead just now
			}()
		}
	}
	os.Exit(3)
}

// tick says what the clocks show, often, and when they were moved.
func (r *replica) tick(ctx context.Context) {
	often := time.NewTicker(20 * time.Millisecond)
	defer often.Stop()
	for n := 0; ; n++ {
		if change := r.source.page.changes(); n%10 == 0 || change != r.said.Load() {
			r.said.Store(change)
			r.say(Line{Kind: Looked, Clocks: r.look()})
		}
		select {
		case <-often.C:
		case <-ctx.Done():
			return
		}
	}
}

// look reads the clocks as the locks do, and beside them, all within a moment.
func (r *replica) look() *Reading {
	const moment = 2 * time.Millisecond
	for try := 0; ; try++ {
		before, _, change := r.source.both()
		holder, contender := r.held.Holder(), r.held.Contender()
		real, seen, after := r.source.both()
		if change == after && (real.Mono-before.Mono < moment || try > 100) {
			return &Reading{
				Change: change, Holder: holder, Contender: contender,
				Mono: seen.Mono, Boot: seen.Boot, Wall: seen.Wall,
				RealMono: real.Mono, RealBoot: real.Boot, RealWall: real.Wall,
			}
		}
	}
}
