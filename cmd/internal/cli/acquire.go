// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
)

// patience says how long to wait for a lock, and for the store.
type patience struct {
	wait    *time.Duration // nil: for ever; 0: not at all
	held    int            // the exit status of not getting the lock
	options tenure.AcquireOptions
}

// beside has something done beside the caller, until end is called, which waits for it.
func beside(parent context.Context, do func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(parent)
	var done sync.WaitGroup
	done.Go(func() { do(ctx) })
	return func() {
		cancel()
		done.Wait()
	}
}

// errWaited is the cause of a context that --wait has ended.
var errWaited = errors.New("waited long enough")

// acquire takes the lock. The error is a failure, or a signaled.
func (t *command) acquire(parent context.Context, p patience) (*tenure.Lease, error) {
	ctx, stop := t.signals.cancel(parent)
	defer stop()
	t.lock = t.target.Name()
	t.manager.say("waiting for %q", t.lock)
	if p.wait != nil && *p.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, *p.wait, errWaited)
		defer cancel()
	}
	t.endless.Store(p.wait == nil && !p.options.UnlessAlive)
	silence := beside(ctx, t.announce)
	p.options.History, p.options.WatchRequests = true, true
	lease, err := t.target.take(ctx, p, &p.options)
	silence()
	if sig := stop(); sig != 0 {
		// Also when the lock came at the same moment: nothing has begun.
		if lease != nil {
			_ = lease.Release(context.WithoutCancel(ctx)) // nothing was done under it
		}
		return nil, signaled{sig}
	}
	if err != nil {
		return nil, t.refusal(ctx, p, err)
	}
	t.lock = lease.Name() // that of the slot, if it is one
	t.manager.say("holds %q under token %d", t.lock, lease.Token())
	return lease, nil
}

// refusal tells a lock that is held from a store that cannot be reached.
func (t *command) refusal(ctx context.Context, p patience, err error) error {
	var held *tenure.HeldError
	var full *semaphore.FullError
	var busy *rwlock.BusyError
	var failure *flags.Failure
	switch {
	case errors.As(err, &failure):
		return failure
	case errors.Is(context.Cause(ctx), errWaited): // what else the error carries is older than what holderNow says
		_, err := t.away.last() // before holderNow asks, which may find that the store answers reads
		who, held := t.holderNow()
		if err != nil && !held {
			return storeFailed(fmt.Errorf("no answer within %v: %w", *p.wait, err))
		}
		return t.notAcquired(p, fmt.Sprintf("not acquired within %v%s", *p.wait, who))
	case errors.As(err, &full):
		text, _ := t.outer.full(t.lock, full)
		return t.notAcquired(p, text)
	case errors.As(err, &busy):
		text, _ := t.outer.busy(t.lock, busy)
		return t.notAcquired(p, text)
	case errors.As(err, &held) && p.options.UnlessAlive && !t.outer.is(t.lock, held.Owner, held.Token):
		return t.notAcquired(p, "held by "+holderText(held.Owner, held.Token)+", which has shown that it lives")
	case errors.As(err, &held) && held.Reserved:
		return t.notAcquired(p, held.Error())
	case errors.As(err, &held):
		return t.notAcquired(p, "held by "+t.outer.holder(t.lock, held.Owner, held.Token))
	}
	return storeFailed(err)
}

// holderNow says who has now what was waited for, if the store answers soon, and whether others
// hold it: then the last error of the store is out of date. About a free lock an acquire knows
// better: it may be that nothing can be written.
func (t *command) holderNow() (who string, held bool) {
	ctx, cancel := context.WithTimeout(context.Background(), t.client.Options().RequestTimeout)
	defer cancel()
	h, _ := t.target.look(ctx) // without an answer nothing is known
	return h.who, h.held
}

// notAcquired is ordinary: with --quiet the exit status alone tells.
func (t *command) notAcquired(p patience, why string) error {
	if t.console.quiet {
		return ended(p.held)
	}
	return failed(p.held, fmt.Errorf("%q: %s", t.lock, why))
}

// announceAfter is how long a lock is waited for in silence.
const announceAfter = time.Second

// announce says who holds what is waited for.
func (t *command) announce(ctx context.Context) {
	c := t.console
	defer c.clear()
	begun, told := time.Now(), t.announceEndless(ctx)
	if c.quiet || c.json {
		return
	}
	timer := time.NewTimer(announceAfter)
	defer timer.Stop()
	for due, news := false, false; ; news = false {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			due = true
			timer.Reset(t.target.again())
		case <-t.waiting:
			news = true
		}
		if !due || told > 0 && !news && !c.terminal && !t.troubled() {
			continue // nothing is to be said
		}
		// The look also brings the time that is left up to date.
		h, err := t.target.look(ctx)
		if err == nil && h.held {
			t.answers()
		}
		if err != nil || len(h.details) == 0 || h.news == told && !c.terminal {
			continue // it is asked again
		}
		told = h.news
		t.sayStore(ctx)
		text := t.target.waiting()
		if c.terminal {
			text += fmt.Sprintf(" for %v", time.Since(begun).Round(time.Second))
		}
		for i, detail := range h.details {
			h.details[i] = text + h.who + detail
		}
		c.show("%s", c.fitting(h.details...))
	}
}

// announceEndless warns of a wait for the command that has started this one, with --quiet
// too: it has no end. It returns what was told, see [holders].
func (t *command) announceEndless(ctx context.Context) (told uint64) {
	if !t.endless.Load() || !t.outer.among(t.target.Name()) {
		return 0
	}
	h, err := t.target.look(ctx)
	for err != nil && sleep(ctx, t.target.again()) == nil {
		h, err = t.target.look(ctx)
	}
	if err != nil || !h.own {
		return 0
	}
	t.console.warn("%s without end%s: it ends only after this one; take another lock here, or none",
		t.target.waiting(), h.who)
	return h.news
}

// clockText shows an instant to people: the time of day, and the date if it is
// another one.
func clockText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

func formatToken(token uint64) string { return strconv.FormatUint(token, 10) }

// outer is the tenure under which this process was started, by its environment: see
// [command.environment]. It ends only when this process has. The zero value is none.
type outer struct {
	lock, owner string
	token       uint64
}

// outerOf reads the environment of a process that uses a store, by its URL.
func outerOf(store string) outer {
	at, err := storeurl.Parse(os.Getenv("TENURE_STORE"))
	token, err2 := strconv.ParseUint(os.Getenv("TENURE_TOKEN"), 10, 64)
	if err != nil || err2 != nil || at.URL() != store {
		return outer{}
	}
	return outer{os.Getenv("TENURE_LOCK"), os.Getenv("TENURE_OWNER"), token}
}

// is says whether a lock is held by the outer tenure.
func (o outer) is(lock, owner string, token uint64) bool {
	return token > 0 && o == outer{lock, owner, token}
}

// holder names who holds a lock.
func (o outer) holder(lock, owner string, token uint64) string {
	text := holderText(owner, token)
	if o.is(lock, owner, token) {
		text += ", the command that started this one"
	}
	return text
}

// among says whether the outer tenure has a part of what many hold.
func (o outer) among(name string) bool {
	of, _, ok := semaphore.ParseLockName(o.lock)
	return o.lock == name || ok && of == name
}

// full says who has the slots of a semaphore, and whether the outer tenure has all of them.
func (o outer) full(name string, e *semaphore.FullError) (text string, own bool) {
	text = e.Error()
	for _, h := range e.Holders {
		if o.is(semaphore.LockName(name, h.Slot), h.Owner, h.Token) {
			return fmt.Sprintf("%s; the command that started this one has slot %d", text, h.Slot), len(e.Holders) == 1
		}
	}
	return text, false
}

// busy says who reads or writes, and whether it is the outer tenure that is in the way: a
// writer that waits for it may give up. It goes by the owner, since the token in the
// environment is that of no record.
func (o outer) busy(name string, e *rwlock.BusyError) (text string, own bool) {
	text = e.Error()
	if o.lock != name {
		return text, false
	}
	is := func(h rwlock.Holder) bool { return o.owner == h.Owner }
	own = e.Writer != nil && is(*e.Writer) || e.Writer == nil && slices.ContainsFunc(e.Readers, is)
	if own || slices.ContainsFunc(e.Readers, is) {
		text += fmt.Sprintf("; %q is the command that started this one", o.owner)
	}
	return text, own
}
