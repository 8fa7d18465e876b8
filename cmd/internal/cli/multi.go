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

// readWriteFlags have a command read beside others that read, or write alone.
type readWriteFlags struct {
	Shared    bool
	Exclusive bool
}

func (f *readWriteFlags) check(r *runCmd) error {
	switch {
	case !f.Shared && !f.Exclusive:
		return nil
	case f.Shared && f.Exclusive:
		return usage("--shared and --exclusive exclude each other: a command reads, or it writes")
	case r.Slots != nil:
		return usage("--slots goes with neither --shared nor --exclusive: a semaphore has slots of its own")
	case r.UnlessAlive:
		return usage("--unless-alive goes with neither --shared nor --exclusive: it is one holder that shows a sign of life")
	case len(r.Name) > rwlock.MaxNameLen:
		return usage("name %.20q... has %d bytes: with --shared and --exclusive at most %d are allowed",
			r.Name, len(r.Name), rwlock.MaxNameLen)
	}
	return nil
}

// readersWriters is a lock for readers and writers, and the lease that this process has of it.
type readersWriters struct {
	*rwlock.Lock
	owner string
	write bool
	lease *rwlock.Lease // nil before one is acquired
}

// choose has the command read or write, if that was asked for.
func (t *command) choose(f readWriteFlags) error {
	if !f.Shared && !f.Exclusive {
		return nil
	}
	l, err := rwlock.New(t.client, t.lock, nil)
	if err != nil {
		return usage("%w", err)
	}
	t.multi = &readersWriters{Lock: l, owner: t.client.Options().Owner, write: f.Exclusive}
	return nil
}

// take acquires the lock, to read or to write.
func (s *readersWriters) take(
	ctx context.Context, _ *console, p patience, o *tenure.AcquireOptions,
) (*tenure.Lease, error) {
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

// grant is what the command's token belongs to.
func (s *readersWriters) grant() (name string, token uint64) { return s.Name(), s.lease.Token() }

// environment is what the command learns besides.
func (s *readersWriters) environment() []string {
	end := ""
	if last, ok := s.lease.LastWriter(); ok {
		end = last.End
	}
	return []string{"TENURE_EPOCH=" + formatToken(s.lease.Epoch()), "TENURE_LAST_WRITER_END=" + end}
}

// whose says who reads or writes now, if the store answers soon.
func (s *readersWriters) whose(ctx context.Context, o outer) (who string, own bool) {
	st, err := s.Status(ctx)
	busy := &rwlock.BusyError{}
	switch {
	case err != nil:
		return "", false
	case st.Writer != nil && (!s.write || st.Writer.Owner != s.owner): // else it has the gate itself
		busy.Writer = &rwlock.Holder{Owner: st.Writer.Owner}
	case !s.write || len(st.Readers) == 0:
		return "", false
	}
	for _, r := range st.Readers {
		busy.Readers = append(busy.Readers, rwlock.Holder{Owner: r.Owner})
	}
	who, own = o.busy(s.Name(), busy)
	return ": " + who, own
}

func (s *readersWriters) waiting() string {
	if s.write {
		return fmt.Sprintf("waiting to write %q", s.Name())
	}
	return fmt.Sprintf("waiting to read %q", s.Name())
}

// readersWritersOf returns the rows of a lock for readers and writers, none if there is none of
// that name: the gate, who reads, and how many slots there are.
func readersWritersOf(ctx context.Context, client *tenure.Client, name string) ([]row, error) {
	st, err := readersWritersStatus(ctx, client, name)
	if err != nil || st.Slots == 0 {
		return nil, err
	}
	list, errs := client.Statuses(ctx, []string{rwlock.GateName(name), rwlock.SizeName(name)})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	rows := []row{rowOf(list[0])}
	for _, r := range st.Readers {
		rows = append(rows, rowOf(r.Status))
	}
	return append(rows, rowOf(list[1])), nil
}

// readersWritersStatus returns what the records of the lock show. It has no slots if there is none
// of that name.
func readersWritersStatus(ctx context.Context, client *tenure.Client, name string) (rwlock.Status, error) {
	l, err := rwlock.New(client, name, nil)
	if err != nil {
		return rwlock.Status{}, nil //nolint:nilerr // such a name has no readers
	}
	st, err := l.Status(ctx)
	if errors.Is(err, tenure.ErrUnreadable) {
		err = nil
	}
	return st, err
}

// readersWritersHistory returns the tenures of the gate and of all slots, each with the name of
// its lock: of writers first, and of each reader's slot after that.
func readersWritersHistory(
	ctx context.Context, client *tenure.Client, name string,
) (locks []string, tenures [][]tenure.Tenure, err error) {
	st, err := readersWritersStatus(ctx, client, name)
	if err != nil || st.Slots == 0 {
		return nil, nil, err
	}
	locks = append(locks, rwlock.GateName(name))
	for slot := range st.Slots {
		locks = append(locks, rwlock.SlotName(name, slot))
	}
	for _, lock := range locks {
		list, err := client.History(ctx, lock)
		if err != nil {
			return nil, nil, err
		}
		tenures = append(tenures, list)
	}
	return locks, tenures, nil
}

// sideOf returns which side of which lock a row is, "" if it is none: the gate's holder
// writes, or waits to, and a slot's reads.
func sideOf(lock string) (name, side string, slot *int) {
	if name, ok := rwlock.ParseGateName(lock); ok {
		return name, "writer", nil
	}
	if name, slot, ok := rwlock.ParseSlotName(lock); ok {
		return name, "reader", &slot
	}
	return "", "", nil
}

// sized is the number of slots, as the table shows it.
func sized(n int) string { return strings.Replace(slotCount(n), "slot", "reader slot", 1) }
