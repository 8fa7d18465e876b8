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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/chaos/trial"
)

// RoleName is the role of a process that is a replica; [Role] plays it.
const RoleName = "replica"

type replica struct {
	Config
	watch  Watch
	source *shifted
	held   tenure.Clock // that the locks go by
	client *tenure.Client
	http   *http.Client // sends whatever it is to send
	asking *http.Client // asks the lease before it sends
	serial atomic.Int64 // of operations
	holds  int          // of a reader or a writer
	said   atomic.Int64 // the change of the page that was told last
	out    *proc.Lines
}

// Role is the replica that [Variable] describes.
func Role(in io.Reader, out io.Writer) error {
	r := &replica{out: proc.NewLines(out)}
	err := json.Unmarshal([]byte(os.Getenv(Variable)), &r.Config)
	if err == nil {
		err = r.run(in)
	}
	if err != nil {
		r.say(Line{Kind: Trouble, Text: err.Error()})
	}
	return err
}

// say writes a line.
func (r *replica) say(l Line) {
	l.At = r.watch.Now()
	_ = r.out.Say(l) // nobody is there to be told
}

func (r *replica) run(in io.Reader) (err error) {
	if r.watch, err = NewWatch(); err != nil {
		return err
	}
	page, err := OpenPage(r.Page)
	if err != nil {
		return err
	}
	r.source = newShifted(page, r.Rate)
	r.held = clock.From(r.source, clock.Options{})
	r.say(Line{
		Kind: Ready, RawBoot: proc.Clock(unix.CLOCK_BOOTTIME), RawMono: proc.Clock(unix.CLOCK_MONOTONIC),
		Clocks: r.look(),
	})
	store, err := OpenStore(r.Store, "")
	if err != nil {
		return err
	}
	base := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // net/http says so
	base.Proxy = nil
	r.http = &http.Client{Timeout: opTimeout, Transport: base}
	r.asking = &http.Client{Timeout: opTimeout, Transport: fence.NewTransport(base, nil)}
	options := &tenure.Options{
		LeaseDuration: r.Lease, RequestTimeout: r.Lease / 7, Owner: r.Name, Clock: r.held,
	}
	do := r.campaign
	switch r.Do {
	case Read, Write:
		options.RefreshPeriod = r.Lease / 20
	case Work:
		w := &worker{replica: r, live: map[*hold]bool{}}
		store, do = w.count(store), w.join
		options = r.Group.Options()
		options.Owner = r.Name
		base.MaxIdleConnsPerHost, base.MaxConnsPerHost = 8, 8
	case Elect, Lock, Jobs:
	}
	if r.client, err = tenure.New(store, options); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go r.obey(in, stop)
	if r.Do != Work { // whose clocks nobody moves
		go r.tick(ctx)
	}
	err = do(ctx)
	bound, done := context.WithTimeout(context.Background(), 5*time.Second+4*r.Lease) // on a busy machine
	defer done()
	return errors.Join(err, r.client.Close(bound), store.Close())
}

// obey ends the process with its input, as a crash does.
func (r *replica) obey(in io.Reader, stop func()) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		switch lines.Text() {
		case OrderEnd:
			stop()
		case OrderStepDown:
			name := LockName
			switch r.Do {
			case Read, Write:
				name = rwlock.GateName(LockName)
			case Jobs:
				name = once.EveryLockName(string(trial.Every))
			case Elect, Lock, Work:
			}
			go func() {
				ctx, done := context.WithTimeout(context.Background(), r.Lease)
				defer done()
				_ = r.client.StepDown(ctx, name, &tenure.StepDownOptions{Reason: "chaos"}) // nobody may hold it just now
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
				Mono: seen.Mono, Boot: seen.Boot, Wall: seen.Wall, RealMono: real.Mono,
			}
		}
	}
}

// campaign takes the lock again and again until ctx ends.
func (r *replica) campaign(ctx context.Context) error {
	random := rand.New(rand.NewPCG(r.Seed, 1))
	lead := func(ctx context.Context, l *tenure.Lease) error { return r.lead(ctx, l, random) }
	election := r.client.Election(LockName, nil)
	shared, err := rwlock.New(r.client, LockName, nil)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		rest := r.Lease / 4 // one that has just resigned lets others go first
		switch r.Do {
		case Lock:
			err = r.client.Run(ctx, LockName, &tenure.AcquireOptions{History: true, StoreTimeout: -1}, lead)
		case Elect:
			err = election.Run(ctx, lead)
		case Read:
			err = shared.RunRead(ctx, nil, r.compare)
		case Write:
			err = shared.RunWrite(ctx, nil, r.rewrite)
		case Jobs:
			err = r.runJobs(ctx)
		case Work:
		}
		switch {
		case err == nil || ctx.Err() != nil:
		case r.Do == Lock || r.Do == Elect || r.Do == Jobs:
			if !expected(err) {
				r.say(Line{Kind: Trouble, Text: err.Error()})
			}
		case errors.Is(err, tenure.ErrUnreadable), errors.Is(err, tenure.ErrPermanent):
			return err
		default:
			r.say(Line{Kind: Came, Text: cameTo(err)})
		}
		if r.Do == Read || r.Do == Write {
			rest = rand.N(r.Lease / 20)
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
		}
	}
	return nil
}

// expected reports whether an error of a campaign is one that chaos brings about.
func expected(err error) bool {
	return errors.Is(err, tenure.ErrLost) || errors.Is(err, tenure.ErrHeld) || errors.Is(err, tenure.ErrStopTimeout) ||
		errors.Is(err, tenure.ErrUncertain) || errors.Is(err, context.DeadlineExceeded)
}

// cameTo says in a word why a reader or a writer had to end.
func cameTo(err error) string {
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale):
		return "refused"
	case errors.Is(err, tenure.ErrLost), errors.Is(err, context.Canceled):
		return "lost"
	default:
		return "no store" // somebody was stopped who has the database
	}
}
