// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/guard"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/text"
	"github.com/tenurelock/tenure/once"
)

// job is what run and lead have in common: a command that is run under a lock.
type job struct {
	Name string `arg:""`
	storeFlags
	leaseFlags
	outputFlags
}

// command is a client on a store, and what run or lead does with it from their
// start to their end: one term, or many.
type command struct {
	console  *console
	signals  *signals
	manager  *manager // nil without a manager
	location storeurl.Location
	store    driver.Store
	client   *tenure.Client
	shut     func() // closes the store

	lock    string
	program guard.Command
	proves  bool // if this process is killed its guardian frees the lock

	extra        []string // of the command's environment
	progressFile string   // the file that shows progress, "" without one

	outer   outer
	endless atomic.Bool // it waits for as long as it takes

	// what names what runs in messages, "the command" if empty; onLeft is called once when it
	// has ended and left processes behind.
	what   string
	onLeft func(exit guard.Exit, left string)

	target target    // what it runs under
	begun  time.Time // when that was chosen, before the first claim

	meanwhile  *signaled               // came during a release
	running    atomic.Pointer[running] // nil while no command runs
	waiting    chan struct{}           // has room for one: there is an event to read
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
		return nil, usage(`no command given: write it after "--"`)
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
		c.say("a store in memory does not exclude other processes")
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

// warnOfName warns a caller that takes a plain lock under a name that another command
// derives. The caller may intend it: it keeps that command out.
func (t *command) warnOfName() {
	if base := text.Base(t.lock); base != t.lock {
		t.console.warn("%q is a lock name that tenure itself derives from %q, for once, every, --slots, --shared, --exclusive, "+
			"shard or doctor: this command and those that use %q exclude each other; "+
			"choose another name unless you mean that", t.lock, base, base)
	}
}

// close waits for what an acquire that was given up leaves to clean up.
func (t *command) close() {
	patience := 3 * t.client.Options().RequestTimeout
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = t.client.Close(ctx) // a lease that is left was reported
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
			break // it is a part of another lock, and is not announced
		}
		select {
		case t.waiting <- struct{}{}:
		default:
		}
	}
	t.report(e)
}

// identifyStore gives the store an identity if it has none. With a role that may only write
// locks there is no identity.
func (t *command) identifyStore() {
	ctx, cancel := context.WithTimeout(context.Background(), t.client.Options().RequestTimeout)
	defer cancel()
	_, _ = doctor.Identify(ctx, t.store)
}

// sayStore reports once which store this is while the command waits: an operator compares it
// for two hosts that should exclude each other.
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
// that only the release has revealed, if another holder came in
// between. A signal ends the wait for the store's answer; a caller that would continue
// still receives it. If the command has failed by itself, failed says how.
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

type running struct {
	ctx   context.Context // it ends when the command has to: with the lease, or before
	lease *tenure.Lease
	guard *guard.Guard
	grace time.Duration
	// stopTimeout is how long heartbeats continue after a request to release the lock.
	stopTimeout time.Duration

	// left is set when the command itself has ended, and processes that it left behind have
	// not.
	left atomic.Bool

	swept atomic.Bool // these processes were asked to stop

	ended chan struct{} // closed when nothing is left of the command

	mu     sync.Mutex
	latest guard.Limits
}

type outcome struct {
	exit  guard.Exit
	lost  error // why the lease was lost while the command ran, or nil
	asked bool  // a signal that asks for the end was passed on
	// steppedDown is the request that the command was stopped for, or nil.
	steppedDown *tenure.StepDownError
	timedOut    bool // the command had to stop because its time was up
	swept       bool // a signal asked the processes that the command left behind to stop
	hungUp      bool // SIGHUP was passed on
	elapsed     time.Duration
}

func (o outcome) status() int {
	switch {
	case o.lost != nil:
		return statusLost
	case o.timedOut:
		return statusTimeout
	}
	return o.exit.Status()
}

// failure returns what the history is to say of a command that has failed by
// itself, nil for any other: nothing had asked it to stop, neither a signal, nor a
// request, nor the end of the lease.
func (o outcome) failure() error {
	if o.timedOut {
		return errors.New("the command was stopped: its time was up")
	}
	if o.lost != nil || o.asked || o.hungUp || o.swept || o.steppedDown != nil || o.interrupted() ||
		o.exit.Reason != guard.Ended || o.status() == 0 {
		return nil
	}
	return fmt.Errorf("the command ended with status %d", o.status())
}

// limits returns until when a command may live under the lease. The clock is
// read before the lease, so that what passes in between makes them early. It
// returns false if the right to act has ended.
func limits(lease *tenure.Lease, grace time.Duration) (guard.Limits, bool) {
	now := guard.Now()
	return limitsAt(now, lease.Remaining(), grace)
}

// limitsAt returns the limits for a lease whose remaining time at now is given. The
// command may use half of the grace to stop; the other half is for killing it.
func limitsAt(now guard.Instant, remaining, grace time.Duration) (guard.Limits, bool) {
	if remaining <= 0 {
		return guard.Limits{}, false
	}
	deadline := now.Add(remaining)
	expiry := deadline.Add(grace)
	return guard.Limits{Term: deadline, Kill: expiry.Add(-grace / 2), Expiry: expiry}, true
}

func (r *running) extend() {
	// Held from the reading to the handing over: the guard goes by what comes last.
	r.mu.Lock()
	defer r.mu.Unlock()
	if l, ok := limits(r.lease, r.grace); ok {
		r.latest = l
		r.guard.Extend(l)
	}
}

// stop ends the command, because its lease has ended, another process asked for the lock, or
// its time is up. While the lease is valid, heartbeats continue and the command has the stop
// timeout to end; if the lease ends meanwhile, it has no more of that.
func (r *running) stop() {
	if r.lease.Check() == nil {
		// A bit before the heartbeats end, so that the lock is released under a
		// good lease.
		r.guard.Stop(guard.Now().Add(r.stopTimeout - r.grace/2))
	}
	for r.lease.Check() == nil { // the context may have ended already: it does not show this
		select {
		case <-r.ended:
			return
		case <-time.After(max(minLook, min(r.grace/16, maxLook))):
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := guard.Now()
	// At the deadline the grace is left. Before it, no time is left: another holder has
	// the lock, or the wall clock shows that this machine was paused, and the boot clock
	// with it.
	// Without progress the lease ends before its deadline, and no one else has the lock until then.
	cause := r.lease.Check()
	if errors.Is(cause, tenure.ErrSuperseded) ||
		!errors.Is(cause, tenure.ErrStalled) && now < r.latest.Term.Add(-r.grace/4) {
		r.guard.Stop(now)
		return
	}
	r.guard.Stop(r.latest.Kill)
}

// How often it is looked whether a lease has ended while its command stops.
const minLook, maxLook = time.Millisecond, 100 * time.Millisecond

// sweep asks the processes that the command has left behind to stop, and kills them at
// the next Ctrl-C. It returns false if the signal should be passed on unchanged, to the
// command's group. Background processes of a shell ignore Ctrl-C, and processes that have
// left the group would not get it.
func (r *running) sweep(sig syscall.Signal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.left.Load() || sig != syscall.SIGINT && sig != syscall.SIGQUIT && sig != syscall.SIGTERM:
		return false
	case !r.swept.Swap(true):
		r.guard.Stop(guard.Now().Add(unlimited)) // it may take any time, as a command may
	case sig == syscall.SIGTERM:
		return false
	default:
		r.guard.Stop(guard.Now())
	}
	return true
}

// unlimited is longer than any lease.
const unlimited = 100 * 365 * 24 * time.Hour

// hold runs the command under the lease, and returns when the command and all
// processes that it started have ended. It does not release the lease. The context is the
// lease's, or a context that ends before it.
func (t *command) hold(ctx context.Context, lease *tenure.Lease) (outcome, error) {
	begun := time.Now()
	grace := t.client.Options().Grace
	first, ok := limits(lease, grace)
	if !ok {
		return outcome{}, guard.ErrTooLate
	}
	command := t.program
	command.Env, command.Last = t.environment(lease), t.lastAct(lease)
	g, err := guard.Start(command, first)
	if err != nil {
		return outcome{}, err
	}
	t.console.emit(record{Event: eventStarted, Lock: t.lock, Token: lease.Token(), Command: command.Args})
	r := &running{
		ctx: ctx, lease: lease, guard: g, grace: grace, latest: first,
		stopTimeout: t.client.Options().StopTimeout, ended: make(chan struct{}),
	}
	t.running.Store(r)
	r.extend() // a heartbeat may have been confirmed meanwhile
	unhook := context.AfterFunc(ctx, r.stop)
	unwatch := t.watchProgress(lease)

	var o outcome
	unhand := t.signals.to(func(sig syscall.Signal) {
		switch sig {
		case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
			o.asked = true
		case syscall.SIGHUP:
			o.hungUp = true
		}
		if !r.sweep(sig) {
			g.Signal(sig)
		}
	})
	o.exit = g.Wait()
	close(r.ended)
	unwatch()
	unhand()
	unhook()
	t.running.Store(nil)
	o.elapsed = time.Since(begun)

	_ = errors.As(context.Cause(lease.Context()), &o.steppedDown)
	o.swept = r.swept.Load()
	cut := errors.Is(context.Cause(ctx), once.ErrTimeout)
	inTime := (o.steppedDown != nil || o.swept || cut) && o.exit.Reason == guard.Stopped && lease.Check() == nil
	if !inTime && (o.exit.Reason == guard.Overdue || o.exit.Reason == guard.Stopped) {
		if o.lost = context.Cause(lease.Context()); o.lost == nil || o.steppedDown != nil {
			o.lost = cmp.Or(lease.Check(), tenure.ErrExpired) // if it is nil, the guard was quicker
		}
	}
	o.timedOut = cut && o.exit.Reason == guard.Stopped && o.lost == nil
	t.reportEnd(lease, o)
	return o, nil
}

func (t *command) reportEnd(lease *tenure.Lease, o outcome) {
	status := o.status()
	r := record{Event: eventEnded, Lock: t.lock, Token: lease.Token(), Status: &status, Held: seconds(o.elapsed)}
	if o.lost != nil {
		r.Cause = flags.OneLine(o.lost)
	}
	t.console.emit(r)
}

func (t *command) conclude(lease *tenure.Lease, o *outcome) {
	if superseded := t.release(lease, o.failure()); superseded != nil && o.lost == nil {
		o.lost = superseded
	}
	t.reportTrouble(*o)
}

// reportTrouble reports what was out of the ordinary.
func (t *command) reportTrouble(o outcome) {
	c := t.console
	switch {
	case o.lost == nil && o.steppedDown != nil && o.exit.Killed:
		c.warn("the command did not stop within %v of the request to release the lock: it was killed",
			t.client.Options().StopTimeout)
	case o.timedOut && o.exit.Killed:
		c.warn("the command did not stop within %v of its timeout: it was killed", t.client.Options().StopTimeout)
	case o.lost == nil && o.swept && o.exit.Killed:
		c.warn("processes that the command left behind were killed")
	case o.lost != nil && o.exit.Killed:
		c.warn("the lease of %q was lost while the command ran (%s): the command was killed", t.lock, reasonText(o.lost))
	case o.lost != nil && o.exit.Reason == guard.Ended:
		c.warn("the lease of %q was lost while the command ran (%s)", t.lock, reasonText(o.lost))
	case o.lost != nil:
		c.warn("the lease of %q was lost while the command ran (%s): the command was ended", t.lock, reasonText(o.lost))
	case o.exit.Reason == guard.Abandoned:
		c.warn("the guardian was killed, so the command and all processes that it started were killed")
	}
}

func reasonText(err error) string {
	var named *tenure.Error
	if errors.As(err, &named) {
		err = named.Err
	}
	return flags.OneLine(err)
}

func (t *command) notified(n guard.Notice) {
	c := t.console
	r := t.running.Load()
	var processes []string
	for _, p := range n.Processes {
		processes = append(processes, fmt.Sprintf("%d (%s)", p.PID, p.Name))
	}
	c.emit(record{Event: "command_" + string(n.Kind), Lock: t.lock, Processes: processes})
	switch n.Kind {
	case guard.Awaiting:
		text := fmt.Sprintf("%s has ended; %q stays held until the processes that it left behind end: %s; Ctrl-C asks them to stop",
			cmp.Or(t.what, "the command"), t.lock, joinSome(processes))
		c.say("%s", text)
		if r == nil || r.left.Swap(true) {
			return
		}
		if t.onLeft != nil {
			t.onLeft(n.Exit, joinSome(processes))
		}
		if c.quiet { // a lasting outage is reported in any case
			time.AfterFunc(t.client.Options().LeaseDuration, func() {
				if t.running.Load() == r {
					c.warn("%s", text)
				}
			})
		}
	case guard.Terminating:
		switch {
		case r != nil && errors.Is(context.Cause(r.lease.Context()), tenure.ErrSteppedDown):
			// the request was reported before
		case r != nil && errors.Is(context.Cause(r.ctx), once.ErrTimeout):
			c.say("the time of the command is up: it is asked to stop")
		case r != nil && r.swept.Load():
			c.say("the processes that the command left behind were asked to stop; Ctrl-C kills them")
		default:
			c.say("the lease of %q ends: the command and all processes that it started are ended", t.lock)
		}
	case guard.Suspended:
		left := time.Duration(0)
		if r != nil {
			left = r.lease.Remaining()
		}
		c.say("stopped, so no heartbeats are sent; continue within %v, or the command is ended", round(left))
		c.stderr.Flush(time.Second) // this process is about to be stopped, with what it has not written
	}
}

func joinSome(all []string) string {
	const most = 5
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// progressFlags tie the heartbeats to what the command shows of its work.
type progressFlags struct {
	ProgressFile    *string        `empty:"name a file that COMMAND writes"`
	ProgressTimeout *time.Duration `must:"be positive"`
}

// check takes the time over into the options of the client.
func (f *progressFlags) check(j *job) error {
	switch {
	case f.ProgressFile == nil && f.ProgressTimeout == nil:
		return nil
	case f.ProgressTimeout == nil:
		return usage("--progress-file needs --progress-timeout: how long the file may stay unchanged")
	case f.ProgressFile == nil:
		return usage("--progress-timeout needs --progress-file: the file that COMMAND writes to show progress")
	}
	// COMMAND may change its folder before it touches the file.
	file, err := filepath.Abs(*f.ProgressFile)
	if err != nil {
		return usage("--progress-file: %w", err)
	}
	*f.ProgressFile = file
	j.progress = *f.ProgressTimeout
	return nil
}

// tell sets the file by which the command shows its progress.
func (f *progressFlags) tell(t *command) {
	if f.ProgressFile != nil {
		t.progressFile = *f.ProgressFile
		t.extra = append(t.extra, "TENURE_PROGRESS_FILE="+*f.ProgressFile)
	}
}

// looksForProgress is how often the file is checked within --progress-timeout.
const looksForProgress = 10

// watchProgress reports progress to the lease whenever the file has changed, until the
// returned function is called. What is in the file does not matter.
func (t *command) watchProgress(lease *tenure.Lease) (stop func()) {
	if t.progressFile == "" {
		return func() {}
	}
	pause := min(time.Second, t.client.Options().ProgressTimeout/looksForProgress)
	last, _ := os.Stat(t.progressFile) // what was there before shows no progress
	return beside(context.Background(), func(ctx context.Context) {
		for sleep(ctx, pause) == nil {
			now, err := os.Stat(t.progressFile)
			if err != nil {
				continue // it is being replaced, or is not there yet
			}
			if last == nil || !os.SameFile(now, last) || !now.ModTime().Equal(last.ModTime()) || now.Size() != last.Size() {
				lease.Progress()
			}
			last = now
		}
	})
}

// crashedWord is the command with which the guardian of run and lead frees the lock of its
// killed caller. Only the guardian may use it: it relies on a proven crash.
const crashedWord = "crashed"

// crashedCmd is that command. The store is that of the environment.
type crashedCmd struct {
	Lock  string `required:""`
	ID    string `name:"id" required:""`
	Ended string `arg:""`
	Until string `arg:""`
	timingFlags
}

// lastAct returns the command that the guardian executes at the end if this process was
// killed: no command if no other process has the store. It contains the lock and the lease,
// which the store shows anyway; the URL of the store, which may contain a password, stays in
// the environment.
func (t *command) lastAct(lease *tenure.Lease) []string {
	if !t.proves || t.location.Private() {
		return nil
	}
	timing := lease.Timing()
	return []string{
		os.Args[0], crashedWord, "--lock=" + lease.Name(), "--id=" + lease.ID(),
		"--lease=" + timing.LeaseDuration.String(), "--heartbeat=" + timing.HeartbeatPeriod.String(),
		"--refresh=" + timing.RefreshPeriod.String(), "--grace=" + timing.Grace.String(),
	}
}

// Run frees the lock when the last requests of the dead process must have arrived, and gives
// up when the lease has run out anyway.
func (f *crashedCmd) Run() error {
	// A service manager sends these to all that is left of a unit. The lock is about to be free,
	// and the next holder wants it.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	// "exe" means nothing to people; if this fails, it does no harm
	_ = os.WriteFile("/proc/self/comm", []byte("tenure"), 0o600)
	ended, err := guard.ParseInstant(f.Ended)
	expiry, err2 := guard.ParseInstant(f.Until)
	at, err3 := storeurl.Parse(os.Getenv("TENURE_STORE"))
	if err := cmp.Or(err, err2, err3); err != nil {
		return usage("%w", err)
	}
	options, err := f.Options(nil)
	if err == nil {
		options, err = flags.WithDefaults(options)
	}
	if err := cmp.Or(err, mustExist(at)); err != nil {
		return err
	}
	from := ended.Add(options.Grace)
	until := max(ended, expiry).Add(options.LeaseDuration)
	ctx, stop := context.WithTimeout(context.Background(), until.Sub(guard.Now()))
	defer stop()
	store, err := at.Connect(ctx) // nothing is asked of it yet: it may be out of reach for a while
	if err != nil {
		return storeFailed(err)
	}
	defer func() { _ = store.Close() }() // every write was confirmed, or its failure reported
	client, err := tenure.New(store, &options)
	if err != nil {
		return usage("%w", err)
	}
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }() // it holds nothing
	now := guard.Now()
	o := &admin.CrashOptions{After: from.Sub(now), Within: until.Sub(now)}
	if o.After <= 0 {
		o.After = -1 // not the default: that time has passed
	}
	if o.Within < o.After || o.Within <= 0 {
		return nil // it runs out, or has
	}
	if err = admin.ReleaseCrashed(ctx, client, f.Lock, f.ID, o); err == nil || errors.Is(err, tenure.ErrNotHeld) {
		return nil
	}
	return storeFailed(err)
}
