// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/shard"
)

func TestNames(t *testing.T) {
	for _, c := range []struct{ group, id string }{
		{"orders", "7"}, {"a/b:c", "x y"}, {"g", "with:part/in it"}, {"g:part", "x"}, {"g", ":part/"},
	} {
		lock := shard.LockName(c.group, c.id)
		if group, id, ok := shard.ParseLockName(lock); !ok || group != c.group || id != c.id {
			t.Errorf("%q is taken for partition %q of %q, %v", lock, id, group, ok)
		}
	}
	for _, lock := range []string{"", "orders", "orders:lead", ":part/7", "orders:part/", "orders:member/7"} {
		if group, id, ok := shard.ParseLockName(lock); ok {
			t.Errorf("%q is taken for partition %q of %q", lock, id, group)
		}
	}
	longest := shard.LockName(strings.Repeat("g", shard.MaxNameLen), strings.Repeat("p", shard.MaxIDLen))
	if len(longest) > driver.MaxNameLen {
		t.Errorf("the longest name of a lock has %d bytes", len(longest))
	}
	if shard.MaxDataLen != driver.MaxDataLen {
		t.Error("limits are not those of package driver")
	}
}

func TestNewRefuses(t *testing.T) {
	client := testutil.Must(tenure.New(memstore.New(), nil))(t)
	defer client.Close(t.Context())
	for _, c := range []struct {
		name string
		o    *shard.Options
		want string
	}{
		{"g", nil, "neither Partitions nor Names"},
		{"", &shard.Options{Partitions: 1}, "group name is empty"},
		{"tenure/x", &shard.Options{Partitions: 1}, "records of Tenure itself"},
		{"a:part/b", &shard.Options{Partitions: 1}, `has ":part/" in it`},
		{"a:member/b", &shard.Options{Partitions: 1}, `has ":member/" in it`},
		{"a\n", &shard.Options{Partitions: 1}, "U+000A at byte 1"},
		{"a\xff", &shard.Options{Partitions: 1}, "not valid UTF-8"},
		{strings.Repeat("g", 513), &shard.Options{Partitions: 1}, "at most 512"},
		{"g", &shard.Options{Partitions: -1}, "partitions -1 must be from 1 to"},
		{"g", &shard.Options{Partitions: shard.MaxPartitions + 1}, "must be from 1 to"},
		{"g", &shard.Options{Partitions: 1, Names: []string{"x"}}, "both Partitions (1) and Names (1)"},
		{"g", &shard.Options{Names: []string{"x", "x"}}, `"x" is given twice`},
		{"g", &shard.Options{Names: []string{""}}, "partition name is empty"},
		{"g", &shard.Options{Names: []string{"a "}}, `partition name "a " has a space at byte 1`},
		{" g", &shard.Options{Partitions: 1}, `group name " g" has a space at byte 0`},
		{"g", &shard.Options{Names: []string{strings.Repeat("x", 257)}}, "at most 256"},
		{"g", &shard.Options{Partitions: 1, Weight: -1}, "weight -1"},
		{"g", &shard.Options{Partitions: 1, Max: -1}, "max -1"},
		{"g", &shard.Options{Partitions: 1, Budget: 49}, "budget 49 must be from 1 to 48"},
		{"g", &shard.Options{Partitions: 1, Claims: -1}, "claims -1"},
		{"g", &shard.Options{Partitions: 1, Audit: 1001}, "audit 1001"},
		{"g", &shard.Options{Partitions: 1, Zone: "a\tb"}, "zone"},
		{"g", &shard.Options{Partitions: 1, Address: strings.Repeat("x", 513)}, "address"},
	} {
		_, err := shard.New(client, c.name, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %+v: %v, want %q", c.name, c.o, err, c.want)
		}
	}
	if _, err := shard.New(nil, "g", &shard.Options{Partitions: 1}); err == nil {
		t.Error("a client of nil is taken")
	}
	g, err := shard.New(client, "g", &shard.Options{Partitions: 1})
	if err != nil || g.Name() != "g" {
		t.Error(err)
	}
	if err := g.Resize(t.Context(), 0); err == nil {
		t.Error("resized to nothing")
	}
	if err := g.SetPartitions(t.Context(), nil); err == nil {
		t.Error("resized to no names")
	}
}

// A foreign lock in the place of a lock that the coordinator needs is reported with its
// holder: no worker can plan. When it is free the group goes on.
func TestForeignLocks(t *testing.T) {
	for _, lock := range []string{shard.CoordinatorLockName(name), shard.MembershipName(name)} {
		onWorld(t, shard.Options{Partitions: 2}, func(t *testing.T, s *world) {
			l := testutil.Must(s.Client("other").TryAcquire(t.Context(), lock, nil))(t)
			a := s.worker("a")
			time.Sleep(10 * lease)
			told := 0
			for _, e := range a.of(shard.EventError) {
				text := fmt.Sprint(e.Err)
				if strings.Contains(text, strconv.Quote(lock)) && strings.Contains(text, strconv.Quote(l.Owner())) {
					told++
				}
			}
			if told < 1 || told > 10 {
				t.Errorf("a worker reported %s %d times: %v", lock, told, a.of())
			}
			testutil.Want(t, l.Release(t.Context()), nil)
			s.settle(1, 2)
		})
	}
}
