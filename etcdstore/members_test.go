// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// A stopped member costs its clients a request or two, not every third request until its
// connection is found dead.
func TestStoppedMemberIsAvoided(t *testing.T) {
	members := enginetest.StartEtcd(t, 3, "--unsafe-no-fsync")
	store := mustOpen(t, prefixOf(t), members[0].URL, members[1].URL, members[2].URL)
	mustClaim(t, store, "lock")
	get := func() error {
		// Ten of these, a third of those below, are too short for gRPC to find a connection dead.
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := store.Get(ctx, "lock", driver.Eventual)
		return err
	}
	enginetest.Eventually(t, "an answer of each member", func(context.Context) error { return errors.Join(get(), get(), get()) })

	led := leader(t, store, members)
	for _, m := range members {
		if m != led {
			m.Stop()
			defer m.Continue()
			break
		}
	}
	failed := 0
	for range 30 {
		if get() != nil {
			failed++
		}
	}
	if failed == 0 || failed > 5 {
		t.Errorf("%d of 30 reads ran out of time, want those that found out, and no more", failed)
	}
}

// conn is a connection to a member.
type conn struct {
	balancer.SubConn
	_ byte // so that each has an address of its own
}

// TestMembersInTurn: a member that let a request time out gets none, until it answers another
// request; if all members did, all get requests.
func TestMembersInTurn(t *testing.T) {
	late := status.Error(codes.DeadlineExceeded, "late")
	synctest.Test(t, func(t *testing.T) {
		const members = 3
		ready := map[balancer.SubConn]base.SubConnInfo{}
		for range members {
			ready[&conn{}] = base.SubConnInfo{}
		}
		p := policy{}.Build(base.PickerBuildInfo{ReadySCs: ready})
		pick := func() balancer.PickResult {
			picked, err := p.Pick(balancer.PickInfo{})
			if err != nil {
				t.Fatal(err)
			}
			return picked
		}
		asked := func(when string, want int) map[balancer.SubConn]int {
			t.Helper()
			counts := map[balancer.SubConn]int{}
			for range 4 * members {
				counts[pick().SubConn]++
			}
			if len(counts) != want {
				t.Errorf("%s %d members are asked, want %d", when, len(counts), want)
			}
			return counts
		}
		for _, n := range asked("first", members) {
			if n != 4 {
				t.Errorf("one has %d of %d requests", n, 4*members)
			}
		}
		one := pick()
		avoids := func(when string) {
			t.Helper()
			if counts := asked(when, members-1); counts[one.SubConn] > 0 {
				t.Errorf("%s it is asked, and another one is not", when)
			}
		}
		one.Done(balancer.DoneInfo{Err: status.Error(codes.Unavailable, "the connection is gone")})
		one.Done(balancer.DoneInfo{Err: status.Error(codes.Canceled, "no longer wanted")})
		asked("after other errors", members)

		one.Done(balancer.DoneInfo{Err: late})
		avoids("while it is avoided")
		time.Sleep(avoidFor - time.Millisecond)
		avoids("at the end of that")
		time.Sleep(time.Millisecond)
		asked("after that", members)

		one.Done(balancer.DoneInfo{Err: late})
		one.Done(balancer.DoneInfo{})
		asked("when it has answered", members)

		for range 2 * members {
			pick().Done(balancer.DoneInfo{Err: late})
		}
		asked("when all were late", members)

		if _, err := (policy{}).Build(base.PickerBuildInfo{}).Pick(balancer.PickInfo{}); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
			t.Errorf("without a member: %v", err)
		}
	})
}
