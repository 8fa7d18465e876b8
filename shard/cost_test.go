// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/shard"
)

// At rest a worker writes its heartbeats and nothing else, however many
// partitions it has, and reads what the package comment says.
func TestCostAtRest(t *testing.T) {
	const workers, periods = 6, 60
	onWorld(t, shard.Options{Partitions: 600}, func(t *testing.T, s *world) {
		s.come(workers, func() { s.settle(len(s.workers), 600) })
		time.Sleep(10 * refresh)
		for _, w := range s.workers {
			w.client.Faults().ResetLog()
		}
		time.Sleep(periods * refresh)
		for i, w := range s.workers {
			writes := map[faultstore.Op]int{}
			reads := 0
			for _, l := range w.client.Faults().Log() {
				if l.Call.Op.IsWrite() {
					writes[l.Call.Op]++
				} else {
					reads++
				}
			}
			beats := int(periods * refresh / beat)
			if n := writes[faultstore.OpHeartbeat]; n < beats-1 || n > beats+1 || len(writes) != 1 {
				t.Errorf("%s writes %v in %v", w.owner, writes, periods*refresh)
			}
			// The coordinator's state, and half a partition, and the coordinator's session, again when its
			// heartbeat has come; the coordinator also looks at the other workers and at few of
			// the vacant places, and it and its successor at the workers' sessions, the one after
			// that at its successor's.
			most := 2.8
			switch {
			case w.Stats().Coordinator:
				most += workers + workers + 4
			case i < 2:
				most += workers + 0.6
			case i == 2:
				most += 1.2
			}
			if perPeriod := float64(reads) / periods; perPeriod > most {
				t.Errorf("%s reads %.1f records in a refresh period, more than %.1f", w.owner, perPeriod, most)
			} else {
				t.Logf("%s reads %.1f records in a refresh period", w.owner, perPeriod)
			}
		}
	})
}

// A group of ten workers and a thousand partitions costs less than $17 a month on DynamoDB.
func TestCostOfAMonth(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 1000}, func(t *testing.T, s *world) {
		const workers, long = 10, 3 * time.Minute
		s.blind = true
		s.come(workers, atOnce)
		s.settle(workers, 1000)
		time.Sleep(25 * time.Second)
		for _, w := range s.workers {
			w.client.Faults().ResetLog()
		}
		time.Sleep(long)
		reads, writes := 0.0, 0.0
		for _, w := range s.workers {
			for _, l := range w.client.Faults().Log() {
				units := 1.0 // of a strong read of up to 4 kB, or a write of 1 kB
				switch {
				case l.Call.Op.IsWrite():
					writes += units / long.Seconds()
					continue
				case l.Call.Consistency == driver.Eventual:
					units = 0.5
				}
				reads += units / long.Seconds()
			}
		}
		const month, read, write = 30 * 24 * 3600, 0.125e-6, 0.625e-6
		dollars := month * (reads*read + writes*write)
		t.Logf("%.1f read units a second in all, and %.1f write units: $%.2f a month", reads, writes, dollars)
		if dollars > 17 {
			t.Errorf("$%.2f a month", dollars)
		}
	}, func(o *tenure.Options) {
		o.LeaseDuration, o.HeartbeatPeriod, o.RefreshPeriod = 20*time.Second, 5*time.Second, time.Second
	})
}
