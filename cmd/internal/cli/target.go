// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
)

// target is what a command runs under: a lock, or the part that this process has of what
// several hold at a time.
type target interface {
	// Name is that of all of it, and take acquires what this process is to have of it.
	Name() string
	take(ctx context.Context, p patience, o *tenure.AcquireOptions) (*tenure.Lease, error)
	// waiting says what is waited for, and look who has it. Again is how often that is asked.
	waiting() string
	look(ctx context.Context) (holders, error)
	again() time.Duration
	// environment is what the command learns of it.
	environment(lease *tenure.Lease) []string
}

// holders are those who have what is waited for.
type holders struct {
	who  string // what a sentence ends with: ": held by ...", "" if nobody is known
	held bool   // others hold it
	own  bool   // the outer command keeps this process from it for as long as it lasts
	news uint64 // another number is news
	// details may stand behind who, the longest first. With none people are told nothing.
	details []string
}

func (p patience) waits() bool { return p.wait == nil || *p.wait > 0 }

// heldEnvironment is what every command learns.
func heldEnvironment(name string, token uint64) []string {
	return []string{"TENURE_LOCK=" + name, "TENURE_TOKEN=" + formatToken(token)}
}

// lock is a lock that one process holds.
type lock struct {
	*command
	name string
}

func (l lock) Name() string { return l.name }

func (l lock) take(ctx context.Context, p patience, o *tenure.AcquireOptions) (*tenure.Lease, error) {
	acquire := l.client.Acquire
	if !p.waits() {
		acquire = l.client.TryAcquire
	}
	for {
		lease, err := acquire(ctx, l.name, o)
		if !errors.Is(err, tenure.ErrExpired) { // else this process was stopped meanwhile
			return lease, err
		}
	}
}

func (l lock) waiting() string { return fmt.Sprintf("waiting for %q", l.name) }

func (l lock) again() time.Duration { return max(time.Second, l.client.Options().RefreshPeriod) }

func (l lock) look(ctx context.Context) (holders, error) {
	st, err := l.client.Status(ctx, l.name)
	switch {
	case err != nil:
		return holders{}, err
	case !st.Held && reservedFor(st).anybody():
		return holders{}, nil
	case !st.Held:
		return holders{who: ": reserved for " + reservedFor(st).text()}, nil
	case st.Owner == l.client.Options().Owner && !st.Since.Before(l.begun):
		return holders{}, nil // this process has it, and waits for the answer that says so
	}
	h := holders{
		who: ": held by " + l.outer.holder(l.name, st.Owner, st.Token), held: true,
		own: l.outer.is(l.name, st.Owner, st.Token), news: st.Token, details: waitingDetails(st),
	}
	if h.own {
		h.details = []string{""}
	}
	return h, nil
}

func (l lock) environment(lease *tenure.Lease) []string {
	return heldEnvironment(l.name, lease.Token())
}

// waitingDetails say more of who is waited for, the longest text first.
func waitingDetails(st tenure.Status) []string {
	since := " since " + clockText(st.Since)
	if st.Unchanged <= 2*st.Heartbeat || st.Heartbeat <= 0 {
		free := fmt.Sprintf(", free %v after its last sign of life", round(st.Lease))
		return []string{since + free, free, since, ""}
	}
	silent := fmt.Sprintf(", no sign of life for %v", round(st.Unchanged))
	free := fmt.Sprintf(", free in %v at the latest if it is dead", round(st.FreeIn))
	return []string{since + silent + free, silent, ""}
}

// slots is a semaphore, and the slot that this process has of it.
type slots struct {
	*command
	*semaphore.Semaphore
	wanted int
	resize bool
	lease  *semaphore.Lease // nil before one is taken
}

// readersWriters is a lock for readers and writers, and the lease that this process has of it.
type readersWriters struct {
	*command
	*rwlock.Lock
	write bool
	lease *rwlock.Lease // nil before one is acquired
}

// choose has the command take a slot, or read, or write, instead of the lock.
func (r *runCmd) choose(t *command) error {
	switch {
	case r.Slots != nil:
		s, err := semaphore.New(t.client, t.lock, *r.Slots, nil)
		if err != nil {
			return usage("%w", err)
		}
		t.target = &slots{command: t, Semaphore: s, wanted: *r.Slots, resize: r.Resize}
	case r.Shared || r.Exclusive:
		l, err := rwlock.New(t.client, t.lock, nil)
		if err != nil {
			return usage("%w", err)
		}
		t.target = &readersWriters{command: t, Lock: l, write: r.Exclusive}
	default:
		t.warnOfName()
	}
	return nil
}

// take takes a slot, if the number of slots is what the command line says.
func (s *slots) take(ctx context.Context, p patience, o *tenure.AcquireOptions) (*tenure.Lease, error) {
	n, stored, err := s.Slots(ctx)
	// As for a lock, a waiter for a slot waits for the store too.
	end := time.Now().Add(s.client.Options().LeaseDuration)
	for err != nil && p.waits() && !permanent(err) && time.Now().Before(end) && ctx.Err() == nil {
		n, stored, err = s.Slots(ctx)
	}
	switch {
	case err != nil:
		return nil, err
	case n == s.wanted:
	case !s.resize:
		return nil, s.differ(n)
	default:
		if err := s.Resize(ctx, s.wanted, nil); err != nil {
			return nil, err
		}
		s.console.say("%q has %s now, and had %d", s.Name(), counted(s.wanted, "slot"), n)
	}
	acquire := s.Acquire
	if !p.waits() {
		acquire = s.TryAcquire
	}
	lease, err := acquire(ctx, o)
	if err != nil {
		return nil, err
	}
	if n := lease.Slots(); n != s.wanted && !stored && !s.resize {
		// Another process has set another number meanwhile.
		_ = lease.Release(context.WithoutCancel(ctx)) // nothing was done under it
		return nil, s.differ(n)
	}
	s.lease = lease
	return lease.Lease, nil
}

func (s *slots) differ(n int) error {
	return usage("%q has %s, and --slots says %d: write --slots %d, or change it for everybody with --slots %d --resize",
		s.Name(), counted(n, "slot"), s.wanted, n, s.wanted)
}

func (s *slots) waiting() string { return fmt.Sprintf("waiting for a slot of %q", s.Name()) }

// announceAgain is how often people are told again of what several hold: it costs a look at
// each slot.
const announceAgain = 5 * time.Second

func (*slots) again() time.Duration          { return announceAgain }
func (*readersWriters) again() time.Duration { return announceAgain }

func (s *slots) look(ctx context.Context) (holders, error) {
	h := holders{news: 1, details: []string{""}}
	st, err := s.Status(ctx)
	if err != nil || len(st.Held) < st.Slots {
		return h, err
	}
	full := &semaphore.FullError{Slots: st.Slots}
	for _, h := range st.Held {
		full.Holders = append(full.Holders, semaphore.Holder{Slot: h.Slot, Owner: h.Owner, Token: h.Token})
	}
	text, own := s.outer.full(s.Name(), full)
	h.who, h.held, h.own = ": "+text, true, own
	return h, nil
}

// environment names the slot's own lock: tokens of two slots cannot be compared.
func (s *slots) environment(lease *tenure.Lease) []string {
	return append(heldEnvironment(lease.Name(), lease.Token()),
		"TENURE_SEMAPHORE="+s.Name(),
		"TENURE_SLOT="+strconv.Itoa(s.lease.Slot()),
		"TENURE_SLOTS="+strconv.Itoa(s.lease.Slots()))
}

// take acquires the lock, to read or to write.
func (s *readersWriters) take(ctx context.Context, p patience, o *tenure.AcquireOptions) (*tenure.Lease, error) {
	var err error
	w := &rwlock.WriteOptions{AcquireOptions: *o}
	switch {
	case s.write && p.waits():
		s.lease, err = s.AcquireWrite(ctx, w)
	case s.write:
		s.lease, err = s.TryAcquireWrite(ctx, w)
	case p.waits():
		s.lease, err = s.AcquireRead(ctx, o)
	default:
		s.lease, err = s.TryAcquireRead(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	return s.lease.Lock(), nil
}

func (s *readersWriters) waiting() string {
	return fmt.Sprintf("waiting to %s %q", map[bool]string{false: "read", true: "write"}[s.write], s.Name())
}

func (s *readersWriters) look(ctx context.Context) (holders, error) {
	h := holders{news: 1, details: []string{""}}
	st, err := s.Status(ctx)
	busy := &rwlock.BusyError{}
	switch {
	case err != nil:
		return h, err
	case st.Writer != nil && (!s.write || st.Writer.Owner != s.client.Options().Owner): // else it has the gate itself
		busy.Writer = &rwlock.Holder{Owner: st.Writer.Owner}
	case !s.write || len(st.Readers) == 0:
		return h, nil
	}
	for _, r := range st.Readers {
		busy.Readers = append(busy.Readers, rwlock.Holder{Owner: r.Owner})
	}
	text, own := s.outer.busy(s.Name(), busy)
	h.who, h.held, h.own = ": "+text, true, own
	return h, nil
}

// environment names all of it, which the command's token belongs to.
func (s *readersWriters) environment(*tenure.Lease) []string {
	end := ""
	if last, ok := s.lease.LastWriter(); ok {
		end = last.End
	}
	return append(heldEnvironment(s.Name(), s.lease.Token()),
		"TENURE_EPOCH="+formatToken(s.lease.Epoch()), "TENURE_LAST_WRITER_END="+end)
}
