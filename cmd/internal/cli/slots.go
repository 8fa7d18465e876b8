// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
)

// slotFlags have a command take one of several slots.
type slotFlags struct {
	Slots  *int
	Resize bool
}

func (f *slotFlags) check(r *runCmd) error {
	switch {
	case f.Slots == nil && f.Resize:
		return usage("--resize needs --slots: the new number of slots")
	case f.Slots == nil:
		return nil
	case *f.Slots < 1 || *f.Slots > semaphore.MaxSlots:
		return usage("--slots %d must be from 1 to %d", *f.Slots, semaphore.MaxSlots)
	case r.UnlessAlive:
		return usage("--slots and --unless-alive exclude each other: it is one holder that shows a sign of life")
	case len(r.Name) > semaphore.MaxNameLen:
		return usage("name %.20q... has %d bytes: with --slots at most %d are allowed",
			r.Name, len(r.Name), semaphore.MaxNameLen)
	}
	return nil
}

// slots is a semaphore, and the slot that this process has of it.
type slots struct {
	*semaphore.Semaphore
	wanted   int
	resize   bool
	patience time.Duration    // with a store that gives no answer
	lease    *semaphore.Lease // nil before one is taken
}

// contend has the command take a slot instead of the lock, if there are any.
func (t *command) contend(f slotFlags) error {
	if f.Slots == nil {
		return nil
	}
	s, err := semaphore.New(t.client, t.lock, *f.Slots, nil)
	if err != nil {
		return usage("%w", err)
	}
	t.multi = &slots{Semaphore: s, wanted: *f.Slots, resize: f.Resize, patience: t.client.Options().LeaseDuration}
	return nil
}

// multiHolder is a name that several processes hold at a time.
type multiHolder interface {
	Name() string
	// take takes what this process is to have of it. Meanwhile people are told what is
	// waited for, and whose it is: nothing if it is to be had, or the store gives no answer.
	// Own says that the outer tenure keeps this process from it as long as it lasts.
	take(ctx context.Context, c *console, p patience, o *tenure.AcquireOptions) (*tenure.Lease, error)
	waiting() string
	whose(ctx context.Context, o outer) (who string, own bool)
	// environment is what the command learns of it, and grant what its token is for.
	environment() []string
	grant() (name string, token uint64)
}

// take takes a slot, if the number of slots is what the command line says.
func (s *slots) take(ctx context.Context, c *console, p patience, o *tenure.AcquireOptions) (*tenure.Lease, error) {
	n, stored, err := s.Slots(ctx)
	// As for a lock, a waiter for a slot waits for the store too.
	for begun := time.Now(); err != nil && p.waits() && !permanent(err) && time.Since(begun) < s.patience; {
		if ctx.Err() != nil {
			break
		}
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
		c.say("%q has %s now, and had %d", s.Name(), slotCount(s.wanted), n)
	}
	var lease *semaphore.Lease
	if !p.waits() {
		lease, err = s.TryAcquire(ctx, o)
	} else {
		lease, err = s.Acquire(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	if n := lease.Slots(); n != s.wanted && !stored && !s.resize {
		// Somebody else has said another number just now.
		_ = lease.Release(context.WithoutCancel(ctx)) // nothing was done under it
		return nil, s.differ(n)
	}
	s.lease = lease
	return lease.Lease, nil
}

func (s *slots) differ(n int) error {
	return usage("%q has %s, and --slots says %d: write --slots %d, or change it for everybody with --slots %d --resize",
		s.Name(), slotCount(n), s.wanted, n, s.wanted)
}

// waits says that a slot is waited for.
func (p patience) waits() bool { return p.wait == nil || *p.wait > 0 }

// grant is the slot's: tokens of two slots cannot be compared.
func (s *slots) grant() (name string, token uint64) { return s.lease.Name(), s.lease.Token() }

// environment is what the command learns of its slot.
func (s *slots) environment() []string {
	return []string{
		"TENURE_SEMAPHORE=" + s.Name(),
		"TENURE_SLOT=" + strconv.Itoa(s.lease.Slot()),
		"TENURE_SLOTS=" + strconv.Itoa(s.lease.Slots()),
	}
}

// whose says who has the slots now, if the store answers soon.
func (s *slots) whose(ctx context.Context, o outer) (who string, own bool) {
	st, err := s.Status(ctx)
	if err != nil || len(st.Held) < st.Slots {
		return "", false
	}
	full := &semaphore.FullError{Slots: st.Slots}
	for _, h := range st.Held {
		full.Holders = append(full.Holders, semaphore.Holder{Slot: h.Slot, Owner: h.Owner, Token: h.Token})
	}
	who, own = o.full(s.Name(), full)
	return ": " + who, own
}

func (s *slots) waiting() string { return fmt.Sprintf("waiting for a slot of %q", s.Name()) }

// announceMulti says what is waited for, and who has it.
func (t *command) announceMulti(ctx context.Context) {
	c := t.console
	defer c.clear()
	begun, told := time.Now(), false
	if t.endless.Load() && t.outer.among(t.multi.Name()) {
		if has, own := t.multi.whose(ctx, t.outer); own {
			c.waitsWithoutEnd(t.multi.waiting(), has)
			told = true
		}
	}
	if c.quiet || c.json {
		return
	}
	for pause := announceAfter; sleep(ctx, pause) == nil; pause = announceAgain {
		if told && !c.terminal && !t.troubled() {
			continue
		}
		has, _ := t.multi.whose(ctx, t.outer)
		if ctx.Err() != nil {
			return
		}
		if has != "" {
			t.answers()
		} else if _, err := t.away.last(); err != nil && !c.terminal {
			continue // that has been said
		}
		if told && !c.terminal {
			continue
		}
		told = true
		t.sayStore(ctx)
		text := t.multi.waiting()
		if c.terminal {
			text += fmt.Sprintf(" for %v", time.Since(begun).Round(time.Second))
		}
		c.show("%s", c.fitting(text+has, text))
	}
}

// announceAgain is how often people are told again: it costs a look at each slot.
const announceAgain = 5 * time.Second

// partsOf returns the rows of what makes up a semaphore, none if there is none
// of that name.
func partsOf(ctx context.Context, client *tenure.Client, name string) ([]row, error) {
	s, err := semaphore.New(client, name, 1, nil)
	if err != nil {
		return nil, nil //nolint:nilerr // such a name has no semaphore
	}
	size, err := client.Status(ctx, semaphore.SizeName(name))
	if errors.Is(err, tenure.ErrUnreadable) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, n, ok := semaphore.ParseSize(size)
	if !ok {
		return nil, nil
	}
	st, err := s.Status(ctx)
	if err != nil {
		return nil, err
	}
	var rows []row
	held := map[int]tenure.Status{}
	for _, h := range st.Held {
		held[h.Slot] = h.Status
		if h.Slot >= n {
			rows = append(rows, rowOf(h.Status))
		}
	}
	var all []row
	for slot := range n {
		one, ok := held[slot]
		if !ok {
			if one, err = client.Status(ctx, semaphore.LockName(name, slot)); err != nil {
				return nil, err
			}
		}
		all = append(all, rowOf(one))
	}
	return append(append(all, rows...), rowOf(size)), nil
}

// assigned notes of each row which semaphore it is part of.
func assigned(rows []row) []row {
	numbers, locks := map[string]int{}, map[string]bool{}
	for _, r := range rows {
		if name, n, ok := semaphore.ParseSize(r.Status); ok {
			numbers[name] = n
		} else if name, _, ok := rwlock.ParseSize(r.Status); ok {
			locks[name] = true
		}
	}
	for i := range rows {
		r := &rows[i]
		if name, n, ok := semaphore.ParseSize(r.Status); ok {
			r.semaphore, r.slots = name, n
		} else if name, n, ok := rwlock.ParseSize(r.Status); ok {
			r.readersOf, r.slots = name, n
		} else if name, side, slot := sideOf(r.Name); locks[name] {
			r.readersOf, r.side, r.slot = name, side, slot
		} else if name, slot, ok := semaphore.ParseLockName(r.Name); ok && numbers[name] > 0 {
			r.semaphore, r.slot, r.slots = name, &slot, numbers[name]
		}
	}
	return rows
}

// stateText is the state as the table shows it.
func (r row) stateText() string {
	switch {
	case r.readersOf != "" && r.side == "":
		return sized(r.slots)
	case r.semaphore == "":
		return r.state
	case r.slot == nil:
		return slotCount(r.slots)
	case *r.slot >= r.slots:
		return strings.TrimSuffix("gone, "+r.state, ", "+stateFree)
	}
	return r.state
}

func slotCount(n int) string {
	if n == 1 {
		return "1 slot"
	}
	return fmt.Sprintf("%d slots", n)
}
