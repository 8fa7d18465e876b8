// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// A semaphore that three processes hold and ten wait for costs less than $5 a month on
// DynamoDB.
func TestCostOfAMonth(t *testing.T) {
	onWorld(t, 3, func(t *testing.T, s *world) {
		const slots, waiters, long = 3, 10, 5 * time.Minute
		s.blind = true
		timed := func(o *tenure.Options) {
			o.LeaseDuration, o.HeartbeatPeriod, o.RefreshPeriod = 20*time.Second, 5*time.Second, time.Second
		}
		var all []*process
		for i := range slots {
			p := s.process(fmt.Sprint("holder", i), slots, timed)
			p.hold(t.Context())
			all = append(all, p)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		for i := range waiters {
			p := s.process(fmt.Sprint("waiter", i), slots, timed)
			all = append(all, p)
			go func() { _, _ = p.Acquire(ctx, nil) }() // in vain
		}
		time.Sleep(25 * time.Second)
		for _, p := range all {
			p.client.Faults().ResetLog()
		}
		time.Sleep(long)
		reads, writes := 0.0, 0.0
		for _, p := range all {
			for _, l := range p.client.Faults().Log() {
				units := 1 / long.Seconds() // of a strong read of up to 4 kB, or a write of 1 kB
				switch {
				case l.Op.IsWrite():
					writes += units
				case l.Consistency == driver.Eventual:
					reads += units / 2
				default:
					reads += units
				}
			}
		}
		const month, read, write = 30 * 24 * 3600, 0.125e-6, 0.625e-6
		dollars := month * (reads*read + writes*write)
		t.Logf("%.1f read units a second in all, and %.1f write units: $%.2f a month", reads, writes, dollars)
		if dollars > 5 {
			t.Errorf("$%.2f a month", dollars)
		}
	})
}

// What it costs, in requests to the store.
func TestRequests(t *testing.T) {
	reads := func(p *process) int { return p.client.Faults().Count(faultstore.OpGet) }
	onWorld(t, 5, func(t *testing.T, s *world) {
		first := s.process("first", 5)
		first.release(first.hold(t.Context()))

		// A slot that is free.
		p := s.process("p", 5)
		count := func(what string, wantReads, wantAll int) {
			t.Helper()
			if r, all := reads(p), p.client.Faults().Count(); r > wantReads || all > wantAll {
				t.Errorf("%s: %d requests, %d of them reads; want at most %d and %d", what, all, r, wantAll, wantReads)
			}
			p.client.Faults().ResetLog()
		}
		p.release(p.hold(t.Context()))
		count("the first slot of a process", 3, 5)
		p.release(p.hold(t.Context()))
		count("the next slot", 2, 4)
		l, err := p.TryAcquire(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		count("a try", 1, 3)
	})
}
