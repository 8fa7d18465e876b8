// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuregocron_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"

	tenuregocron "github.com/tenurelock/tenure/adapters/gocron"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/tenuretest"
)

// host is a process, and its wall clock, which is wrong.
type host struct {
	*tenuretest.Client
	clockwork.Clock
	ahead atomic.Int64
}

func (h *host) Now() time.Time { return h.Clock.Now().Add(time.Duration(h.ahead.Load())) }

func newHost(c *tenuretest.Client, ahead time.Duration) *host {
	h := &host{Client: c, Clock: clockwork.NewRealClock()}
	h.ahead.Store(int64(ahead))
	return h
}

// schedule has the host run a scheduler with the job until it stops.
func (h *host) schedule(by gocron.JobDefinition, task any, option gocron.SchedulerOption, options ...gocron.JobOption) {
	h.Go(func(ctx context.Context) error {
		scheduler, err := gocron.NewScheduler(option,
			gocron.WithClock(h), gocron.WithLocation(time.UTC), gocron.WithStopTimeout(time.Minute))
		if err != nil {
			return err
		}
		job, err := scheduler.NewJob(by, gocron.NewTask(task), append(options, gocron.WithName("job"))...)
		if err != nil {
			return err
		}
		scheduler.Start()
		<-ctx.Done()
		err = scheduler.RemoveJob(job.ID())
		<-time.After(time.Minute) // Shutdown waits in a loop without a pause, in which no virtual time passes
		return errors.Join(err, scheduler.Shutdown())
	})
}

// locker returns a locker of the host that has the options.
func (h *host) locker(t *testing.T, schedule tenuregocron.Schedule, o tenuregocron.LockerOptions) *tenuregocron.Locker {
	t.Helper()
	o.Now, o.Location = h.Now, time.UTC
	return testutil.Must(tenuregocron.NewLocker(h.Client.Client, schedule, &o))(t)
}
