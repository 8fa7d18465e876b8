// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package replica is the program that a chaos run starts several times. It repeatedly takes one
// lock, directly, in an election, or as a reader or a writer, and works while it holds the lock.
// It reports what it does and sees in lines of JSON on its standard output.
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
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
)

// Config is the configuration of a replica, in its environment.
type Config struct {
	Name     string
	Do       Do
	Store    string // sqlite:PATH or dynamodb:URL
	Resource string // URL of what the holder writes to
	Page     string // file of the shift of its clocks
	Lease    time.Duration
	Rate     float64 // by what part of it the rate of its clocks differs
	Seed     uint64
	Group    *Group // of a worker
}

// Group is a group of package shard, as one of its workers sees it.
type Group struct {
	peers.Timing
	Name       string
	Partitions int
	Weight     float64
	Claims     int
	Write      time.Duration // how often a handler writes to the resource
	Drain      time.Duration // how long it works on after its context ended
}

// Do is the task of a replica.
type Do string

// The tasks.
const (
	Elect Do = "elect" // campaigns in an election, and does operations while it leads
	Lock  Do = "lock"  // takes the lock by itself, and does the same
	Read  Do = "read"  // reads what writers have written, again and again
	Write Do = "write" // writes it, in two steps
	Jobs  Do = "jobs"  // runs jobs, once for each occasion
	Work  Do = "work"  // works in the Group
)

// Variable names the variable of the environment that has the Config, as JSON.
const Variable = "TENURE_CHAOS_REPLICA"

// LockName is the lock of all replicas.
const LockName = "chaos"

// Orders are the lines that a replica reads.
const (
	OrderEnd      = "end"       // end in peace
	OrderStepDown = "step-down" // ask the current holder to step down
)

// Kind says what a line is about.
type Kind string

// Kinds of lines. Instants are by the clock of [NewWatch].
const (
	Ready    Kind = "ready"    // the program runs
	Granted  Kind = "granted"  // work begins, after a Check from From to To
	Held     Kind = "held"     // Check has passed, last by a call that began at From; of no hold: of all
	Failed   Kind = "failed"   // Check does not pass any more
	Begin    Kind = "begin"    // an operation begins, after a Check that began at From
	End      Kind = "end"      // an operation has ended with an answer
	Ended    Kind = "ended"    // work has ended; Text says why, or From when the last Check passed
	Beat     Kind = "beat"     // a heartbeat was confirmed, sent at From
	Planned  Kind = "planned"  // what the group says of this worker has changed
	Lost     Kind = "lost"     // the worker has lost its session
	Left     Kind = "left"     // the worker has left its group, with Text if not in order
	Came     Kind = "came"     // what the work of a reader, a writer or a job came to, in Text
	Finished Kind = "finished" // the store has how the run for an occasion has ended
	Told     Kind = "told"     // of the run of an occasion that was begun: its token, and in Text its state
	Torn     Kind = "torn"     // a reader has seen, since From, what it must not
	Gone     Kind = "gone"     // the store was emptied: nothing works until the program is started again
	Stopping Kind = "stopping" // it stops itself, to be continued when its lease has run out
	Looked   Kind = "looked"   // what the clocks show
	Trouble  Kind = "trouble"  // an error that is not part of the game
)

// Line is a replica's report, as one line of JSON.
type Line struct {
	Kind Kind  `json:"kind"`
	At   int64 `json:"at"`
	// Hold is the hold that it is about, without what the reader of lines adds.
	trial.Hold
	From int64 `json:"from,omitempty"`
	To   int64 `json:"to,omitempty"`
	// RawBoot and RawMono are the kernel's clocks in this time namespace.
	RawBoot int64  `json:"rawBoot,omitempty"`
	RawMono int64  `json:"rawMono,omitempty"`
	Text    string `json:"text,omitempty"`
	// Of an operation, or effect, that has ended with an answer.
	ID   string      `json:"id,omitempty"`
	Told *trial.Told `json:"told,omitempty"`
	// Of a worker.
	Stats  *shard.Stats `json:"stats,omitempty"`
	Clocks *Reading     `json:"clocks,omitempty"`
}

// Reading is a reading of the replica's clocks, and how much time has really passed.
type Reading struct {
	Change    int64         `json:"change"` // how often the shift was changed
	Mono      time.Duration `json:"mono"`
	Boot      time.Duration `json:"boot"`
	Wall      time.Duration `json:"wall"`
	Holder    time.Duration `json:"holder"`
	Contender time.Duration `json:"contender"`
	RealMono  time.Duration `json:"realMono"`
}

// RoleName is the role of a process that is a replica; [Role] plays it.
const RoleName = "replica"

type replica struct {
	Config
	watch  func() int64 // see [NewWatch]
	source *shifted
	held   tenure.Clock // that the locks go by
	lock   string       // that a holder may be asked to give back
	client *tenure.Client
	http   *http.Client // sends whatever it is to send
	asking *http.Client // asks the lease before it sends
	serial atomic.Int64 // of operations
	holds  int          // of a reader or a writer
	out    *proc.Lines

	mu   sync.Mutex
	live map[*hold]bool // those whose Check passes
}

// Role is the replica that [Variable] describes.
func Role(in io.Reader, out io.Writer) error {
	r := &replica{out: proc.NewLines(out), live: map[*hold]bool{}}
	err := must.Try(func() {
		must.Do(json.Unmarshal([]byte(os.Getenv(Variable)), &r.Config))
		r.run(in)
	})
	if err != nil {
		r.say(Line{Kind: Trouble, Text: err.Error()})
	}
	return err
}

// say writes a line.
func (r *replica) say(l Line) {
	l.At = r.watch()
	_ = r.out.Say(l) // no reader is left
}

func (r *replica) run(in io.Reader) {
	r.watch = must.Have(NewWatch())
	r.source = newShifted(must.Have(OpenPage(r.Page)), r.Rate)
	r.held = clock.From(r.source, clock.Options{})
	r.say(Line{
		Kind: Ready, RawBoot: proc.Clock(unix.CLOCK_BOOTTIME), RawMono: proc.Clock(unix.CLOCK_MONOTONIC),
		Clocks: r.look(),
	})
	store := OpenStore(r.Store, "")
	base := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // net/http says so
	base.Proxy = nil
	r.http = &http.Client{Timeout: opTimeout, Transport: base}
	r.asking = &http.Client{Timeout: opTimeout, Transport: fence.NewTransport(base, nil)}
	options := &tenure.Options{
		LeaseDuration: r.Lease, RequestTimeout: r.Lease / 7, Owner: r.Name, Clock: r.held,
	}
	do, check, say := r.campaign, checkPeriod, sayPeriod
	r.lock = LockName
	switch r.Do {
	case Read, Write:
		options.RefreshPeriod, r.lock = r.Lease/20, rwlock.GateName(LockName)
	case Jobs:
		r.lock = once.EveryLockName(string(trial.Every))
	case Work:
		w := &worker{replica: r}
		do, check, say = w.join, workerChecks, workerSays
		options = r.Group.Options()
		options.Owner, options.OnEvent = r.Name, w.beat
		base.MaxIdleConnsPerHost, base.MaxConnsPerHost = 8, 8
	case Elect, Lock:
	}
	r.client = must.Have(tenure.New(store, options))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go r.obey(in, stop)
	go r.observe(ctx, check, say)
	if r.Do != Work { // whose clocks are not moved
		go r.tick(ctx)
	}
	err := do(ctx)
	bound, done := context.WithTimeout(context.Background(), 5*time.Second+4*r.Lease) // on a busy machine
	defer done()
	must.Do(errors.Join(err, r.client.Close(bound), store.Close()))
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
				ctx, done := context.WithTimeout(context.Background(), r.Lease)
				defer done()
				_ = r.client.StepDown(ctx, r.lock, &tenure.StepDownOptions{Reason: "chaos"}) // there may be no holder just now
			}()
		}
	}
	os.Exit(3)
}

// tick often reports what the clocks show, and when they were moved.
func (r *replica) tick(ctx context.Context) {
	said := int64(0)
	for n := 0; wait.For(ctx, 20*time.Millisecond) == nil; n++ {
		if change := r.source.page.changed.Load(); n%10 == 0 || change != said {
			said = change
			r.say(Line{Kind: Looked, Clocks: r.look()})
		}
	}
}

// look reads the clocks as the locks do, and the kernel's, all within a moment.
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

// campaign takes the lock repeatedly until ctx ends.
func (r *replica) campaign(ctx context.Context) error {
	random := rand.New(rand.NewPCG(r.Seed, 1))
	lead := func(ctx context.Context, l *tenure.Lease) error { return r.lead(ctx, l, random) }
	election := r.client.Election(LockName, nil)
	var shared *rwlock.Lock
	if r.Do == Read || r.Do == Write { // not every store allows it
		shared = must.Have(rwlock.New(r.client, LockName, nil))
	}
	alone := &tenure.AcquireOptions{History: true, StoreTimeout: -1}
	do := map[Do]func(context.Context) error{
		Lock:  func(ctx context.Context) error { return r.client.Run(ctx, LockName, alone, lead) },
		Elect: func(ctx context.Context) error { return election.Run(ctx, lead) },
		Read:  func(ctx context.Context) error { return shared.RunRead(ctx, nil, r.compare) },
		Write: func(ctx context.Context) error { return shared.RunWrite(ctx, nil, r.rewrite) },
		Jobs:  r.runJobs,
	}[r.Do]
	for ctx.Err() == nil {
		rest := r.Lease / 4 // a holder that has just resigned lets others go first
		if r.Do == Read || r.Do == Write {
			rest = rand.N(r.Lease / 20)
		}
		switch err := do(ctx); {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, tenure.ErrReplaced):
			r.say(Line{Kind: Gone})
			<-ctx.Done()
		case r.Do == Lock || r.Do == Elect || r.Do == Jobs:
			if !expected(err) {
				r.say(Line{Kind: Trouble, Text: err.Error()})
			}
		case errors.Is(err, tenure.ErrUnreadable), errors.Is(err, tenure.ErrPermanent):
			return err
		default:
			r.say(Line{Kind: Came, Text: cameTo(err)})
		}
		wait.Rest(ctx, rest)
	}
	return nil
}

// expected reports whether chaos can cause an error of a campaign.
func expected(err error) bool {
	return errors.Is(err, tenure.ErrLost) || errors.Is(err, tenure.ErrHeld) || errors.Is(err, tenure.ErrStopTimeout) ||
		errors.Is(err, tenure.ErrUncertain) || errors.Is(err, context.DeadlineExceeded)
}

// cameTo returns in a word why a reader or a writer had to end.
func cameTo(err error) string {
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale):
		return "refused"
	case errors.Is(err, tenure.ErrLost), errors.Is(err, context.Canceled):
		return "lost"
	default:
		return "no store" // a process was stopped while it locked the database
	}
}
