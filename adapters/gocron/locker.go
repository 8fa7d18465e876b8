// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuregocron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/once"
)

// LockerOptions are for NewLocker. Nil means the defaults.
type LockerOptions struct {
	// Prefix is put before a job's name to make the name under which package once keeps
	// its ledger. If empty, it is "gocron/".
	Prefix string

	// Now is the scheduler's clock: the method Now of the argument of gocron.WithClock.
	// If nil, it is time.Now.
	Now func() time.Time

	// Location is the scheduler's: the argument of gocron.WithLocation. If nil, it is
	// time.Local, as there.
	Location *time.Location

	// Redo runs an occurrence again that was begun, and whose process was lost before it
	// ended: at least once, in place of at most once. It concerns the last occurrence
	// alone, and its own time must still be the last one.
	Redo bool

	// MaxAhead is how far an occurrence may lie after the last begun one. Later
	// occurrences are refused. If zero, it is 366 days. A process whose clock is ahead
	// takes the occurrences that it runs, and no others. Set MaxAhead to some periods of
	// the schedule to have such a clock run nothing; all occurrences fail then after an
	// outage that is longer, until once.Reset. Negative means that any time will do.
	MaxAhead time.Duration

	// Elector, if not nil, makes this locker also refuse what the elector would: the jobs
	// run in the leader, each occurrence once, across a change of leader too. Do not give
	// the elector to gocron, which would not ask this locker then.
	Elector *Elector
}

// Locker is a gocron.Locker that runs each occurrence of a job at most once. All its
// jobs have one schedule: give it to them with gocron.WithDistributedJobLocker. All
// methods may be called concurrently.
type Locker struct {
	client   *tenure.Client
	schedule Schedule
	options  LockerOptions

	mu    sync.Mutex
	runs  map[string]*run // by the names of jobs
	tasks map[string]bool // the jobs whose functions are those of Task
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a locker for jobs of the schedule. Options may be nil; an error says
// what is wrong with the schedule.
func NewLocker(client *tenure.Client, schedule Schedule, options *LockerOptions) (*Locker, error) {
	switch {
	case schedule.err != nil:
		return nil, fmt.Errorf("gocron locker: schedule: %w", schedule.err)
	case schedule.due == nil:
		return nil, errors.New("gocron locker: the schedule is empty: use Period, Cron or Nearest")
	}
	l := &Locker{client: client, schedule: schedule, runs: make(map[string]*run), tasks: make(map[string]bool)}
	if options != nil {
		l.options = *options
	}
	if l.options.Prefix == "" {
		l.options.Prefix = "gocron/"
	}
	if l.options.Now == nil {
		l.options.Now = time.Now
	}
	if l.options.Location == nil {
		l.options.Location = time.Local
	}
	if l.options.MaxAhead == 0 {
		l.options.MaxAhead = 366 * 24 * time.Hour
	}
	return l, nil
}

// Name returns the name of a job in package once: for once.Show, which lists its last runs,
// and for once.Reset.
func (l *Locker) Name(job string) string { return l.options.Prefix + job }

// A run is one occurrence under a lock: the work of once.Once, which runs in gocron.
type run struct {
	begun  chan struct{} // closed when ctx and turn are set
	ctx    context.Context
	turn   *once.Turn
	result chan error    // what the work returned, once
	over   chan struct{} // closed when the end is written, and err is set
	err    error
	finish sync.Once
}

// end says that the work has returned, unless that was said before.
func (r *run) end(err error) { r.finish.Do(func() { r.result <- err }) }

// Lock begins the occurrence of the job that is scheduled for now. If it was begun before,
// by any process, the error says so: see [once.Once] for all of them. It
// does not wait for a process that runs this job and is alive, but for a dead one until its
// lease has run out, so that a crash takes one occurrence and not the next ones too.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	done := func() {}
	if l.options.Elector != nil {
		lease, left, err := l.options.Elector.enter()
		if err != nil {
			return nil, err
		}
		bound, stop := lease.Bind(ctx)
		ctx, done = bound, func() { stop(); left() }
	}
	scheduled, err := l.schedule.due(l.options.Now().In(l.options.Location))
	if err != nil {
		done()
		return nil, err
	}
	r := &run{begun: make(chan struct{}), result: make(chan error, 1), over: make(chan struct{})}
	go func() {
		defer close(r.over)
		defer done()
		r.err = l.run(ctx, job, scheduled.Unix(), r)
	}()
	select {
	case <-r.begun:
	case <-r.over:
		return nil, r.err
	}
	l.mu.Lock()
	l.runs[job] = r
	l.mu.Unlock()
	return &lock{l, job, r}, nil
}

func (l *Locker) run(ctx context.Context, job string, slot int64, r *run) error {
	options := &once.Options{
		OutOfOrder: true, Redo: l.options.Redo, MaxAhead: int64(l.options.MaxAhead / time.Second),
		Between: l.schedule.between(l.options.Location),
	}
	if l.options.MaxAhead < 0 {
		options.MaxAhead = -1
	}
	_, err := once.Once(ctx, l.client, l.Name(job), slot, options, func(ctx context.Context, turn *once.Turn) error {
		r.ctx, r.turn = ctx, turn
		close(r.begun)
		return <-r.result
	})
	return err
}

// lock is a gocron.Lock.
type lock struct {
	locker *Locker
	job    string
	run    *run
}

// errNoTask is in the ledger where a listener such as gocron.BeforeJobRunsSkipIfBeforeFuncErrors
// has kept the task from running.
var errNoTask = errors.New("gocron did not start the task")

// Unlock writes into the ledger how the run has ended, as the task said or else as done, and
// releases the lock. It ignores ctx, which has ended when the scheduler is shut down; it
// waits for the store for a lease duration at most. Unlocking again returns the same.
func (u *lock) Unlock(context.Context) error {
	u.locker.mu.Lock()
	if u.locker.runs[u.job] == u.run {
		delete(u.locker.runs, u.job)
	}
	var err error
	if u.locker.tasks[u.job] {
		err = errNoTask // unless the task has said how it ended
	}
	u.locker.mu.Unlock()
	u.run.end(err)
	<-u.run.over
	return u.run.err
}

// Task returns a function for gocron.NewTask: work, with its turn and a context that ends
// with gocron's and with the lease. The job must have the name, by gocron.WithName, and this
// locker. Work must return when its context has ended: heartbeats go on until it has, for
// [tenure.Options.StopTimeout] at most. Its error is kept in the ledger.
//
// The function returns the error of work, joined with that of [once.Turn.Check] if the lease
// was lost before work returned.
func (l *Locker) Task(job string, work once.Work) func(context.Context) error {
	l.mu.Lock()
	l.tasks[job] = true
	l.mu.Unlock()
	return func(ctx context.Context) (err error) {
		l.mu.Lock()
		r := l.runs[job]
		l.mu.Unlock()
		if r == nil {
			return fmt.Errorf("the task %[1]q runs without its lock: give the job gocron.WithName(%[1]q) and gocron.WithDistributedJobLocker", job)
		}
		ctx, stop := bind(ctx, r.ctx)
		defer stop()
		err = errors.New("the task panicked, or ended its goroutine")
		defer func() { r.end(err) }()
		err = work(ctx, r.turn)
		return errors.Join(err, r.turn.Check())
	}
}

// bind returns a context with the values of work, which carries the lease, that ends with
// either of both.
func bind(job, work context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(work)
	stop := context.AfterFunc(job, func() { cancel(context.Cause(job)) })
	return ctx, func() { stop(); cancel(nil) }
}
