// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestHintLatency measures from one process's release to another's hint.
func TestHintLatency(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("without inotify it is the poll period")
	}
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	hints := make(chan time.Time, 100)
	if _, err := s.Watch("k", func() { hints <- time.Now() }); err != nil {
		t.Fatal(err)
	}
	ringer := start(t, "ring", file, nil)
	const rounds = 300
	var called, committed []time.Duration
	for range rounds {
		if _, err := fmt.Fprintln(ringer.stdin, "go"); err != nil {
			t.Fatal(err)
		}
		var hint time.Time
		select {
		case hint = <-hints:
		case <-time.After(10 * time.Second):
			t.Fatal("no hint")
		}
		begin, end, ok := strings.Cut(<-ringer.out, " ")
		from, err := strconv.ParseInt(begin, 10, 64)
		if !ok || err != nil {
			t.Fatal(begin, end, err)
		}
		to, _ := strconv.ParseInt(end, 10, 64)
		called = append(called, time.Duration(hint.UnixNano()-from))
		committed = append(committed, time.Duration(hint.UnixNano()-to))
	}
	slices.Sort(called)
	slices.Sort(committed)
	t.Logf("from the call of the release to the hint: median %v, p99 %v", called[rounds/2], called[rounds*99/100])
	t.Logf("from the reply of the release to the hint: median %v, p99 %v", committed[rounds/2], committed[rounds*99/100])
}

// childRing claims and releases for each line that it reads, and prints when it
// began to release and when that was answered.
func childRing(file string) error {
	s, err := Open(file, nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	scan := bufio.NewScanner(os.Stdin)
	for scan.Scan() {
		rec, _, err := s.Claim(ctx, held("k", "ringer"))
		if err != nil {
			return err
		}
		begin := time.Now()
		if _, err := s.Swap(ctx, rec, released(rec)); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, begin.UnixNano(), time.Now().UnixNano())
	}
	return s.Close()
}

// TestBellLost takes the bell away in every way that there is: writes go on,
// and so do hints.
func TestBellLost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("polling needs no bell")
	}
	file := filepath.Join(t.TempDir(), "locks.db")
	bell := file + bellSuffix
	watcher, writer := mustOpen(t, file), mustOpen(t, file)
	hints := make(chan struct{}, 1000)
	if _, err := watcher.Watch("k", func() { hints <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []struct {
		name string
		do   func()
	}{
		{"untouched", func() {}},
		{"removed", func() { must(os.Remove(bell)) }},
		{"moved away", func() { must(os.Rename(bell, bell+".old")) }},
		{"replaced", func() {
			must(os.WriteFile(bell+".new", nil, 0o600))
			must(os.Rename(bell+".new", bell))
		}},
		{"truncated", func() { must(os.Truncate(bell, 0)) }},
		{"longer", func() { must(os.Truncate(bell, 1<<20)) }},
	} {
		what.do()
		rec := mustClaim(t, writer, held("k", "a"))
		drain(hints)
		mustSwap(t, writer, rec, released(rec))
		eventually(t, func() error {
			if len(hints) == 0 {
				return fmt.Errorf("no hint with the bell %s", what.name)
			}
			return nil
		})
	}
}

func drain(hints chan struct{}) {
	for len(hints) > 0 {
		<-hints
	}
}

// TestBellSlots checks that a hint wakes those that it is for, and that nothing
// is lost when a second key is freed before the first was looked at.
func TestBellSlots(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	var seen slots
	if _, err := seen.look(file); err != nil {
		t.Fatal(err)
	}
	s.ring([]*write{{key: "a", wake: true}, {key: "b", wake: true}, {key: "c"}})
	s.ring([]*write{{key: "a", wake: true}})
	changed, err := seen.look(file)
	if err != nil {
		t.Fatal(err)
	}
	if !changed("a") || !changed("b") || changed("c") {
		t.Errorf("changed: a %t, b %t, c %t; want true, true, false", changed("a"), changed("b"), changed("c"))
	}
	if changed, _ := seen.look(file); changed("a") {
		t.Error("a changed twice")
	}
	for i := range 10_000 {
		s.ring([]*write{{key: strconv.Itoa(i), wake: true}})
	}
	if info, err := os.Stat(file + bellSuffix); err != nil || info.Size() > bellSize {
		t.Errorf("the bell has %d bytes (%v), at most %d are wanted", info.Size(), err, bellSize)
	}
}

// TestBellLink plants a link for the bell: it is not followed.
func TestBellLink(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	victim := file + ".victim"
	if err := os.WriteFile(victim, []byte("victim"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, file+bellSuffix); err != nil {
		t.Skip(err)
	}
	rec := mustClaim(t, s, held("k", "a"))
	mustSwap(t, s, rec, released(rec))
	if got, err := os.ReadFile(victim); err != nil || string(got) != "victim" {
		t.Errorf("the bell was rung through a link: %q, %v", got, err)
	}
}

// TestEventsFail has the source fail while it is in use.
func TestEventsFail(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "locks.db"))
	s.watches.period = leastPollPeriod
	hints := make(chan struct{}, 1000)
	if _, err := s.Watch("k", func() { hints <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	s.watches.mu.Lock()
	s.watches.source.close()
	s.watches.mu.Unlock()
	<-hints // whatever was missed in between
	rec := mustClaim(t, s, held("k", "a"))
	drain(hints)
	mustSwap(t, s, rec, released(rec))
	<-hints
}
