// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
)

// Size is the number of slots in the store: the data of a lock that a process holds
// only to change it. T is the package's form of it. All methods may be called
// concurrently.
type Size[T comparable] struct {
	Base
	Name string // of the lock
	// Good says whether a size is valid. Text returns it as JSON, as stored.
	Good func(T) bool
	Text func(T) []byte

	mu    sync.Mutex
	known T         // the size that was read last
	at    time.Time // before it was read; zero: never
}

// Parse reads the data of the record. It returns false if no size is stored yet.
func (s *Size[T]) Parse(data []byte) (T, bool, error) { return parse(data, s.Good) }

// SizeOf returns the name and the size from the status of a size's record, whose key is the
// name with the suffix. It returns false for any other record.
func SizeOf[T any](st tenure.Status, suffix string, good func(T) bool) (name string, z T, ok bool) {
	name, ok = strings.CutSuffix(st.Name, suffix)
	if !ok || name == "" {
		return "", z, false
	}
	if z, ok, _ = parse(st.Data, good); !ok {
		return "", z, false
	}
	return name, z, true
}

// parse returns false if no size is stored yet, and an error that matches
// [tenure.ErrUnreadable] if the data are no size.
func parse[T any](data []byte, good func(T) bool) (z T, ok bool, err error) {
	if len(data) == 0 {
		return z, false, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if d.Decode(&z) != nil || d.More() || !good(z) {
		var none T
		return none, false, fmt.Errorf("%w: the number of slots is %.60q", tenure.ErrUnreadable, data)
	}
	return z, true, nil
}

// Known returns the size that was read last, and the time before that read, zero if it
// was never read.
func (s *Size[T]) Known() (T, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known, s.at
}

func (s *Size[T]) note(z T, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.After(s.at) || s.at.IsZero() {
		s.known, s.at = z, at
	}
}

// Read reads the size, without a cache. It returns false if none is stored.
func (s *Size[T]) Read(ctx context.Context) (T, bool, error) {
	at := time.Now()
	st, err := s.Client.Status(ctx, s.Name)
	if err != nil {
		var none T
		return none, false, err
	}
	return s.Saw(st, at)
}

// Glance is Read with a read that may be stale, for waiters, which only need to find the
// slots. If it finds no size, it reads strongly.
func (s *Size[T]) Glance(ctx context.Context) (T, bool, error) {
	at := time.Now()
	list, errs := s.Client.Statuses(ctx, []string{s.Name}, &tenure.ReadOptions{Eventual: true, WithoutSessions: true})
	if errs[0] == nil {
		if z, ok, err := s.Saw(list[0], at); ok && err == nil {
			return z, ok, nil
		}
	}
	return s.Read(ctx)
}

// Saw is Read for a caller that has read the status of the lock itself, after at.
func (s *Size[T]) Saw(st tenure.Status, at time.Time) (T, bool, error) {
	z, ok, err := s.Parse(st.Data)
	if ok {
		s.note(z, at)
	}
	return z, ok, err
}

// Current returns the stored size, after storing first if there was none. A process that
// holds the lock to store the size does so at once. A live holder that has not done so
// for more than a lease uses that name for an unrelated lock.
func (s *Size[T]) Current(ctx context.Context, first T) (T, error) {
	z, ok, err := s.Read(ctx)
	if ok || err != nil {
		return z, err
	}
	o := &tenure.AcquireOptions{AdditionalWait: s.Client.Options().LeaseDuration}
	z, err = s.change(ctx, o, func(z T, stored bool) (T, error) {
		if stored {
			return z, nil // another process was faster
		}
		return first, nil
	})
	held := (*tenure.HeldError)(nil)
	if !errors.As(err, &held) {
		return z, err
	}
	if z, ok, err = s.Read(ctx); ok || err != nil { // several others were faster
		return z, err
	}
	var none T
	return none, fmt.Errorf("%w: the number of slots is not stored: %q (token %d) holds lock %q, which should store it, but stores none; "+
		"that is an unrelated lock of this name: end its holder, or choose another name for one of the two", tenure.ErrUnreadable, held.Owner, held.Token, s.Name)
}

// Change changes the size, one change at a time: under the lease of its record, so that
// the old size is known, and a late write does no harm. The size stays if to returns an
// error.
func (s *Size[T]) Change(ctx context.Context, to func(z T, stored bool) (T, error)) (T, error) {
	return s.change(ctx, nil, to)
}

func (s *Size[T]) change(ctx context.Context, o *tenure.AcquireOptions, to func(z T, stored bool) (T, error)) (T, error) {
	var none, z T
	var stored bool
	l, err := s.Client.Acquire(ctx, s.Name, o)
	if err != nil {
		return none, err
	}
	defer s.GiveBack(ctx, l)
	bound, stop := l.Bind(ctx)
	defer stop()
	err = s.Patiently(bound, Patient(-1, tenure.AcquireOptions{}), func() (err error) {
		z, stored, err = s.Read(bound)
		return err
	})
	if err != nil {
		return none, err
	}
	next, err := to(z, stored)
	if err != nil {
		return none, err
	}
	if stored && next == z {
		return z, nil
	}
	if err := l.SetData(ctx, s.Text(next)); err != nil {
		return none, err
	}
	s.note(next, time.Now())
	return next, nil
}
