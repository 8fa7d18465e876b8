// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
)

// op is what a step does: an act, or something that happens to a process.
type op struct {
	name   string
	weight int // how often it is planned, relative to the others
	act    func(*act) string
	anyway bool // also to a process that does not run
}

var ops = []*op{
	{name: "try", weight: 8, act: own((*act).try)},
	{name: "poll", weight: 3, act: own((*act).poll)},
	{name: "acquire", weight: 12, act: own((*act).acquire)},
	{name: "unless alive", weight: 8, act: own((*act).unlessAlive)},
	{name: "run", weight: 10, act: own((*act).run)},
	{name: "campaign", weight: 8, act: own((*act).campaign)},
	{name: "session try", weight: 6, act: underSession((*act).try)},
	{name: "session acquire", weight: 8, act: underSession((*act).acquire)},
	{name: "session unless alive", weight: 4, act: underSession((*act).unlessAlive)},
	{name: "session run", weight: 6, act: underSession((*act).run)},
	{name: "session campaign", weight: 4, act: underSession((*act).campaign)},
	{name: "session close", weight: 6, act: (*act).closeSession},
	{name: "step down", weight: 4, act: (*act).ask},
	{name: "transfer", weight: 5, act: (*act).ask},
	{name: "revoke", weight: 4, act: (*act).ask},
	{name: "release dead", weight: 4, act: (*act).ask},
	{name: "sweep", weight: 3, act: (*act).watch},
	{name: "observe", weight: 5, act: (*act).watch},
	{name: "leader", weight: 3, act: (*act).watch},
	{name: "status", weight: 4, act: (*act).watch},
	{name: "statuses", weight: 3, act: (*act).watch},
	{name: "locks", weight: 2, act: (*act).watch},
	{name: "history", weight: 3, act: (*act).watch},
	{name: "close", weight: 2},
	{name: "crash", weight: 5},
	{name: "pause", weight: 5},
	{name: "cut off", weight: 4, anyway: true},
	{name: "storm", weight: 8, anyway: true},
	{name: "clock", weight: 4, anyway: true},
}

// act is a step under way, with its own random stream for its decisions.
type act struct {
	Step
	w    *world
	p    *process
	line *line
	r    *rand.Rand
	ctx  context.Context // ends with the process
}

// errWork is the error of work that fails.
var errWork = errors.New("work failed")

// within returns a random duration.
func (a *act) within(most time.Duration) time.Duration {
	return time.Duration(a.r.Int64N(int64(most)))
}

func (a *act) lease() time.Duration { return a.p.setup.Options.LeaseDuration }

// locker is a client or a session.
type locker interface {
	Acquire(ctx context.Context, name string, o *tenure.AcquireOptions) (*tenure.Lease, error)
	TryAcquire(ctx context.Context, name string, o *tenure.AcquireOptions) (*tenure.Lease, error)
	Run(ctx context.Context, name string, o *tenure.AcquireOptions, work func(context.Context, *tenure.Lease) error) error
	Election(name string, o *tenure.ElectionOptions) *tenure.Election
}

// compete is a way to take a lock, and to work under it.
type compete func(*act, context.Context, locker) string

// own competes with locks of their own.
func own(how compete) func(*act) string {
	return func(a *act) string { return a.compete(how, a.line.client) }
}

func (a *act) compete(how compete, c locker) string {
	ctx, stop := context.WithTimeout(a.ctx, a.within(5*a.lease())+1)
	defer stop()
	return how(a, ctx, c)
}

func (a *act) options(c locker) *tenure.AcquireOptions {
	o := &tenure.AcquireOptions{History: a.r.IntN(2) == 0, WatchRequests: a.r.IntN(2) == 0, Priority: a.r.IntN(2)}
	if a.r.IntN(3) == 0 {
		o.Data = fmt.Append(nil, "of step ", a.N)
	}
	if a.r.IntN(4) == 0 {
		o.AdditionalWait = a.within(2*a.lease()) + 1
	}
	if a.r.IntN(3) == 0 {
		o.StoreTimeout = -1
	}
	if _, session := c.(*tenure.Session); !session && a.lease() > 2*time.Second && a.r.IntN(4) == 0 {
		o.Timing.LeaseDuration = a.lease() / 2
	}
	return o
}

func (a *act) poll(ctx context.Context, c locker) (what string) {
	for ctx.Err() == nil {
		what = a.try(ctx, c)
		sleep(ctx, a.within(a.lease())+time.Millisecond)
	}
	return what
}

func (a *act) run(ctx context.Context, c locker) string {
	return a.told(c.Run(ctx, a.Lock, a.options(c), a.work))
}

func (a *act) campaign(ctx context.Context, c locker) string {
	o := &tenure.ElectionOptions{Priority: a.r.IntN(2), Timing: a.options(c).Timing}
	return a.told(c.Election(a.Lock, o).Run(ctx, a.work))
}

func (a *act) acquire(ctx context.Context, c locker) string {
	return a.have(ctx)(c.Acquire(ctx, a.Lock, a.options(c)))
}

func (a *act) try(ctx context.Context, c locker) string {
	return a.have(ctx)(c.TryAcquire(ctx, a.Lock, a.options(c)))
}

// have works under a lease and releases it, if there is one.
func (a *act) have(ctx context.Context) func(*tenure.Lease, error) string {
	return func(l *tenure.Lease, err error) string {
		if err != nil {
			a.judgeHeld(err)
			return a.told(err)
		}
		err = a.work(ctx, l)
		released := l.Release(ctx)
		if released == nil && l.Check() == nil {
			a.w.referee.wrong("the lease of %s under token %d is good after its release", l.Name(), l.Token())
		}
		return fmt.Sprintf("token %d, work %v, released: %s", l.Token(), err, a.told(released))
	}
}

// work is what is done under a lease: now and then something to the resource,
// the lease, or nothing; when its context ends it stops at once, or late.
func (a *act) work(ctx context.Context, l *tenure.Lease) error {
	h := a.w.referee.granted(a.line, l)
	for range a.r.IntN(8) {
		if ctx.Err() != nil || l.Context().Err() != nil {
			break
		}
		a.one(ctx, h)
	}
	if a.r.IntN(2) == 0 {
		sleep(ctx, a.within(2*a.lease()))
	}
	if a.r.IntN(4) == 0 { // it ignores its context
		for range a.r.IntN(4) {
			sleep(context.Background(), a.within(a.lease()))
			a.w.referee.act(h)
		}
		a.w.happened("work that overstays")
	}
	if a.r.IntN(6) == 0 {
		return errWork
	}
	return nil
}

// one does one thing with a lease.
func (a *act) one(ctx context.Context, h *holding) {
	switch a.r.IntN(12) {
	case 0:
		_ = h.Renew(ctx)
	case 1:
		_ = h.SetData(ctx, fmt.Append(nil, "checkpoint of ", h.Token()))
	case 2:
		to := a.w.owner(a.r.IntN(len(a.w.processes)))
		if a.r.IntN(4) == 0 && h.StepDown(&tenure.StepDownOptions{To: to, Reason: "for a test"}) == nil {
			a.w.happened("handed over")
		}
	case 3:
		_ = h.Do(ctx, a.within(a.lease()), func(context.Context) error {
			sleep(ctx, a.within(a.lease()/4))
			a.w.referee.act(h)
			return nil
		})
	case 4:
		h.Progress()
		_, _ = h.Previous()
	default:
		a.w.referee.act(h)
		sleep(ctx, a.within(a.lease()/2))
		a.w.referee.act(h)
	}
}

// underSession competes under a session of the process, which it opens if necessary.
func underSession(how compete) func(*act) string {
	return func(a *act) string {
		s := a.session()
		if s == nil || s.Context().Err() != nil || a.r.IntN(6) == 0 {
			ctx, stop := context.WithTimeout(a.ctx, a.within(2*a.lease())+1)
			defer stop()
			opened, err := a.line.client.OpenSession(ctx, nil)
			if err != nil {
				return "open: " + a.told(err)
			}
			a.w.happened("session")
			a.dropSession(s)
			s = opened
			a.p.set(func() {
				if a.p.up == a.line {
					a.p.sessions = append(a.p.sessions, s)
				}
			})
		}
		if a.r.IntN(10) == 0 {
			_ = s.Renew(a.ctx)
		}
		return a.compete(how, s)
	}
}

// session returns an open session of the process, nil without one.
func (a *act) session() (s *tenure.Session) {
	a.p.set(func() {
		if n := len(a.p.sessions); n > 0 && a.p.up == a.line {
			s = a.p.sessions[a.r.IntN(n)]
		}
	})
	return s
}

func (a *act) closeSession() string {
	s := a.session()
	if s == nil {
		return "none is open"
	}
	ctx, stop := context.WithTimeout(a.ctx, a.within(3*a.lease())+1)
	defer stop()
	err := s.Close(ctx)
	a.dropSession(s)
	if err == nil && s.Check() == nil {
		a.w.referee.wrong("a session is good after it was closed")
	}
	return a.told(err)
}

// dropSession forgets a session that has ended.
func (a *act) dropSession(s *tenure.Session) {
	if s == nil || s.Context().Err() == nil {
		return
	}
	a.p.set(func() {
		a.p.sessions = slices.DeleteFunc(a.p.sessions, func(other *tenure.Session) bool { return other == s })
	})
}

// told returns the text of an error.
func (a *act) told(err error) string {
	if err == nil {
		return "ok"
	}
	for _, known := range []error{
		tenure.ErrHeld, tenure.ErrExpired, tenure.ErrSuperseded, tenure.ErrStalled, tenure.ErrStopTimeout,
		tenure.ErrUncertain, tenure.ErrSteppedDown, tenure.ErrSessionClosed, tenure.ErrNotHeld,
		tenure.ErrRequested, tenure.ErrUnanswered, tenure.ErrAlive,
	} {
		if errors.Is(err, known) {
			a.w.happened(strings.TrimPrefix(known.Error(), "tenure: "))
		}
	}
	return short(err)
}
