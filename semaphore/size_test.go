// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/semaphore"
)

// Of several processes that begin with different numbers, one's counts for all.
func TestOneNumberCounts(t *testing.T) {
	onWorld(t, 4, func(t *testing.T, s *world) {
		var wg sync.WaitGroup
		numbers := make([]int, 4)
		processes := make([]*process, 4)
		for i := range processes {
			processes[i] = s.process(fmt.Sprintf("p%d", i), i+1)
			processes[i].client.Faults().Inject(faultstore.Rule{Fault: faultstore.Slow(10*time.Millisecond, 0)})
			if n, stored, err := processes[i].Slots(t.Context()); n != i+1 || stored || err != nil {
				t.Errorf("%d slots before the first use, %v", n, err)
			}
		}
		for i, p := range processes {
			wg.Go(func() {
				for {
					l, err := p.TryAcquire(t.Context(), nil)
					if errors.Is(err, semaphore.ErrFull) {
						time.Sleep(time.Second)
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					numbers[i] = l.Slots()
					time.Sleep(5 * time.Second)
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
					return
				}
			})
		}
		wg.Wait()
		for i, p := range processes {
			n, stored, err := p.Slots(t.Context())
			if err != nil || !stored || n != numbers[0] || numbers[i] != n {
				t.Errorf("p%d: %d slots, admitted under %d, the first one under %d: %v", i, n, numbers[i], numbers[0], err)
			}
		}
	})
}

// A number that cannot be understood is left as it is: a foreign lock has that name.
func TestForeignSizeIsLeftAlone(t *testing.T) {
	for _, data := range []string{"hello", `{"slots":0,"highest":0}`, `{"slots":3,"highest":2}`, `{"slots":1,"highest":1001}`} {
		onWorld(t, 2, func(t *testing.T, s *world) {
			p := s.process("p", 2)
			l, err := p.client.Acquire(t.Context(), semaphore.SizeName(name), &tenure.AcquireOptions{Data: []byte(data)})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			_, err1 := p.Acquire(ctx, nil)
			_, err2 := p.TryAcquire(t.Context(), nil)
			_, _, err3 := p.Slots(t.Context())
			_, err4 := p.Status(t.Context())
			for _, err := range []error{err1, err2, err3, err4, p.Resize(t.Context(), 5, nil)} {
				if !errors.Is(err, tenure.ErrUnreadable) {
					t.Errorf("%s: %v", data, err)
				}
			}
			if st, err := p.client.Status(t.Context(), semaphore.SizeName(name)); err != nil || string(st.Data) != data {
				t.Errorf("data %q, %v", st.Data, err)
			}
		})
	}
}

// A foreign lock with the name, and without data, is reported: its holder stores no
// number. Once it is free the number is stored.
func TestForeignLockInPlaceOfTheSize(t *testing.T) {
	onWorld(t, 2, func(t *testing.T, s *world) {
		p, other := s.process("p", 2), s.process("other", 2)
		l, err := other.client.Acquire(t.Context(), semaphore.SizeName(name), nil)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		_, err1 := p.Acquire(t.Context(), nil)
		_, err2 := p.TryAcquire(t.Context(), nil)
		if took := time.Since(begun); took < 2*lease || took > 6*lease {
			t.Errorf("refused after %v", took)
		}
		for _, err := range []error{err1, err2} {
			if !errors.Is(err, tenure.ErrUnreadable) || errors.Is(err, tenure.ErrHeld) || !strings.Contains(err.Error(), `"x:slots"`) || !strings.Contains(err.Error(), `"other"`) {
				t.Error(err)
			}
		}
		got := make(chan *semaphore.Lease, 1)
		go func() { got <- p.hold(t.Context()) }()
		time.Sleep(lease)
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		p.release(<-got)
	})
}

// A number that was deleted is stored again, before any process is admitted.
func TestDeletedSize(t *testing.T) {
	onWorld(t, 2, func(t *testing.T, s *world) {
		p := s.process("p", 2)
		p.release(p.hold(t.Context()))
		store := p.client.Faults().Driver()
		rec, err := store.Get(t.Context(), semaphore.SizeName(name), driver.Strong)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Delete(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		if _, stored, err := p.Slots(t.Context()); stored || err != nil {
			t.Errorf("stored is %v, %v", stored, err)
		}
		p.release(p.hold(t.Context()))
		if n, stored, err := p.Slots(t.Context()); n != 2 || !stored || err != nil {
			t.Errorf("%d slots, stored is %v, %v", n, stored, err)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	for _, c := range []struct {
		client  *tenure.Client
		name    string
		slots   int
		options *semaphore.Options
		want    string
	}{
		{nil, "x", 1, nil, "client is nil"},
		{client, "", 1, nil, "name is empty"},
		{client, "tenure/x", 1, nil, `begins with "tenure/"`},
		{client, "a\nb", 1, nil, "U+000A at byte 1"},
		{client, "\xff", 1, nil, "not valid UTF-8"},
		{client, strings.Repeat("n", 1009), 1, nil, "has 1009 bytes: at most 1008 are allowed"},
		{client, "x", 0, nil, "slots 0 must be from 1 to 1000"},
		{client, "x", 1001, nil, "slots 1001 must be from 1 to 1000"},
		{client, "x", 1, &semaphore.Options{Looks: -1}, "looks -1 must be from 1 to 100"},
	} {
		if _, err := semaphore.New(c.client, c.name, c.slots, c.options); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	long, err := semaphore.New(client, strings.Repeat("n", semaphore.MaxNameLen), semaphore.MaxSlots, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := long.TryAcquire(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Release(t.Context()) }() // the test is about others
	for _, o := range []tenure.AcquireOptions{
		{UnlessAlive: true}, {AdditionalWait: 1}, {Priority: 1}, {Capacity: -1}, {Data: make([]byte, 1<<20)},
	} {
		_, err1 := long.Acquire(t.Context(), &o)
		_, err2 := long.TryAcquire(t.Context(), &o)
		if err1 == nil || err2 == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if err := long.Resize(t.Context(), 0, nil); err == nil {
		t.Error("no slots at all are accepted")
	}
}

// The limits are those of locks.
func TestLimits(t *testing.T) {
	if semaphore.MaxNameLen+16 != driver.MaxNameLen || semaphore.MaxDataLen != driver.MaxDataLen {
		t.Error("a limit has changed in package driver")
	}
	longest := semaphore.LockName(strings.Repeat("n", semaphore.MaxNameLen), semaphore.MaxSlots-1)
	if len(longest) > driver.MaxNameLen {
		t.Errorf("the name of a slot has %d bytes", len(longest))
	}
}

func TestLockNames(t *testing.T) {
	for _, c := range []struct {
		lock, name string
		slot       int
		ok         bool
	}{
		{"x:slot/0", "x", 0, true},
		{"x:slot/999", "x", 999, true},
		{"a:slot/1:slot/2", "a:slot/1", 2, true},
		{"x:slot/1000", "", 0, false},
		{"x:slot/01", "", 0, false},
		{"x:slot/-1", "", 0, false},
		{"x:slot/", "", 0, false},
		{":slot/1", "", 0, false},
		{"x:slots", "", 0, false},
		{"x", "", 0, false},
	} {
		name, slot, ok := semaphore.ParseLockName(c.lock)
		if name != c.name || slot != c.slot || ok != c.ok {
			t.Errorf("%q: %q, %d, %v", c.lock, name, slot, ok)
		}
		if ok && semaphore.LockName(name, slot) != c.lock {
			t.Errorf("%q comes back as %q", c.lock, semaphore.LockName(name, slot))
		}
	}
}
