// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/test/harness/dynamo"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
)

// change is a state of a lock's item, and when it came about, on the clock of [proc.Monotonic]:
// after the last read that did not show it was sent, and before the first that did was answered.
type change struct {
	owner, version, released, lease string
	after, before                   int64
}

func (c change) isAs(other change) bool {
	return c.owner == other.owner && c.version == other.version && c.released == other.released
}

// watch reads an item all the time, past both clients, and keeps how it changed.
type watch struct {
	mu      sync.Mutex
	changes []change
}

func (s *fixture) watch(name string) *watch {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	w, ended := &watch{}, make(chan struct{})
	db, connections := dynamo.ConnectWide(s.url)
	go func() {
		defer close(ended)
		last := proc.Monotonic()
		for ; ctx.Err() == nil; wait.Rest(ctx, 10*time.Millisecond) {
			sent := proc.Monotonic()
			out, err := db.GetItem(ctx, s.get(name))
			if err != nil {
				continue // or it has ended; a gap only widens the bounds
			}
			i := item(out.Item)
			c := change{
				i.text("ownerName"), i.text("recordVersionNumber"), i.text("isReleased"), i.text("leaseDuration"),
				last, proc.Monotonic(),
			}
			w.mu.Lock()
			if n := len(w.changes); n == 0 || !c.isAs(w.changes[n-1]) {
				w.changes = append(w.changes, c)
			}
			w.mu.Unlock()
			last = sent
		}
	}()
	s.Cleanup(func() {
		cancel()
		<-ended
		connections.CloseIdleConnections()
	})
	return w
}

// all returns the changes so far.
func (w *watch) all() []change {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.changes)
}

// beats waits until the holder has shown life n times more.
func (w *watch) beats(s *fixture, n int) {
	want := len(w.all()) + n
	if !wait.Within(s.Context(), patience, func() bool { return len(w.all()) >= want }) {
		s.Errorf("%d heartbeats do not come within %v", n, patience)
	}
}

// taken waits until the lock is taken by somebody, and compares how long the last sign of life of
// its holder stood, or the change by which a holder was cut off, with how long it had to stand, and
// may have: from the lease that the holder named to a while more, and what a busy machine may add.
func (s *fixture) taken(c command) (o outcome) {
	var last, now change
	var lease string
	w, by, cut := s.watches[c.lock], c.options["by"], c.options["cut"]
	came := wait.Within(s.Context(), patience, func() bool {
		all := w.all()
		i := slices.IndexFunc(all, func(c change) bool { return c.owner == by })
		if i <= 0 {
			return false
		}
		last, now, lease = all[i-1], all[i], all[i-1].lease
		for j := 1; j < i && cut != ""; j++ {
			if all[j-1].owner == cut && all[j].owner != cut {
				last, lease, cut = all[j], all[j-1].lease, ""
			}
		}
		return true
	})
	if !came || cut != "" {
		return outcome{how: "deadline", text: fmt.Sprintf("%+v", w.all())}
	}
	least, err := time.ParseDuration(lease)
	if ms, number := strconv.Atoi(lease); number == nil {
		least, err = time.Duration(ms)*time.Millisecond, nil
	}
	if strings.HasPrefix(by, "us") {
		least = time.Duration(foreign * float64(least))
	}
	// The truth lies between: the watch is no better than its reads.
	atLeast, atMost := time.Duration(now.after-last.before), time.Duration(now.before-last.after)
	s.Logf("%s took over %v to %v after the last sign of life; due after %v", by, atLeast, atMost, least)
	o.fields = map[string]string{"from": last.owner, "released": last.released}
	switch {
	case err != nil || least == 0:
		o.how, o.text = "other", "no lease: "+lease
	case atMost < least:
		o.how, o.text = "other", "too early"
	case atLeast > least+c.duration("slack", 0)+leaseTime:
		o.how, o.text = "other", "too late"
	}
	return o
}
