// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure"
)

// Partition gives a handler one partition, under the lease of its lock. All methods may
// be called concurrently.
//
// It is a [github.com/tenurelock/tenure/fence.Grant]: the resource to fence is
// one for each partition, by the name of its lock.
type Partition struct {
	id    string
	index int
	lease *tenure.Lease

	mu   sync.Mutex
	last []byte

	successor atomic.Pointer[string]  // the owner to whom a leaving worker hands it over, or nil
	stopping  atomic.Bool             // its context has ended, or it is to be released
	stop      context.CancelCauseFunc // of the contexts of its handlers
}

// ID returns the name of the partition.
func (p *Partition) ID() string { return p.id }

// Index returns the number of the partition among all when it was claimed. If partitions
// have names, it changes when others come and go.
func (p *Partition) Index() int { return p.index }

// Name returns the name of the partition's lock: see [LockName].
func (p *Partition) Name() string { return p.lease.Name() }

// Token returns the fencing token: one higher with every change of owner, never
// lower again. Tokens of two partitions cannot be compared.
func (p *Partition) Token() uint64 { return p.lease.Token() }

// Lease returns the lease of the partition's lock. It is released when the
// handler has returned, and must not be released before.
func (p *Partition) Lease() *tenure.Lease { return p.lease }

// Check returns nil while the handler may act: see [tenure.Lease.Check]. Call it
// before every side effect.
func (p *Partition) Check() error { return p.lease.Check() }

// Last returns the latest checkpoint: this owner's last one, or else its predecessor's.
// It is nil without a checkpoint. The caller must not change it.
func (p *Partition) Last() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Checkpoint stores data with the partition, where its next owner finds it, and waits
// until that is confirmed. It has at most 256 KiB, and costs a write.
//
// A former owner's checkpoint is refused with an error that matches [tenure.ErrLost]; so
// a checkpoint never overwrites what a later owner has seen. An error that matches
// [tenure.ErrUncertain] says that the data may be stored, or may still become so. A
// handler whose context has ended because another worker is to have the partition can
// still store one.
func (p *Partition) Checkpoint(ctx context.Context, data []byte) error {
	data = append([]byte{}, data...)
	if err := p.lease.SetData(ctx, data); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = data
	return nil
}

// Why a handler ends, besides the lease.
var (
	errRemoved = errors.New("the partition was removed from the group")
	errMadeWay = errors.New("released to make room")
	errPanic   = errors.New("another handler panicked")
)

const (
	// maxFailures is how often in a row a handler may fail.
	maxFailures = 5
	// keepAway is the number of leases for which a worker avoids a partition that it has
	// failed on.
	keepAway = 10
)

// begin runs the handler of a partition that was just acquired.
func (w *worker) begin(id string, index int, l *tenure.Lease, ev Event) {
	p := &Partition{id: id, index: index, lease: l}
	if former, ok := l.Previous(); ok {
		p.last = former.Data
	}
	bound, unbind := l.Bind(w.values)
	ctx, stop := context.WithCancelCause(bound)
	p.stop = stop
	w.mu.Lock()
	w.held[id] = p
	delete(w.known, id)
	w.mu.Unlock()
	ev.Partition, ev.Token, ev.Place = id, l.Token(), w.seatPlace()
	w.events.emit(ev)
	w.jobs.Go(func() {
		defer unbind()
		defer stop(context.Canceled)
		w.work(ctx, p)
	})
}

// work runs the handler of a partition until its context ends, and releases it.
func (w *worker) work(ctx context.Context, p *Partition) {
	var err error
	returned := false
	unhook := context.AfterFunc(ctx, func() { p.stopping.Store(true) })
	defer func() {
		unhook()
		if !returned { // runtime.Goexit; a panic does not come here
			err = errGoexit
		}
		w.release(ctx, p, err)
	}()
	failures := 0
	for ctx.Err() == nil {
		begun := time.Now()
		err = w.call(ctx, p)
		if ctx.Err() != nil {
			break
		}
		pause := w.period
		if err == nil || time.Since(begun) > w.client.Options().LeaseDuration {
			failures = 0
		}
		if err != nil {
			if failures++; failures == maxFailures {
				break
			}
			pause = min(w.period<<failures, w.client.Options().LeaseDuration)
		}
		w.events.emit(Event{Kind: EventHandlerEnded, Partition: p.id, Token: p.Token(), Took: pause, Err: err})
		sleep(ctx, pause)
		err = nil
	}
	returned = true
}

var errGoexit = errors.New("the handler called runtime.Goexit")

// call runs the handler once. A panic ends the worker; Run panics with it.
func (w *worker) call(ctx context.Context, p *Partition) (err error) {
	defer func() {
		if v := recover(); v != nil {
			w.mu.Lock()
			w.run.thrown = cmp.Or(w.thrown, &Panic{Value: v, Stack: debug.Stack(), Partition: p.id})
			w.mu.Unlock()
			w.stop(errPanic)
			p.stop(errPanic)
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return w.handler(ctx, p)
}

// release gives a partition back when its handler has returned.
func (w *worker) release(ctx context.Context, p *Partition, err error) {
	p.stopping.Store(true)
	cause, givesUp := context.Cause(ctx), ctx.Err() == nil
	if givesUp {
		cause = err
	}
	ended := context.Cause(p.lease.Context()) // before the release
	var asked *tenure.StepDownError
	switch leaving := w.isLeaving(); {
	case errors.As(ended, &asked) && asked.To != "" && leaving && w.leavesToo(asked.To):
		// If all leave, the worker that asked does not come for it. If others stay, it
		// is theirs by the next plan; unless that worker takes it first, and hands it
		// over again.
		why := fmt.Sprintf("%q has asked for it, and leaves as well", asked.To)
		_ = p.lease.StepDown(&tenure.StepDownOptions{Reason: why})
	case leaving && errors.Is(ended, tenure.ErrSessionClosed):
		// A request of the last moment is found when the session is closed. The worker that
		// asked may be gone by then; the workers that stay take free partitions.
		_ = p.lease.StepDown(&tenure.StepDownOptions{Reason: "the worker has left"})
	}
	var how *tenure.ReleaseOptions
	if givesUp && err != nil && ended == nil {
		how = &tenure.ReleaseOptions{Failed: err}
	}
	_ = p.lease.ReleaseWith(w.values, how) // else it ends with the session
	now := time.Now()
	w.mu.Lock()
	delete(w.held, p.id)
	if givesUp {
		w.cooling[p.id] = now.Add(keepAway * w.client.Options().LeaseDuration)
	}
	if asked != nil {
		// The worker that asked may have a newer plan: it is not asked back before
		// that can have come here.
		w.known[p.id] = observation{until: now.Add(2 * w.period)}
	}
	w.mu.Unlock()
	ev := Event{Kind: EventDropped, Partition: p.id, Token: p.Token(), Place: w.seatPlace(), Err: cause}
	switch {
	case asked != nil:
		ev.Kind, ev.Peer, ev.Err = EventMovedOut, cmp.Or(asked.To, asked.By), nil
		if successor := p.successor.Load(); successor != nil {
			ev.Peer = *successor
		}
	case errors.Is(ended, tenure.ErrLost) && w.session.Check() == nil:
		ev.Kind = EventRevoked
	case ended != nil:
		w.poke()
		return // with the session, which tells of it
	}
	w.events.emit(ev)
	w.poke()
}

func (w *worker) seatPlace() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.place
}
