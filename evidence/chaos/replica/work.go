// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/evidence/chaos/trial"
	"github.com/tenurelock/tenure/fence"
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

// expected reports whether an error of a campaign is one that chaos brings
// about.
func expected(err error) bool {
	return errors.Is(err, tenure.ErrLost) || errors.Is(err, tenure.ErrHeld) || errors.Is(err, tenure.ErrStopTimeout) ||
		errors.Is(err, tenure.ErrUncertain) || errors.Is(err, context.DeadlineExceeded)
}

// check is Lease.Check with the time around it.
func (r *replica) check(l *tenure.Lease) (from, to int64, err error) {
	from = r.watch.Now()
	if r.config.Wrong != NoCheck {
		err = l.Check()
	}
	return from, r.watch.Now(), err
}

// work does operations while it leads, for a few leases, and resigns then.
func (r *replica) work(ctx context.Context, l *tenure.Lease, random *rand.Rand) error {
	from, to, err := r.check(l)
	if err != nil {
		r.say(Line{Kind: Blank, Token: l.Token(), From: from, To: to, Text: err.Error()})
		return nil
	}
	r.say(Line{Kind: Granted, Token: l.Token(), From: from, To: to})
	term := r.config.Lease + time.Duration(random.Int64N(int64(4*r.config.Lease)))
	ctx, stop := context.WithTimeoutCause(ctx, term, errResigned)
	defer stop()
	if r.config.Wrong == NoCheck {
		// It does not listen, either.
		deaf, end := context.WithTimeout(context.WithoutCancel(ctx), term)
		defer end()
		ctx = deaf
	}

	seeds := [2]uint64{random.Uint64(), random.Uint64()}
	var wg sync.WaitGroup
	wg.Go(func() { r.keepChecking(ctx, l) })
	for i, seed := range seeds {
		wg.Go(func() { r.operate(ctx, l, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	wg.Wait()
	r.say(Line{Kind: Ended, Token: l.Token(), Text: fmt.Sprint(context.Cause(ctx))})
	return nil
}

var errResigned = errors.New("resigned")

// keepChecking asks the lease all the time, so that the last instant at which a
// check passes is known well.
func (r *replica) keepChecking(ctx context.Context, l *tenure.Lease) {
	often := time.NewTicker(checkPeriod)
	defer often.Stop()
	var last, lastTo, said int64
	tell := func() {
		if last > 0 {
			r.say(Line{Kind: Held, Token: l.Token(), From: last, To: lastTo})
		}
		said = last
	}
	defer tell()
	for {
		from, to, err := r.check(l)
		if err != nil {
			return
		}
		if last, lastTo = from, to; last-said > int64(sayPeriod) {
			tell()
		}
		select {
		case <-often.C:
		case <-ctx.Done():
			return
		}
	}
}

// operate does operations until ctx ends, or the lease.
func (r *replica) operate(ctx context.Context, l *tenure.Lease, random *rand.Rand) {
	for ctx.Err() == nil {
		from, to, err := r.check(l)
		if err != nil {
			return
		}
		op := &Op{ID: fmt.Sprintf("%s-%d", r.config.Name, r.serial.Add(1)), Do: Read}
		if random.IntN(3) > 0 {
			op.Do, op.Value = Write, fmt.Sprintf("%s/%d", op.ID, l.Token())
		}
		r.say(Line{Kind: Begin, Token: l.Token(), From: from, To: to, Op: op})
		rest(random, maxDwell)
		// A write that is on its way cannot be called back, as a rule: it does not
		// end with the lease. Some ask the lease again, right before they are
		// sent, as fence.NewTransport does.
		client := r.fixed(l.Token())
		if random.IntN(4) == 0 && r.config.Wrong != NoCheck {
			client = r.http
		}
		ended := r.perform(context.WithoutCancel(ctx), client, op, from)
		r.say(Line{Kind: End, Token: l.Token(), Op: ended})
		rest(random, pause)
	}
}

// rest waits for a random time.
func rest(random *rand.Rand, most time.Duration) {
	<-time.After(time.Duration(random.Int64N(int64(most))))
}

// perform sends an operation, and returns how it ended. Nothing is returned as
// its result if it was not sent.
func (r *replica) perform(ctx context.Context, client *http.Client, op *Op, checked int64) *Op {
	ended := *op
	ended.Result = Unknown
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		r.config.Resource+"/effect", strings.NewReader(op.Value))
	if err != nil {
		return &ended
	}
	req.Header.Set(trial.OwnerHeader, r.config.Name)
	req.Header.Set(trial.CheckedHeader, strconv.FormatInt(checked, 10))
	req.Header.Set(trial.IDHeader, op.ID)
	req.Header.Set(trial.DoHeader, string(op.Do))
	answer, err := client.Do(req)
	if err != nil {
		if errors.Is(err, tenure.ErrLost) || errors.Is(err, tenure.ErrReleased) || errors.Is(err, tenure.ErrStopTimeout) {
			ended.Result = Unsent
		}
		return &ended
	}
	defer answer.Body.Close()
	var stale *fence.StaleError
	if errors.As(fence.Refusal(answer), &stale) {
		ended.Result, ended.Highest = Refused, stale.Highest
		return &ended
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return &ended
	}
	ended.Result = Done
	if op.Do == Read {
		ended.Value = string(body)
	}
	return &ended
}
