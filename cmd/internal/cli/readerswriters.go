// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/rwlock"
)

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
