// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
)

// A semaphore that three processes hold and ten wait for costs less than $3 a month on
// DynamoDB.
func TestCostOfAMonth(t *testing.T) {
	onStage(t, 3, func(t *testing.T, s *stage) {
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
			p.faults.ResetLog()
		}
		time.Sleep(long)
		reads, writes := map[string]float64{}, 0.0
		for _, p := range all {
			for _, l := range p.faults.Log() {
				units := 1 / long.Seconds() // of a strong read of up to 4 kB, or a write of 1 kB
				how := "strong"
				switch {
				case l.Op.IsWrite():
					writes += units
					continue
				case l.Consistency == driver.Eventual:
					units /= 2
					how = "eventual"
				}
				of := strings.TrimPrefix(l.Key, name+":")
				if strings.HasPrefix(of, "slot/") {
					of = "slot"
				}
				reads[of+" "+how] += units
			}
		}
		sum := 0.0
		for of, units := range reads {
			sum += units
			t.Logf("%s: %.2f read units a second", of, units)
		}
		const month, read, write = 30 * 24 * 3600, 0.125e-6, 0.625e-6
		dollars := month * (sum*read + writes*write)
		t.Logf("%.1f read units a second in all, and %.1f write units: $%.2f a month", sum, writes, dollars)
		if dollars > 3 {
			t.Errorf("$%.2f a month", dollars)
		}
	})
}
