// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/harness/wait"
)

const (
	// opTimeout bounds one operation.
	opTimeout = 2 * time.Second
	// checkPeriod is how often leases are checked besides the operations, and sayPeriod how often
	// that is reported; a worker has many.
	checkPeriod, workerChecks = 2 * time.Millisecond, 20 * time.Millisecond
	sayPeriod, workerSays     = 50 * time.Millisecond, 100 * time.Millisecond
	// maxDwell is how long the program is busy between its check and its write,
	// at most: where a pause makes the write late.
	maxDwell = 20 * time.Millisecond
	// maxPause is the longest pause between two operations.
	maxPause = 8 * time.Millisecond
)

// hold is a lease of any kind, and what is reported about it: readers take turns with one token,
// so each of their holds has its own owner.
type hold struct {
	*replica
	trial.Hold
	lease interface{ Check() error }
	last  int64 // before the last Check that passed; guarded by mu of the replica
}

func (r *replica) hold(lease interface{ Check() error }, lock string, token uint64) *hold {
	return &hold{replica: r, Hold: trial.Hold{Lock: lock, Owner: r.Name, Token: token}, lease: lease}
}

func (h *hold) say(l Line) {
	l.Hold = h.Hold
	h.replica.say(l)
}

// check calls Check, and returns whether it passes. It reports the first failure.
func (h *hold) check() (from int64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	err = h.checkLocked()
	return h.last, err
}

func (h *hold) checkLocked() error {
	from := h.watch()
	err := h.lease.Check()
	switch {
	case err == nil:
		h.last = from
	case h.live[h]:
		delete(h.live, h)
		h.say(Line{Kind: Failed, From: h.last})
	}
	return err
}

// observe calls the Check of each lease all the time, so that the log has the last instant at which
// one passes. Now and then it reports that the Checks of all leases that have begun, and have not
// failed or ended, have passed since an instant.
func (r *replica) observe(ctx context.Context, check, say time.Duration) {
	for said := int64(0); wait.For(ctx, check) == nil; {
		r.mu.Lock()
		began := r.watch()
		for h := range r.live {
			_ = h.checkLocked() // it tells
		}
		if len(r.live) > 0 && began-said > int64(say) {
			r.say(Line{Kind: Held, From: began})
			said = began
		}
		r.mu.Unlock()
	}
}

// work calls do while it holds the lock, and checks the lock all the time meanwhile.
func (h *hold) work(ctx context.Context, do func(context.Context) error) error {
	h.mu.Lock() // reports are about holds that have begun
	err := h.checkLocked()
	if err == nil {
		h.say(Line{Kind: Granted, From: h.last, To: h.watch()})
		h.live[h] = true
	}
	h.mu.Unlock()
	if err != nil {
		return nil //nolint:nilerr // it is lost already: there is nothing to tell
	}
	err = do(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.checkLocked() // it tells
	delete(h.live, h)
	h.say(Line{Kind: Ended, From: h.last, Text: fmt.Sprint(context.Cause(ctx))})
	return err
}

// lead does operations while it leads, for a few leases, and then resigns.
func (r *replica) lead(ctx context.Context, l *tenure.Lease, random *rand.Rand) error {
	term := r.Lease + time.Duration(random.Int64N(int64(4*r.Lease)))
	ctx, stop := context.WithTimeoutCause(ctx, term, errors.New("resigned"))
	defer stop()
	seeds := [2]uint64{random.Uint64(), random.Uint64()}
	h := r.hold(l, LockName, l.Token())
	return h.work(ctx, func(ctx context.Context) error {
		var both sync.WaitGroup
		for i, seed := range seeds {
			both.Go(func() { h.operate(ctx, rand.New(rand.NewPCG(seed, uint64(i)))) })
		}
		both.Wait()
		return nil
	})
}

// operate does operations until ctx ends, or the lease.
func (h *hold) operate(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		// A write in flight usually cannot be cancelled: it does not end with the
		// lease. Some writes check the lease again right before they are sent, as
		// fence.NewTransport does.
		client, value := h.http, ""
		if random.IntN(4) == 0 {
			client = h.asking
		}
		if random.IntN(3) > 0 {
			value = fmt.Sprint(random.Uint64(), "/", h.Token)
		}
		if _, err := h.perform(ctx, client, value, dwell); errors.Is(err, errEnded) {
			return
		}
		<-time.After(rand.N(maxPause))
	}
}

func dwell() { <-time.After(rand.N(maxDwell)) }

// errEnded is the error of an operation that a check has forbidden.
var errEnded = errors.New("the lease has ended")

// perform writes a value, or reads it if value is empty, after a check and a dwell, and reports
// that. It returns what was read.
func (h *hold) perform(ctx context.Context, client *http.Client, value string, dwell func()) (string, error) {
	from, err := h.check()
	if err != nil {
		return "", errors.Join(errEnded, err)
	}
	h.say(Line{Kind: Begin, From: from})
	dwell()
	effect := h.Effect(from)
	effect.ID, effect.Read, effect.Value = fmt.Sprintf("%s-%d", h.Name, h.serial.Add(1)), value == "", value
	read, err := effect.Send(context.WithoutCancel(ctx), client, h.Resource)
	var stale *fence.StaleError
	switch {
	case err == nil:
		h.say(Line{Kind: End, ID: effect.ID, Told: &trial.Told{Value: read}})
	case errors.As(err, &stale):
		h.say(Line{Kind: End, ID: effect.ID, Told: &trial.Told{Refused: true, Highest: stale.Highest}})
	}
	return read, err
}

// begin returns the hold of a reader or a writer.
func (r *replica) begin(l *rwlock.Lease) *hold {
	r.holds++
	h := r.hold(l, LockName, l.Token())
	h.Owner, h.Shared = fmt.Sprint(r.Name, ".", r.holds), r.Do == Read
	return h
}

// rewrite writes the register in two steps, a half and the whole. Sometimes it stops itself
// between its check and its write.
func (r *replica) rewrite(ctx context.Context, l *rwlock.Lease) error {
	h := r.begin(l)
	return h.work(ctx, func(ctx context.Context) error {
		for _, what := range []string{"half", "whole"} {
			stop := func() {
				if what == "whole" && rand.N(3) == 0 {
					h.say(Line{Kind: Stopping})
					_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // the run continues it
				}
			}
			if _, err := h.perform(ctx, h.http, fmt.Sprint(what, " ", h.Token), stop); err != nil {
				return err
			}
		}
		h.say(Line{Kind: Came, Text: "written"})
		return ctx.Err()
	})
}

// compare reads the register a few times. As long as its lease is good it must not change, nor
// be a half, unless LastWriter showed the reader that the last writer had not ended well.
func (r *replica) compare(ctx context.Context, l *rwlock.Lease) error {
	last, ok := l.LastWriter()
	if !ok {
		return nil
	}
	h := r.begin(l)
	began, well := h.watch(), last.End == tenure.EndReleased
	return h.work(ctx, func(ctx context.Context) error {
		var first string
		for i := range 4 {
			value, err := h.perform(ctx, h.http, "", func() {})
			if err == nil {
				wait.Rest(ctx, rand.N(r.Lease/5))
				_, err = h.check()
			}
			if err != nil {
				return err
			}
			if i == 0 {
				first = value
			}
			if value != first || well && value != fmt.Sprint("whole ", h.Token-1) {
				h.say(Line{Kind: Torn, From: began, Text: fmt.Sprintf("%q, and before %q, for a reader with %d "+
					"after a writer that has %s", value, first, h.Token, last.End)})
				return nil
			}
		}
		came := "told" // that it may be half; it does not change
		if well {
			came = "whole"
		}
		h.say(Line{Kind: Came, Text: came})
		return nil
	})
}

// EveryLeases is how many leases are a period of the job that is run each period. The others have
// an occasion in each lease.
const EveryLeases = 3

// runJobs runs a job of each rule, which is its name.
func (r *replica) runJobs(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var slots sync.WaitGroup
	defer slots.Wait()
	defer stop()
	slots.Go(func() { r.runSlots(ctx, trial.InOrder, &once.Options{Wait: true, MaxAhead: 20}) })
	slots.Go(func() {
		r.runSlots(ctx, trial.Redo, &once.Options{Wait: true, MaxAhead: -1, OutOfOrder: true, Redo: true})
	})
	return once.Every(ctx, r.client, string(trial.Every), EveryLeases*r.Lease, nil, r.job(trial.Every))
}

// runSlots requests each occasion of a schedule by its own wall clock, until it has an answer.
func (r *replica) runSlots(ctx context.Context, rule trial.Rule, options *once.Options) {
	for answered := int64(0); ctx.Err() == nil; wait.Rest(ctx, r.Lease/20) {
		slot := int64(r.source.Now().Wall / r.Lease)
		if slot == answered {
			continue
		}
		result, err := once.Once(ctx, r.client, string(rule), slot, options, r.job(rule))
		came := "no answer of the store"
		done, told := errors.AsType[*once.DoneError](err)
		of := Line{Hold: trial.Hold{Lock: once.LockName(string(rule)), Owner: r.Name, Occasion: slot, Rule: rule}}
		switch {
		case result.Run.Token > 0:
			if came = "run"; result.Recorded {
				of.Kind, of.Token = Finished, result.Run.Token
				r.say(of)
			}
		case told && done.Run.Token > 0:
			came = "begun elsewhere"
			of.Kind, of.Token, of.Text = Told, done.Run.Token, string(done.Run.State)
			r.say(of)
		case told, errors.Is(err, once.ErrPassed):
			came = "passed"
		case errors.Is(err, once.ErrSlotAhead):
			came = "ahead"
		case errors.Is(err, once.ErrNotRun):
			came = "marked and not run"
		case errors.Is(err, tenure.ErrUnreadable), errors.Is(err, tenure.ErrPermanent):
			r.say(Line{Kind: Trouble, Text: err.Error()})
		}
		r.say(Line{Kind: Came, Text: fmt.Sprint(rule, " ", came)})
		if came != "no answer of the store" {
			answered = slot
		}
	}
}

// job does the work of an occasion: one effect, within half a lease.
func (r *replica) job(rule trial.Rule) once.Work {
	return func(ctx context.Context, turn *once.Turn) error {
		h := r.hold(turn, turn.Name(), turn.Token())
		h.Rule, h.Occasion = rule, turn.Slot()
		return h.work(ctx, func(ctx context.Context) error {
			_, err := h.perform(ctx, h.http, fmt.Sprint("occasion ", turn.Slot()), dwell)
			wait.Rest(ctx, rand.N(r.Lease/2))
			if err == nil && rule == trial.Every {
				h.say(Line{Kind: Came, Text: "every run"})
			}
			return err
		})
	}
}

// worker works on the partitions of a group that it gets.
type worker struct {
	*replica
	late sync.WaitGroup // writes that come late
}

// beat reports a heartbeat of the worker's session.
func (w *worker) beat(e tenure.Event) {
	if e.Kind == tenure.EventRenewed && e.Lock == "" {
		w.say(Line{Kind: Beat, From: w.watch() - e.Took.Nanoseconds()})
	}
}

// join works in the group until ctx ends.
func (w *worker) join(ctx context.Context) error {
	group, err := shard.New(w.client, w.Group.Name, &shard.Options{
		Partitions: w.Group.Partitions, Weight: w.Group.Weight, Claims: w.Group.Claims,
		OnEvent: func(e shard.Event) {
			if e.Kind == shard.EventLost {
				w.say(Line{Kind: Lost, Text: fmt.Sprint(e.Err)})
			}
		},
	})
	if err != nil {
		return err
	}
	observing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var observer sync.WaitGroup
	observer.Go(func() { w.observeGroup(observing, group) })
	left := Line{Kind: Left}
	if err = group.Run(ctx, w.handle); err != nil {
		left.Text = err.Error()
	}
	w.say(left)
	stop()
	observer.Wait()
	w.late.Wait()
	return err
}

// observeGroup reports what the group says about this worker, when it changes.
func (w *worker) observeGroup(ctx context.Context, group *shard.Group) {
	var last shard.Stats
	for wait.For(ctx, workerSays) == nil {
		if s := group.Stats(); s != last {
			last = s
			w.say(Line{Kind: Planned, Stats: &s})
		}
	}
}

// handle is a partition's handler: it checks, writes now and then, and takes a moment to stop.
// Some time later it writes once more, like a handler that was paused right after its last
// Check.
func (w *worker) handle(ctx context.Context, p *shard.Partition) error {
	h := w.hold(p, p.Name(), p.Token())
	err := h.work(ctx, func(ctx context.Context) error {
		for next := rand.N(w.Group.Write); wait.For(ctx, next) == nil; next = w.Group.Write {
			if last, err := h.check(); err == nil {
				h.write(ctx, last)
			}
		}
		if p.Check() == nil {
			wait.Rest(context.WithoutCancel(ctx), w.Group.Drain)
		}
		return nil
	})
	if h.last > 0 {
		w.late.Go(func() {
			wait.Rest(context.WithoutCancel(ctx), w.Group.Write*5/4) // its next owner has written by then
			h.write(context.WithoutCancel(ctx), h.last)
		})
	}
	return err
}

// write writes under the token, as a check allowed. The resource counts the result.
func (h *hold) write(ctx context.Context, checked int64) {
	_, _ = h.Effect(checked).Send(ctx, h.http, h.Resource)
}
