// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package serve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers/wire"
)

const (
	checkPeriod = time.Millisecond
	effectBound = 2 * time.Second
	errorPause  = 50 * time.Millisecond

	// acquireBound is how long an acquire of work may outlast the work's
	// duration. A client's own limit is not in force while it loses races.
	acquireBound = 30 * time.Second

	// Work that is to be stopped by a signal checks without a pause for so long at most, and
	// for hurryAfter when it goes on, so that a check is the first thing that it does then: a
	// pause would end after the timers of the library that were due meanwhile.
	hurryBound = 500 * time.Millisecond
	hurryAfter = 20 * time.Millisecond
)

// orders are the orders to a process while its work runs.
type orders struct {
	hurry atomic.Int64    // up to this instant of the wall clock
	work  context.Context // over when the work is to end, after drain
	end   context.CancelFunc
	drain time.Duration // set before the end
}

// hurries says whether work that checked at two instants, one after the other, goes on
// without a pause.
func (o *orders) hurries(last, now int64) bool {
	hurry := o.hurry.Load()
	if hurry > 0 && now-last > hurryBound.Nanoseconds() {
		hurry = now + hurryAfter.Nanoseconds() // it was stopped meanwhile
		o.hurry.Store(hurry)
	}
	return now < hurry
}

// work is the work command: acquire, hold and release until the time is up, or until the
// work is told to end, with a log of the holds.
type work struct {
	*orders
	client  Client
	owner   string
	notice  bool // the log says as well when the library has said that the lock is lost
	request *wire.Request
	counts  wire.Counts
	log     *os.File
}

// run is for [must.Try].
func (w *work) run(ctx context.Context) *wire.Counts {
	w.log = must.Have(os.OpenFile(w.request.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644))
	defer func() { _ = w.log.Close() }() // every line is written at once
	deadline := time.Now().Add(Milliseconds(&w.request.DurationMs))
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(acquireBound))
	defer cancel()
	for time.Now().Before(deadline) && w.work.Err() == nil {
		w.round(ctx)
		wait.Rest(ctx, Milliseconds(&w.request.PauseMs)) // the next acquire ends with ctx, too
	}
	return &w.counts
}

func (w *work) round(ctx context.Context) {
	var lock Lock
	if err := must.Try(func() { lock = w.client.Acquire(ctx, w.request) }); err != nil {
		w.failed(ctx, err)
		return
	}
	begin := proc.Monotonic()
	if !lock.Check() {
		return // it came too late to be claimed for a single instant
	}
	line := wire.LogLine{What: wire.LogBegin, At: begin}
	if !w.notice { // some libraries ask their store for it, which the table of faults must not see
		line.Token, _ = lock.Token()
		line.Name = w.fenced(lock)
	}
	must.Do(w.write(line))
	if told := lock.Notice(); w.notice && told != nil {
		go func() {
			<-told
			_ = w.write(wire.LogLine{What: wire.LogNotice, At: proc.Monotonic()}) // who reads it misses it
		}()
	}
	w.hold(lock)
	if err := lock.Release(&wire.Request{}); err == nil {
		w.counts.Released++
	} else {
		w.failed(ctx, err)
	}
}

// hold works under a lock until a check fails, the time is up, or the work has ended as it was
// told to. The instants are of the wall clock, which is read without a system call: after one
// others may run before the check.
func (w *work) hold(lock Lock) {
	toMonotonic := wallToMonotonic()
	last, no := time.Now().UnixNano(), int64(0)
	effect := last
	for until := last + Milliseconds(&w.request.HoldMs).Nanoseconds(); last < until && w.work.Err() == nil && !stopping(lock); {
		// The instant first, then the check: what is logged was not expired.
		now := time.Now().UnixNano()
		if !lock.Check() {
			no = time.Now().UnixNano()
			break
		}
		before := last
		last = now
		if w.request.Resource != "" && now >= effect {
			wait.Unless(Milliseconds(&w.request.HesitateMs), nil, nil)
			w.affect(lock, now+toMonotonic)
			effect = now + Milliseconds(&w.request.EffectMs).Nanoseconds()
		}
		if !w.hurries(before, now) {
			wait.Rest(w.work, checkPeriod)
		}
	}
	if w.work.Err() != nil { // by which the check may have failed
		wait.Unless(w.drain, nil, nil)
		must.Do(w.write(wire.LogLine{What: wire.LogEnd, At: proc.Monotonic()}))
		return
	}
	if no > 0 && w.notice {
		must.Do(w.write(wire.LogLine{What: wire.LogNo, At: no + toMonotonic}))
	}
	must.Do(w.write(wire.LogLine{What: wire.LogEnd, At: last + toMonotonic}))
}

// affect writes to the resource, which notes it with the instant before the check that allowed it.
func (w *work) affect(lock Lock, checked int64) {
	token, _ := lock.Token()
	ctx, cancel := context.WithTimeout(context.Background(), effectBound)
	defer cancel()
	r := must.Have(http.NewRequestWithContext(ctx, http.MethodPost, w.request.Resource+"/effect", nil))
	r.Header.Set("Tenure-Lock", w.fenced(lock))
	r.Header.Set("Tenure-Token", strconv.FormatUint(token, 10))
	r.Header.Set("Effect", fmt.Sprintf(`{"owner":%q,"checked":%d}`, w.owner, checked))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return // it was noted, or it was not: the resource's log says so
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
}

// fenced is the name under which the resource compares the token of a lock.
func (w *work) fenced(lock Lock) string {
	if l, named := lock.(namer); named {
		return l.Name()
	}
	return w.request.Name
}

// stopping says whether the library has asked the work to stop.
func stopping(lock Lock) bool {
	l, asks := lock.(stopper)
	return asks && l.Stopping()
}

// wallToMonotonic is what makes an instant of the wall clock one of the machine's monotonic
// clock.
func wallToMonotonic() int64 {
	const close = 100 * time.Microsecond
	for {
		before, wall, after := proc.Monotonic(), time.Now().UnixNano(), proc.Monotonic()
		if after-before < close.Nanoseconds() {
			return before - wall
		}
	}
}

// failed takes an error down, unless it is a refusal.
func (w *work) failed(ctx context.Context, err error) {
	if kind, _ := kindOf(err); kind != wire.Other {
		return
	}
	w.counts.Errors++
	w.counts.LastError = fmt.Sprintf("%T: %v", err, err)
	wait.Rest(ctx, errorPause) // the next acquire ends with ctx, too
}

// write writes a line of the log.
func (w *work) write(line wire.LogLine) error {
	line.Owner = w.owner
	_, err := fmt.Fprintln(w.log, line)
	return err
}
