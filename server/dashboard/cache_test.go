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

// The store is asked once for all, and as seldom as it is slow; what is kept has a bound.
func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache()
		defer c.close()
		asked, takes := 0, 300*time.Millisecond
		look := func(key string) {
			value, r := ask(t.Context(), c, lookPace, key, func(context.Context) (string, error) {
				asked++
				time.Sleep(takes)
				return key + "!", nil
			})
			if r.err != nil || value != key+"!" {
				t.Errorf("%s: %q, %+v", key, value, r)
			}
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { look("x") })
		}
		all.Wait()
		// It is fresh for five times as long as it took, unless something was done.
		for i, want := range []int{1, 1, 2, 3} {
			if i == 3 {
				c.stale()
			}
			if look("x"); asked != want {
				t.Errorf("question %d: asked %d times, want %d", i, asked, want)
			}
			time.Sleep(1400 * time.Millisecond)
		}
		takes = 0
		for i := range 3 * maxEntries {
			look(fmt.Sprint(i))
		}
		if n := len(c.entries); n > maxEntries {
			t.Errorf("%d entries, more than %d", n, maxEntries)
		}
	})
}
