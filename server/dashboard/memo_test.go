// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemoAsksOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWork()
		defer w.close()
		var asked atomic.Int32
		m := newMemo(w, time.Second, func(ctx context.Context, key string) (string, error) {
			asked.Add(1)
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
				return "", ctx.Err()
			}
			return key + "!", nil
		})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if a := m.ask(t.Context(), "x"); a.err != nil || a.value != "x!" {
					t.Errorf("%+v", a)
				}
			})
		}
		all.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		// It is fresh for five times as long as it took.
		time.Sleep(1400 * time.Millisecond)
		if m.ask(t.Context(), "x"); asked.Load() != 1 {
			t.Error("asked again while the answer was fresh")
		}
		time.Sleep(200 * time.Millisecond)
		if m.ask(t.Context(), "x"); asked.Load() != 2 {
			t.Error("not asked again")
		}
		m.stale()
		if m.ask(t.Context(), "x"); asked.Load() != 3 {
			t.Error("not asked again after something was done")
		}
	})
}

func TestMemoKeepsWhatItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWork()
		defer w.close()
		down := errors.New("down")
		var fails atomic.Bool
		m := newMemo(w, time.Second, func(context.Context, string) (int, error) {
			if fails.Load() {
				return 0, down
			}
			return 42, nil
		})
		m.ask(t.Context(), "")
		fails.Store(true)
		time.Sleep(2 * time.Second)
		a := m.ask(t.Context(), "")
		if !errors.Is(a.err, down) || !a.good || a.value != 42 || time.Since(a.at) != 2*time.Second {
			t.Errorf("%+v", a)
		}
		fails.Store(false)
		time.Sleep(2 * time.Second)
		if a := m.ask(t.Context(), ""); a.err != nil {
			t.Errorf("%+v", a)
		}
	})
}

func TestMemoOfASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWork()
		var took atomic.Int64
		m := newMemo(w, time.Second, func(ctx context.Context, _ string) (int, error) {
			select {
			case <-time.After(time.Duration(took.Load())):
				return 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		took.Store(int64(time.Hour))
		begun := time.Now()
		if a := m.ask(t.Context(), ""); !errors.Is(a.err, errSlow) || a.good || time.Since(begun) != patience {
			t.Errorf("after %v: %+v", time.Since(begun), a)
		}
		time.Sleep(loadTimeout)
		if a := m.ask(t.Context(), ""); !errors.Is(a.err, context.DeadlineExceeded) {
			t.Errorf("%+v", a)
		}
		w.close()
		m.stale()
		if a := m.ask(t.Context(), ""); !errors.Is(a.err, errClosed) {
			t.Errorf("after the end: %+v", a)
		}
	})
}

func TestMemoIsBounded(t *testing.T) {
	w := newWork()
	defer w.close()
	m := newMemo(w, time.Hour, func(_ context.Context, key string) (string, error) { return key, nil })
	for i := range 3 * memoEntries {
		if a := m.ask(t.Context(), fmt.Sprint(i)); a.err != nil {
			t.Fatal(a.err)
		}
	}
	if n := len(m.entries); n > memoEntries {
		t.Errorf("%d entries, more than %d", n, memoEntries)
	}
}
