// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/shard"
)

// A high place is looked at each 5 polls when the group has just changed, and each 20 when it
// has stood for a while. A worker that is in one all the same, because an operator has freed
// the places below it by hand, is found by then.
func TestVacantPlacesAreLookedAtSeldom(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 6}, func(t *testing.T, s *world) {
		const high, often, seldom, periods = 9, 5, 20, 120
		a := s.worker("a")
		s.settle(1, 6)
		looks := func(during time.Duration) (n int) {
			a.client.Faults().ResetLog()
			time.Sleep(during)
			for _, l := range a.client.Faults().Log() {
				if l.Call.Key == shard.MemberName(name, high) {
					n++
				}
			}
			return n
		}
		if n, want := looks(seldom*refresh), seldom/often; n < want-1 || n > want+1 {
			t.Errorf("place %d was looked at %d times in the first %v, want %d", high, n, seldom*refresh, want)
		}
		time.Sleep(4 * seldom * refresh)
		if n, want := looks(periods*refresh), periods/seldom; n < want-1 || n > want+1 {
			t.Errorf("place %d was looked at %d times in %v at rest, want %d", high, n, periods*refresh, want)
		}

		st := testutil.Must(a.client.Status(t.Context(), shard.MemberName(name, 0)))(t)
		other := s.Client("other")
		session := testutil.Must(other.OpenSession(t.Context(), nil))(t)
		as := &tenure.AcquireOptions{Data: st.Data}
		taken := testutil.Must(session.Acquire(t.Context(), shard.MemberName(name, high), as))(t)
		took := s.until("the worker in the high place is found", 10*lease, func() bool {
			group, err := shard.Read(t.Context(), other.Client, name)
			return err == nil && len(group.Members) == 2
		})
		if most := (seldom + 2) * refresh; took > most {
			t.Errorf("it was found after %v, want %v at most", took, most)
		}
		t.Logf("found after %v", took)
		testutil.Want(t, errors.Join(taken.Release(t.Context()), session.Close(t.Context())), nil)
	})
}

// A worker whose claim of a high place is so late that the group has fewer places by then
// takes another one: the coordinator does not look there any more.
func TestPlaceThatIsGone(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 2}, func(t *testing.T, s *world) {
		workers := s.come(20, atOnce)
		s.settle(20, 2)
		late := s.make("late")
		late.client.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Op == faultstore.OpClaim && c.Key == shard.MemberName(name, 20) },
			Fault: faultstore.Slow(1400*time.Millisecond, 0),
		})
		late.start(late.handle)
		time.Sleep(10 * time.Millisecond)
		for _, w := range workers {
			if !w.Stats().Coordinator {
				w.stop()
			}
		}
		time.Sleep(2 * refresh)
		if took := s.settle(2, 2); took > lease {
			t.Errorf("it took %v, want %v at most", took, lease)
		}
	})
}
