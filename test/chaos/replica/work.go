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
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/chaos/trial"
)

const (
	// opTimeout bounds one operation.
	opTimeout = 2 * time.Second
	// checkPeriod is how often the lease is asked beside the operations.
	checkPeriod = 2 * time.Millisecond
	// sayPeriod is how often that is told.
	sayPeriod = 50 * time.Millisecond
	// maxDwell is how long the program is busy between its check and its write,
	// at most: where a pause makes the write late.
	maxDwell = 20 * time.Millisecond
	// pause is how long lies between two operations, at most.
	pause = 8 * time.Millisecond
)

// hold is a lease, of either kind, and the name under which it is told of: readers take turns
// with one token, so each of their holds has a name of its own.
type hold struct {
	*replica
	lease    interface{ Check() error }
	lock     string
	owner    string
	token    uint64
	shared   bool
	rule     trial.Rule
	occasion int64
	last     int64 // of a worker: before its last Check that passed
}

func (h *hold) say(l Line) {
	l.Lock, l.Owner, l.Token, l.Shared, l.Rule, l.Occasion = h.lock, h.owner, h.token, h.shared, h.rule, h.occasion
	h.replica.say(l)
}

// check is Check with the time around it.
func (h *hold) check() (from, to int64, err error) {
	from = h.watch.Now()
	err = h.lease.Check()
	return from, h.watch.Now(), err
}

// work does what it is to do while it holds the lock, which is checked all the time beside it.
func (h *hold) work(ctx context.Context, do func(context.Context) error) error {
	from, to, err := h.check()
	if err != nil {
		return nil //nolint:nilerr // it is lost already: there is nothing to tell
	}
	h.say(Line{Kind: Granted, From: from, To: to})
	checking, stop := context.WithCancel(ctx)
	var checks sync.WaitGroup
	checks.Go(func() { h.keepChecking(checking) })
	err = do(ctx)
	stop()
	checks.Wait()
	h.say(Line{Kind: Ended, Text: fmt.Sprint(context.Cause(ctx))})
	return err
}

// keepChecking asks the lease all the time, so that the last instant at which a
// check passes is known well.
func (h *hold) keepChecking(ctx context.Context) {
	often := time.NewTicker(checkPeriod)
	defer often.Stop()
	var last, said int64
	tell := func() {
		if last > 0 {
			h.say(Line{Kind: Held, From: last})
		}
		said = last
	}
	defer tell()
	for {
		from, _, err := h.check()
		if err != nil {
			return
		}
		if last = from; last-said > int64(sayPeriod) {
			tell()
		}
		select {
		case <-often.C:
		case <-ctx.Done():
			return
		}
	}
}

// lead does operations while it leads, for a few leases, and resigns then.
func (r *replica) lead(ctx context.Context, l *tenure.Lease, random *rand.Rand) error {
	term := r.Lease + time.Duration(random.Int64N(int64(4*r.Lease)))
	ctx, stop := context.WithTimeoutCause(ctx, term, errors.New("resigned"))
	defer stop()
	seeds := [2]uint64{random.Uint64(), random.Uint64()}
	h := &hold{replica: r, lease: l, lock: LockName, owner: r.Name, token: l.Token()}
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
		// A write that is on its way cannot be called back, as a rule: it does not
		// end with the lease. Some ask the lease again, right before they are
		// sent, as fence.NewTransport does.
		client, value := h.http, ""
		if random.IntN(4) == 0 {
			client = h.asking
		}
		if random.IntN(3) > 0 {
			value = fmt.Sprint(random.Uint64(), "/", h.token)
		}
		dwell := func() { rest(random, maxDwell) }
		if _, err := h.perform(ctx, client, value, dwell); errors.Is(err, errEnded) {
			return
		}
		rest(random, pause)
	}
}

// rest waits for a random time.
func rest(random *rand.Rand, most time.Duration) {
	<-time.After(time.Duration(random.Int64N(int64(most))))
}

// errEnded is the error of an operation that a check has forbidden.
var errEnded = errors.New("the lease has ended")

// write writes under the token, as a check allowed. What comes of it is counted at the resource.
func (h *hold) write(ctx context.Context, checked int64) {
	e := trial.Effect{Lock: h.lock, Token: h.token, Owner: h.owner, Checked: checked}
	_, _ = e.Send(ctx, h.http, h.Resource)
}

// perform writes a value, or reads it if there is none, after a check and a dwell, and tells of
// it. It returns what was read.
func (h *hold) perform(ctx context.Context, client *http.Client, value string, dwell func()) (string, error) {
	from, _, err := h.check()
	if err != nil {
		return "", errors.Join(errEnded, err)
	}
	h.say(Line{Kind: Begin, From: from})
	dwell()
	effect := trial.Effect{
		ID: fmt.Sprintf("%s-%d", h.Name, h.serial.Add(1)), Lock: h.lock, Owner: h.owner, Token: h.token,
		Occasion: h.occasion, Checked: from, Read: value == "", Value: value,
	}
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
	return &hold{
		replica: r, lease: l, lock: LockName, owner: fmt.Sprint(r.Name, ".", r.holds), token: l.Token(),
		shared: r.Do == Read,
	}
}

// rewrite writes the register in two steps, a half and the whole. Sometimes it stops itself
// between its check and its write.
func (r *replica) rewrite(ctx context.Context, l *rwlock.Lease) error {
	h := r.begin(l)
	return h.work(ctx, func(ctx context.Context) error {
		for _, what := range []string{"half", "whole"} {
			dwell := func() {
				if what == "whole" && rand.N(3) == 0 {
					h.say(Line{Kind: Stopping})
					_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // the run continues it
				}
			}
			if _, err := h.perform(ctx, h.http, fmt.Sprint(what, " ", h.token), dwell); err != nil {
				return err
			}
		}
		h.say(Line{Kind: Came, Text: "written"})
		return ctx.Err()
	})
}

// compare reads the register a few times. As long as its lease is good it must not change, nor
// be a half, unless the reader was told that the last writer had not ended well.
func (r *replica) compare(ctx context.Context, l *rwlock.Lease) error {
	last, ok := l.LastWriter()
	if !ok {
		return nil
	}
	h := r.begin(l)
	began, well := h.watch.Now(), last.End == tenure.EndReleased
	return h.work(ctx, func(ctx context.Context) error {
		var first string
		for i := range 4 {
			value, err := h.perform(ctx, h.http, "", func() {})
			if err == nil {
				wait.Rest(ctx, rand.N(r.Lease/5))
				_, _, err = h.check()
			}
			if err != nil {
				return err
			}
			if i == 0 {
				first = value
			}
			if value != first || well && value != fmt.Sprint("whole ", h.token-1) {
				h.say(Line{Kind: Torn, From: began, Text: fmt.Sprintf("%q, and before %q, for a reader with %d "+
					"after one that has %s", value, first, h.token, last.End)})
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
