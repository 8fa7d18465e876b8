// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// source is a store that takes its time.
type source struct {
	*cache
	asked int
	takes time.Duration
}

func (s *source) look(t *testing.T, key string) (string, reading) {
	return ask(t.Context(), s.cache, lookPace, key, func(context.Context) (string, error) {
		s.asked++
		time.Sleep(s.takes)
		return key + "!", nil
	})
}

func inCache(t *testing.T, f func(*testing.T, *source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &source{cache: newCache()}
		defer s.close()
		f(t, s)
	})
}

func TestCacheAsksOnceForAll(t *testing.T) {
	inCache(t, func(t *testing.T, s *source) {
		s.takes = 300 * time.Millisecond
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if value, r := s.look(t, "x"); r.err != nil || value != "x!" {
					t.Errorf("%q, %+v", value, r)
				}
			})
		}
		all.Wait()
		// It is fresh for five times as long as it took, unless something was done.
		for i, want := range []int{1, 1, 2, 3} {
			if i == 3 {
				s.stale()
			}
			if s.look(t, "x"); s.asked != want {
				t.Errorf("question %d: asked %d times, want %d", i, s.asked, want)
			}
			time.Sleep(1400 * time.Millisecond)
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	inCache(t, func(t *testing.T, s *source) {
		for i := range 3 * maxEntries {
			if value, r := s.look(t, fmt.Sprint(i)); r.err != nil || value != fmt.Sprint(i, "!") {
				t.Fatalf("%q, %v", value, r.err)
			}
		}
		if n := len(s.entries); n > maxEntries {
			t.Errorf("%d entries, more than %d", n, maxEntries)
		}
	})
}
