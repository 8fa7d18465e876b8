// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// Client is a client of a [World]. Its methods act on its process, its machine and its
// network. Pass its [tenure.Client] to the program under test.
//
// All methods may be called concurrently. After [Client.Kill] the methods that change
// something fail the test, since nothing can happen to a dead process.
type Client struct {
	*tenure.Client

	w       *World
	name    string
	process *process
	faults  *faultstore.Store
	network network

	ctx     context.Context // of the program; stop ends it
	stop    context.CancelFunc
	running sync.WaitGroup // what Go runs

	mu       sync.Mutex
	events   []tenure.Event
	maxReads int // of BoundReads; 0 is no bound
}

func newClient(w *World, name, owner string, edit []func(*tenure.Options)) (*Client, error) {
	c := &Client{w: w, name: name, maxReads: w.maxReads}
	c.ctx, c.stop = context.WithCancel(w.t.Context())
	o := tenure.Options{Owner: owner, Host: owner}
	for _, e := range edit {
		e(&o)
	}
	if o.Clock == nil {
		o.Clock = tenure.MonotonicClock()
	}
	c.process = &process{clock: o.Clock, rate: 1}
	o.Clock = c.process
	if o.Logger == nil {
		o.Logger = w.logger(owner)
	}
	tell := o.OnEvent
	o.OnEvent = func(e tenure.Event) {
		c.note(e)
		if tell != nil {
			tell(e)
		}
	}
	c.faults = faultstore.New(w.handle(), nil)
	c.network.faults = c.faults
	var err error
	if c.Client, err = tenure.New(w.wrap(name, c.faults.Driver()), &o); err != nil {
		return nil, err
	}
	return c, nil
}

// World returns the world of the client.
func (c *Client) World() *World { return c.w }

// Partition cuts the client off the store: what it sends from now on is lost, and what
// is on its way to it, too. Its calls hang until their timeouts.
func (c *Client) Partition() {
	c.w.t.Helper()
	if c.lives("Partition") {
		c.network.cut(true)
	}
}

// Heal ends a [Client.Partition], what is left of [Client.LoseReplies], and
// [Client.Slow]. Rules that were given to Faults stay, and so does a pause.
func (c *Client) Heal() {
	c.w.t.Helper()
	if c.lives("Heal") {
		c.network.heal()
	}
}

// Slow makes each call of the client take d more from now on, half of it on its way to
// the store, and half of it on its way back. Zero ends that.
func (c *Client) Slow(d time.Duration) {
	c.w.t.Helper()
	switch {
	case d < 0:
		c.w.t.Errorf("tenuretest: Slow(%v) of %q: the delay must not be negative; 0 ends it", d, c.name)
	case c.lives("Slow"):
		c.network.setSlow(d)
	}
}

// LoseReplies loses the replies of the next n writes of the client: the store makes
// each write, and the client waits for the answer until its timeout, and never learns
// of it. Calls add up.
func (c *Client) LoseReplies(n int) {
	c.w.t.Helper()
	switch {
	case n < 1:
		c.w.t.Errorf("tenuretest: LoseReplies(%d) of %q: the number must be at least 1; Heal ends an earlier call", n, c.name)
	case c.lives("LoseReplies"):
		c.network.loseReplies(n)
	}
}

// Faults returns the fault store between the client and its store, for faults of other
// kinds: late and duplicate writes, stale reads, errors of your own. It also counts the
// calls, and keeps a log of them.
func (c *Client) Faults() *faultstore.Store { return c.faults }

// Inject has calls of one kind get a fault: after the first skip of them the next count, or
// all if count is 0. remove takes that away again. Faults().Inject can tell calls apart by more.
func (c *Client) Inject(op faultstore.Op, skip, count int, f faultstore.Fault) (remove func()) {
	return c.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{op}, Skip: skip, Count: count, Fault: f})
}

// MustAcquire acquires the lock, and ends the test if that fails.
func (c *Client) MustAcquire(lock string, o *tenure.AcquireOptions) *tenure.Lease {
	c.w.t.Helper()
	l, err := c.Acquire(c.w.t.Context(), lock, o)
	if err != nil {
		c.w.t.Fatalf("tenuretest: %q acquires %q: %v", c.name, lock, err)
	}
	return l
}

// BoundReads gives the client another bound than [World.BoundReads] has.
func (c *Client) BoundReads(perSecond int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.maxReads = perSecond
}

// checkReads fails the test if the client has read more than BoundReads allows.
func (c *Client) checkReads() {
	c.mu.Lock()
	most := c.maxReads
	c.mu.Unlock()
	if most == 0 {
		return
	}
	recent := map[string][]time.Time{}
	for _, call := range c.faults.Log() {
		if call.Op != faultstore.OpGet {
			continue
		}
		at := append(recent[call.Key], call.Begin)
		for call.Begin.Sub(at[0]) >= time.Second {
			at = at[1:]
		}
		if recent[call.Key] = at; len(at) > most {
			c.w.t.Errorf("tenuretest: %q read %q %d times within %v, from %v on: at most %d a second are allowed",
				c.name, call.Key, len(at), call.Begin.Sub(at[0]), at[0].Format("15:04:05.000"), most)
			return
		}
	}
}

// Calls runs f, and returns the kinds of the calls that the client has made meanwhile, in the
// order in which they began, such as "get claim": those on locks, without those on sessions and
// histories, and without watches. It forgets the log of the calls before.
func (c *Client) Calls(f func()) string {
	c.faults.ResetLog()
	f()
	var kinds []string
	for _, call := range c.faults.Log() {
		if call.Op != faultstore.OpWatch && call.Op != faultstore.OpHint && !strings.HasPrefix(call.Key, driver.OwnPrefix) {
			kinds = append(kinds, string(call.Op))
		}
	}
	return strings.Join(kinds, " ")
}

// Events returns the events of the client until now, those of the given kinds, or all; in a
// bubble, when everything else has come to rest.
func (c *Client) Events(kinds ...tenure.EventKind) []tenure.Event {
	c.w.settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.events), func(e tenure.Event) bool {
		return len(kinds) > 0 && !slices.Contains(kinds, e.Kind)
	})
}

func (c *Client) note(e tenure.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

// Pause stops the process of the client, as SIGSTOP does, until [Client.Resume]. The
// package comment says what that is. The goroutines of the test and of the program run
// on.
func (c *Client) Pause() {
	c.w.t.Helper()
	if c.lives("Pause") {
		c.process.pause()
		c.faults.SetPaused(true)
	}
}

// Resume ends a [Client.Pause], as SIGCONT does.
func (c *Client) Resume() {
	c.w.t.Helper()
	if c.lives("Resume") {
		c.resume()
	}
}

func (c *Client) resume() {
	c.process.resume()
	c.faults.SetPaused(false)
}

// Suspend puts the machine of the client to sleep for d, and returns when it is awake
// again: Pause, and then Resume.
func (c *Client) Suspend(d time.Duration) {
	c.w.t.Helper()
	c.Pause()
	<-time.After(d)
	if !c.killed() {
		c.Resume()
	}
}

// SetRate has the clock of the client run at that rate from now on: 1.09 is 9 % too
// fast, 1 is right again, and 0 stops the clock. [tenure.Options.MaxClockDrift] says how
// wrong a clock may run.
func (c *Client) SetRate(rate float64) {
	c.w.t.Helper()
	switch {
	case rate < 0:
		c.w.t.Errorf("tenuretest: SetRate(%v) of %q: the rate must not be negative; 1 is the right rate", rate, c.name)
	case c.lives("SetRate"):
		c.process.setRate(rate)
	}
}

// Step has the clock of the client show that d more may have passed, but not certainly,
// as when the wall clock alone is ahead after a suspend: a holder counts that, and a
// waiter does not. See [tenure.Clock].
//
// A suspend that the wall clock alone has counted is Pause and SetRate(0), and after its
// time Step, SetRate(1) and Resume.
func (c *Client) Step(d time.Duration) {
	c.w.t.Helper()
	switch {
	case d < 0:
		c.w.t.Errorf("tenuretest: Step(%v) of %q: the step must not be negative", d, c.name)
	case c.lives("Step"):
		c.process.step(d)
	}
}

// Kill ends the process of the client, as SIGKILL does, with nothing released. When it
// returns, a millisecond later, every Check of its leases fails, their contexts have
// ended with [tenure.ErrClosed], that of [Client.Go] has ended, and the calls of the program
// return as they do from a client that was closed. Others take its locks over as those of
// any crashed process.
func (c *Client) Kill() {
	c.w.t.Helper()
	if !c.lives("Kill") || !c.process.kill() {
		return
	}
	c.network.cut(true) // first, so that no request gets out
	// Close ends the contexts at once, and then waits for releases, which cannot come.
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.w.t.Context()), killTimeout)
	defer stop()
	_ = c.Close(ctx)
	c.process.end()
	c.faults.SetPaused(false)
	c.stop()
}

// killTimeout is how long a killed client may take to end.
const killTimeout = time.Millisecond

// killed reports whether Kill was called.
func (c *Client) killed() bool { return c.process.killed() }

// lives fails the test if the client was killed.
func (c *Client) lives(op string) bool {
	c.w.t.Helper()
	if !c.killed() {
		return true
	}
	c.w.t.Errorf("tenuretest: %s of %q, which was killed: start it again with World.Client(%q)", op, c.name, c.name)
	return false
}

// ended returns a context that has ended. Close ignores one, and has a bound of its own
// then: the stop timeout and a lease duration.
func ended(ctx context.Context) context.Context {
	ctx, end := context.WithCancel(ctx)
	end()
	return ctx
}

// end closes the client at the end of the test, in good order if it lives.
func (c *Client) end() {
	if !c.killed() {
		c.resume()
		c.network.cut(false)
		_ = c.Close(ended(c.w.t.Context())) // what was left behind is the program's business, and in its log
	}
	c.checkReads()
	c.running.Wait()
	if err := c.faults.Close(); err != nil {
		c.w.t.Errorf("tenuretest: close of the store of %q: %v", c.name, err)
	}
}

// state describes the client, for the message of a failing test.
func (c *Client) state() string {
	switch {
	case c.killed():
		return "killed"
	case c.process.paused():
		return "paused"
	}
	return c.network.state()
}
