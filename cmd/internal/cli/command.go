// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/guard"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/text"
)

// job is what run and lead have in common: a command that is run under a lock.
type job struct {
	Name string `arg:""`
	storeFlags
	leaseFlags
	outputFlags
}

// command is a client on a store, and what run or lead does with it from their
// start to their end: one tenure, or many.
type command struct {
	console  *console
	signals  *signals
	manager  *manager // nil: there is none
	location storeurl.Location
	store    driver.Store
	client   *tenure.Client
	shut     func() // closes the store

	lock    string
	program guard.Command
	proves  bool // if this process is killed its guardian frees the lock

	extra        []string // of the command's environment
	progressFile string   // by which it shows progress, "" if it does not

	outer   outer
	endless atomic.Bool // it waits for as long as it takes

	// what is what runs, for people, "the command" if empty; onLeft is told once that it has
	// ended, and left something behind.
	what   string
	onLeft func(exit guard.Exit, left string)

	target target    // what it runs under
	begun  time.Time // when that was chosen, before the first claim

	meanwhile  *signaled               // came during a release
	running    atomic.Pointer[running] // nil while no command runs
	waiting    chan struct{}           // has room for one: there is something to look at
	identify   sync.Once               // after the first write
	identified sync.WaitGroup
	storeSaid  sync.Once
	away       outage
}

// open makes everything ready to take the lock: what is wrong with the command
// line, the command and the store is found in this order, before anything is
// written to a store.
func (j *job) open(c *console, rest operands) (*command, error) {
	if len(rest.words) == 0 {
		return nil, usage(`no command given: write it behind "--"`)
	}
	options, err := j.options(j.storeFlags)
	if err == nil {
		err = checkTaken(options, j.Name)
	}
	if err != nil {
		return nil, err
	}
	plan, err := j.asked()
	if err != nil {
		return nil, err
	}
	t := &command{
		console: c, waiting: make(chan struct{}, 1),
		program: guard.Command{Args: rest.words, Contain: j.Contain},
	}
	t.on(j.Name)
	t.program.Notify = t.notified
	_, err = t.program.Find()
	if err := cmp.Or(err, guard.Supported()); err != nil {
		return nil, cannotRun(err)
	}
	if t.location, err = j.location(c); err != nil {
		return nil, err
	}
	if t.location.Private() {
		c.say("a store in memory excludes no other process")
	}
	options.OnEvent, options.Logger = t.onEvent, c.log
	if t.store, t.client, t.shut, err = openStore(c, t.location, &options, plan); err != nil {
		return nil, err
	}
	t.outer = outerOf(t.location.URL())
	t.signals = catchSignals() // until here there was nothing to clean up
	surviveBrokenPipe()
	t.manager = newManager(func() bool { return t.running.Load() == nil })
	return t, nil
}

// on has the command run under a lock.
func (t *command) on(name string) { t.lock, t.target, t.begun = name, lock{t, name}, time.Now() }

// warnOfName tells whoever takes a plain lock that it is, by its name, one of those that
// another command is made of. It may be meant: it keeps that command out.
func (t *command) warnOfName() {
	if base := text.Base(t.lock); base != t.lock {
		t.console.warn("%q is a lock that tenure itself makes of %q, for once, every, --slots, --shared, --exclusive, "+
			"shard or doctor: this command and what uses %q keep each other out; "+
			"choose another name unless you mean that", t.lock, base, base)
	}
}

// close waits for what an acquire that was given up leaves to clean up.
func (t *command) close() {
	patience := 3 * t.client.Options().RequestTimeout
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = t.client.Close(ctx) // a lease that is left has been told of
	t.manager.close()
	t.identify.Do(func() {}) // begins no more
	t.identified.Wait()
	t.shut()
}

// onEvent is called for each event of the client. The command's life is
// extended first.
func (t *command) onEvent(e tenure.Event) {
	switch e.Kind {
	case tenure.EventRenewed:
		if r := t.running.Load(); r != nil {
			r.extend()
		}
	case tenure.EventAcquired:
		t.identify.Do(func() { t.identified.Go(t.identifyStore) })
	case tenure.EventWaiting:
		if e.Lock != t.target.Name() {
			break // it is a part of it, of which nothing is announced
		}
		select {
		case t.waiting <- struct{}{}:
		default:
		}
	}
	t.report(e)
}

// identifyStore gives the store an identity if it has none. A role that may write locks alone
// does without.
func (t *command) identifyStore() {
	ctx, cancel := context.WithTimeout(context.Background(), t.client.Options().RequestTimeout)
	defer cancel()
	_, _ = doctor.Identify(ctx, t.store)
}

// sayStore says once which store this is, to whoever waits: two hosts that should keep each
// other out compare it.
func (t *command) sayStore(ctx context.Context) {
	t.storeSaid.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, t.client.Options().RequestTimeout)
		defer cancel()
		id, err := doctor.Identity(ctx, t.store)
		if err != nil {
			id = "unknown"
		}
		t.console.say("the store is %s, its identity: %s", t.location.Shown(), id)
	})
}

func (t *command) environment(lease *tenure.Lease) []string {
	return slices.Concat(os.Environ(), t.target.environment(lease), t.extra, []string{
		"TENURE_OWNER=" + lease.Owner(),
		"TENURE_STORE=" + t.location.URL(),
	})
}

// release releases the lock after its command has ended, and returns the loss
// that only the release has brought to light, if another holder came in
// between. A signal ends the waiting for the store's answer, and is kept for
// whoever would go on otherwise. If the command has failed by itself, failed says how.
func (t *command) release(lease *tenure.Lease, failed error) (superseded error) {
	ctx, stop := t.signals.cancel(context.Background())
	defer stop()
	if lease.Check() != nil {
		// It runs out by itself, so the release is a courtesy. The store may be
		// what it was lost by.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 2*t.client.Options().RequestTimeout)
		defer cancel()
	}
	err := lease.ReleaseWith(ctx, &tenure.ReleaseOptions{Failed: failed})
	if sig := stop(); sig != 0 {
		t.meanwhile = &signaled{sig}
	}
	switch {
	case errors.Is(err, tenure.ErrSuperseded):
		return err
	case errors.Is(err, tenure.ErrUncertain) && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		t.console.warn("the release of %q was not confirmed: it is free within %v", t.lock, t.client.Options().LeaseDuration)
	}
	return nil // what was lost during the command, the guard has seen
}

// latePause is how long to wait after a lease that was over before its command
// could begin: what has held this process up may do so again.
const latePause = 100 * time.Millisecond

// idle does nothing for a while, unless a signal comes.
func (t *command) idle(parent context.Context, pause time.Duration) error {
	ctx, stop := t.signals.cancel(parent)
	// A tenth of it is random, so that candidates do not keep in step.
	err := sleep(ctx, pause+rand.N(pause/10+1))
	if sig := stop(); sig != 0 {
		return signaled{sig}
	}
	return err
}
