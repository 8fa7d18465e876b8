// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
)

// MaxSlots is the most slots that a semaphore can have: each of them is a
// record that a waiter looks at.
const MaxSlots = 1000

// size is what the store keeps of a semaphore, as the data of a lock that
// nobody holds but to change it.
type size struct {
	Slots int `json:"slots"`
	// Highest is how many slots may have holders, because there were so many
	// and nobody has seen since that the others are left.
	Highest int `json:"highest"`
}

func (z size) bytes() []byte {
	return fmt.Appendf(nil, `{"slots":%d,"highest":%d}`, z.Slots, z.Highest)
}

// parseSize reads the data of a size record. It returns false if nothing was
// laid down yet.
func parseSize(data []byte) (z size, ok bool, err error) {
	if len(data) == 0 {
		return size{}, false, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if d.Decode(&z) != nil || d.More() || checkSlots(z.Slots) != nil || z.Highest < z.Slots || z.Highest > MaxSlots {
		return size{}, false, fmt.Errorf("%w: the number of slots is %.60q", tenure.ErrUnreadable, data)
	}
	return z, true, nil
}

// known is the size that was read last.
type known struct {
	mu   sync.Mutex
	size size
	at   time.Time // before it was read; zero: never
}

func (k *known) get() (size, time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.size, k.at
}

func (k *known) set(z size, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at.After(k.at) || k.at.IsZero() {
		k.size, k.at = z, at
	}
}

// read reads the size, past every cache. It returns false if none is stored.
func (s *Semaphore) read(ctx context.Context) (size, bool, error) {
	at := time.Now()
	st, err := s.client.Status(ctx, SizeName(s.name))
	if err != nil {
		return size{}, false, err
	}
	z, ok, err := parseSize(st.Data)
	if ok {
		s.known.set(z, at)
	}
	return z, ok, err
}

// current returns the size that is stored, which is the given one if there was
// none before.
func (s *Semaphore) current(ctx context.Context) (size, error) {
	z, ok, err := s.read(ctx)
	if ok || err != nil {
		return z, err
	}
	return s.change(ctx, func(z size, stored bool) size {
		if stored {
			return z // somebody was quicker
		}
		return size{s.slots, s.slots}
	})
}

// recent returns a size that is no older than that.
func (s *Semaphore) recent(ctx context.Context, age time.Duration) (size, error) {
	if z, at := s.known.get(); !at.IsZero() && time.Since(at) < age {
		return z, nil
	}
	return s.current(ctx)
}

// change changes the size, one at a time: under the lease of its record, so
// that what it was before is known, and a write that is late does no harm.
func (s *Semaphore) change(ctx context.Context, to func(z size, stored bool) size) (size, error) {
	l, err := s.client.Acquire(ctx, SizeName(s.name), nil)
	if err != nil {
		return size{}, err
	}
	defer s.giveBack(ctx, l)
	bound, stop := l.Bind(ctx)
	defer stop()
	var z size
	var stored bool
	err = s.patiently(bound, patient(-1, tenure.AcquireOptions{}), func() (err error) {
		z, stored, err = s.read(bound)
		return err
	})
	if err != nil {
		return size{}, err
	}
	next := to(z, stored)
	if stored && next == z {
		return z, nil
	}
	if err := l.SetData(ctx, next.bytes()); err != nil {
		return size{}, err
	}
	s.known.set(next, time.Now())
	return next, nil
}
