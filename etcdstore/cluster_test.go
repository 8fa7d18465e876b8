// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// patience bounds the wait for events that must come.
const patience = time.Minute

// TestServers runs the suite on a cluster of three, each client at a member of its own.
func TestServers(t *testing.T) {
	members := enginetest.StartEtcd(t, 3, "--unsafe-no-fsync")
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		prefix := prefixOf(t)
		h := harness(t, prefix, members[0].URL)
		h.Ops = 100
		for _, m := range members {
			h.Servers = append(h.Servers, func(t *testing.T) driver.Store { return mustOpen(t, prefix, m.URL) })
		}
		return h
	})
}

// A member that was stopped, and goes on behind the others, must not answer a strong
// read from its own state.
func TestStoppedMemberIsNotBelieved(t *testing.T) {
	members := enginetest.StartEtcd(t, 3)
	prefix := prefixOf(t)
	behind, others := mustOpen(t, prefix, members[0].URL), mustOpen(t, prefix, members[1].URL, members[2].URL)
	rec := mustClaim(t, others, "lock")
	if _, err := behind.Get(t.Context(), "lock", driver.Strong); err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		members[0].Stop()
		next := rec
		next.Version, next.Beat = fmt.Sprint("beat-", round), fmt.Sprint("beat-", round)
		enginetest.Eventually(t, "a write without the member", func(ctx context.Context) (err error) {
			now, err := others.Swap(ctx, rec, next)
			if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) && conflict.Current.Version == next.Version {
				now, err = conflict.Current, nil
			}
			if err == nil {
				rec = now
			}
			return err
		})
		members[0].Continue()
		enginetest.Eventually(t, "a strong read", func(ctx context.Context) error {
			got, err := behind.Get(ctx, "lock", driver.Strong)
			if err == nil && got.Version != rec.Version {
				t.Fatalf("a strong read shows version %s after %s", got.Version, rec.Version)
			}
			return err
		})
	}
}

// leader returns the member that leads.
func leader(t *testing.T, s *Store, members []*enginetest.Engine) *enginetest.Engine {
	t.Helper()
	var found *enginetest.Engine
	enginetest.Eventually(t, "a leader", func(ctx context.Context) error {
		for _, m := range members {
			status, err := s.client.Status(ctx, m.URL)
			if err != nil {
				return err
			}
			if status.Leader == status.Header.MemberId {
				found = m
				return nil
			}
		}
		return errors.New("there is no leader")
	})
	return found
}

func mustClaim(t *testing.T, s *Store, key string) driver.Record {
	t.Helper()
	return enginetest.Claim(t, s, held(key))
}

func held(key string) driver.Record {
	version := "v" + strings.ReplaceAll(time.Now().Format("150405.000000000"), ".", "-")
	return driver.Record{Key: key, Version: version, Beat: version, Owner: "o", Lease: time.Second, State: driver.Held}
}
