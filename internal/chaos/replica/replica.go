// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/internal/clock"
)

// Orders are the lines that a replica reads.
const (
	OrderEnd      = "end"       // end in peace
	OrderStepDown = "step-down" // ask the leader, whoever it is, to step down
)

// Main runs the replica that text, the value of [Variable], describes. It
// returns the status to exit with.
func Main(text string, in io.Reader, out io.Writer) int {
	r := &replica{out: out}
	err := json.Unmarshal([]byte(text), &r.config)
	if err == nil {
		err = r.run(in)
	}
	if err != nil {
		r.say(Line{Kind: Trouble, Text: err.Error()})
		return 1
	}
	return 0
}

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

	mu  sync.Mutex // keeps lines apart
	out io.Writer
}

// say writes a line. What was said before a kill is not lost: no buffer is
// between.
func (r *replica) say(l Line) {
	l.At = r.watch.Now()
	text, err := json.Marshal(l)
	if err != nil {
		text = []byte(`{"kind":"trouble"}`) // unreachable: numbers and strings
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.out.Write(append(text, '\n')) // nobody is there to be told
}

func (r *replica) run(in io.Reader) (err error) {
	if r.watch, err = NewWatch(); err != nil {
		return err
	}
	page, err := OpenPage(r.config.Page)
	if err != nil {
		return err
	}
	r.source = newShifted(page, r.config.Rate)
	r.held = r.choose()
	r.say(Line{Kind: Ready, RawBoot: raw(unix.CLOCK_BOOTTIME), RawMono: raw(unix.CLOCK_MONOTONIC), Clocks: r.look()})

	store, err := openStore(r.config.Store)
	if err != nil {
		return err
	}
	base := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // net/http says so
	base.Proxy = nil
	r.http = &http.Client{Timeout: opTimeout, Transport: fence.NewTransport(base, nil)}
	r.fixed = func(token uint64) *http.Client {
		return &http.Client{
			Timeout:   opTimeout,
			Transport: fence.NewTransport(base, &fence.TransportOptions{Grant: fence.Fixed(LockName, token)}),
		}
	}
	r.client, err = tenure.New(store, &tenure.Options{
		LeaseDuration: r.config.Lease, RequestTimeout: r.config.Lease / 7, Owner: r.config.Name, Clock: r.held,
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go r.obey(in, stop)
	go r.tick(ctx)
	r.campaign(ctx)
	bound, done := context.WithTimeout(context.Background(), 2*r.config.Lease)
	defer done()
	return errors.Join(r.client.Close(bound), store.Close())
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

// campaign takes the lock again and again until ctx ends.
func (r *replica) campaign(ctx context.Context) {
	random := rand.New(rand.NewPCG(r.config.Seed, 1))
	work := func(ctx context.Context, l *tenure.Lease) error { return r.work(ctx, l, random) }
	election := r.client.Election(LockName, nil)
	for ctx.Err() == nil {
		var err error
		if r.config.Lock {
			err = r.client.Run(ctx, LockName, &tenure.AcquireOptions{History: true, StoreTimeout: -1}, work)
		} else {
			err = election.Run(ctx, work)
		}
		if err != nil && ctx.Err() == nil && !expected(err) {
			r.say(Line{Kind: Trouble, Text: err.Error()})
		}
		// Who has just resigned lets others go first.
		select {
		case <-time.After(r.config.Lease / 4):
		case <-ctx.Done():
		}
	}
}
