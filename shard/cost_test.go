// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/shard"
)

// At rest a worker writes its heartbeats and nothing else, however many
// partitions it has, and reads what the package comment says.
func TestCostAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, periods = 6, 60
		s := newStage(t, shard.Options{Partitions: 600})
		for i := range workers {
			s.worker(string(rune('a' + i)))
			s.settle(i+1, 600)
		}
		time.Sleep(10 * refresh)
		for _, w := range s.workers {
			w.faults.ResetLog()
		}
		time.Sleep(periods * refresh)
		for i, w := range s.workers {
			writes := map[faultstore.Op]int{}
			reads := 0
			for _, l := range w.faults.Log() {
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
			// The office and two partitions, and their sessions when a heartbeat is due;
			// the coordinator, and its successor, look at the other workers too, and at few
			// of the vacant places.
			most := 5.3
			if i < 2 {
				most = 5.3 + 2*workers + 4
			}
			if perPeriod := float64(reads) / periods; perPeriod > most {
				t.Errorf("%s reads %.1f records in a refresh period, more than %.1f", w.owner, perPeriod, most)
			} else {
				t.Logf("%s reads %.1f records in a refresh period", w.owner, perPeriod)
			}
		}
	})
}
