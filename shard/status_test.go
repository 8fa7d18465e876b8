// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/shard"
)

// What is read from outside is what the workers know.
func TestStatus(t *testing.T) {
	onWorld(t, shard.Options{Names: []string{"blue", "green", "red", "white"}, Zone: "z1", Address: "10.0.0.7:80"}, func(t *testing.T, s *world) {
		a := s.worker("a")
		s.settle(1, 4)
		b := s.worker("b")
		s.settle(2, 4)
		st := testutil.Must(shard.Read(t.Context(), b.client.Client, name))(t)
		if st.Group != name || st.Coordinator != "a" || st.Epoch != a.Stats().Epoch || st.Owned != 4 || st.Moving != 0 || st.Unowned != 0 || st.Imbalance != 1 {
			t.Errorf("%+v", st)
		}
		if len(st.Members) != 2 || st.Members[0].Owner != "a" || st.Members[1].Owned != 2 || st.Members[1].Planned != 2 || st.Members[1].Share != 2 || st.Members[0].Zone != "z1" {
			t.Errorf("%+v", st.Members)
		}
		for i, p := range st.Partitions {
			if want := s.at()[p.ID]; p.Owner != want || p.Place != p.Planned || p.Token == 0 || p.Since.IsZero() {
				t.Errorf("partition %d: %+v, want it with %s", i, p, want)
			}
		}
		data, err := json.Marshal(st)
		if err != nil || !strings.Contains(string(data), `"id":"blue","owner":"`) {
			t.Errorf("%s, %v", data, err)
		}
		var back shard.Status
		if err := json.Unmarshal(data, &back); err != nil || len(back.Partitions) != 4 || back.Members[1] != st.Members[1] {
			t.Errorf("%+v, %v", back, err)
		}

		// While a handler drains, its partition moves.
		a.drain.Store(int64(10 * time.Second))
		b.drain.Store(int64(10 * time.Second))
		b.stop()
		s.until("b is leaving in the membership", lease, func() bool {
			st, err = a.Status(t.Context())
			return err == nil && len(st.Members) == 2 && st.Members[1].Leaving
		})
		if st.Moving != 2 || st.Members[1].Planned != 0 || st.Members[0].Share != 4 {
			t.Errorf("while b leaves: %+v", st)
		}
		s.settle(1, 4)
		if _, err := shard.Read(t.Context(), b.client.Client, "tenure/x"); err == nil {
			t.Error("a name of Tenure's own is taken")
		}
	})
}

// A worker that has left is not called dead, neither while it is still on the membership,
// nor when no coordinator writes one any more; a worker that has died is.
func TestStatusOfThoseWhoHaveGone(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 6}, func(t *testing.T, s *world) {
		workers := s.come(3, linger)
		s.settle(3, 6)
		looker := s.Client("looker")
		look := func() (states map[string]string, there int) {
			t.Helper()
			st := testutil.Must(shard.Read(t.Context(), looker.Client, name))(t)
			states = map[string]string{}
			for _, m := range st.Members {
				states[m.Owner] = m.State
			}
			return states, st.Workers
		}
		if states, n := look(); n != 3 || states["w0"] != shard.MemberAlive {
			t.Errorf("%d are there: %v", n, states)
		}
		go func() { _ = workers[2].quit() }() // it does not coordinate
		seen := map[string]bool{}
		for range 100 {
			states, n := look()
			seen[states["w2"]] = true
			if states["w2"] == shard.MemberDead || states["w2"] == shard.MemberLeft && n != 2 {
				t.Errorf("%d are there: %v", n, states)
			}
			time.Sleep(refresh / 10)
		}
		if !seen[shard.MemberLeaving] || !seen[shard.MemberLeft] || !seen[""] {
			t.Errorf("seen of a leaving worker: %v", seen)
		}

		// One worker dies, the other leaves: there is no coordinator any more, and no owner.
		workers[1].crash()
		look() // and its last heartbeat is seen
		time.Sleep(refresh)
		_ = workers[0].quit()
		time.Sleep(2 * lease)
		for range 3 {
			if states, n := look(); n != 0 || states["w0"] != shard.MemberLeft && states["w0"] != "" || states["w1"] != shard.MemberDead {
				t.Errorf("%d are there: %v", n, states)
			}
			time.Sleep(lease)
		}
	})
}

// Unreadable records are refused, and left alone.
func TestUnreadableRecords(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 4}, func(t *testing.T, s *world) {
		a := s.make("a")
		for _, lock := range []string{shard.SpecName(name), shard.MembershipName(name)} {
			l := testutil.Must(a.client.Acquire(t.Context(), lock, &tenure.AcquireOptions{Data: []byte("not ours")}))(t)
			testutil.Want(t, l.Release(t.Context()), nil)
		}
		if _, err := a.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "not ours") {
			t.Error(err)
		}
		a.start(a.handle)
		time.Sleep(10 * refresh)
		ev := a.of(shard.EventResigned)
		if len(ev) == 0 || ev[0].Err == nil || !strings.Contains(ev[0].Err.Error(), "not ours") {
			t.Errorf("told %v", ev)
		}
		if len(ev) > 3 {
			t.Errorf("it has coordinated %d times in %v", len(ev), 10*refresh)
		}
		if n := s.owned(); n != 0 {
			t.Errorf("%d are owned", n)
		}
		testutil.Want(t, a.quit(), nil)
	})
}
