// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/once"
)

var (
	onceSlotDesc     = desc("tenure_once_last_slot", "The slot of the last run that was begun: with tenure once --cron in minutes since 1970, with every its number.", "name")
	onceSuccessDesc  = desc("tenure_once_last_success_timestamp_seconds", "When the last successful run ended, by the wall clock of its host; if none is known, when the oldest run of the ledger began.", "name")
	onceStatusDesc   = desc("tenure_once_last_status", "The exit status of the last run whose end is known; 1 if it failed without one, -1 if the end of the last one is not known.", "name")
	onceTookDesc     = desc("tenure_once_last_duration_seconds", "How long the last run with a known end took.", "name")
	onceRunningDesc  = desc("tenure_once_running_since_timestamp_seconds", "When the present run began, by the wall clock of its host.", "name")
	onceMissedDesc   = desc("tenure_once_missed", "How many slots before the last run were never begun.", "name")
	oncePeriodDesc   = desc("tenure_once_period_seconds", "The time from the last slot that was begun to the next one, or from the one before if that is longer, or the period of every.", "name")
	onceDescriptions = []*prometheus.Desc{onceSlotDesc, onceSuccessDesc, onceStatusDesc, onceTookDesc, onceRunningDesc, onceMissedDesc, oncePeriodDesc}
)

// noteLedger reads the ledger of a lock that has one, and keeps its last success, which 20
// failures would push out of it.
func (l *Locks) noteLedger(st tenure.Status) (*once.Ledger, time.Time) {
	ledger, ok := once.Read(st)
	if !ok {
		return nil, time.Time{}
	}
	g := l.logs[st.Name]
	for _, r := range ledger.Runs { // the last one, not the latest by clocks that may be wrong
		if r.State == once.StateDone {
			g.success = r.Ended
			break
		}
	}
	if g.success.IsZero() {
		return &ledger, ledger.Runs[len(ledger.Runs)-1].Begun
	}
	return &ledger, g.success
}

func (s *view) collectLedger(to chan<- prometheus.Metric, name string) {
	if s.ledger == nil {
		return
	}
	newest := s.ledger.Runs[0]
	gauge(to, onceSlotDesc, float64(newest.Slot), name)
	gauge(to, onceSuccessDesc, seconds(s.success), name)
	gauge(to, onceMissedDesc, float64(newest.Missed), name)
	if s.ledger.Period > 0 {
		gauge(to, oncePeriodDesc, s.ledger.Period.Seconds(), name)
	}
	if newest.State == once.StateRunning {
		gauge(to, onceRunningDesc, seconds(newest.Begun), name)
	}
	for _, r := range s.ledger.Runs {
		switch r.State {
		case once.StateDone, once.StateFailed:
			status := r.Exit
			if r.State == once.StateFailed && status == 0 {
				status = 1
			}
			gauge(to, onceStatusDesc, float64(status), name)
			gauge(to, onceTookDesc, r.Took.Seconds(), name)
		case once.StateUnknown:
			gauge(to, onceStatusDesc, -1, name)
		case once.StateRunning, once.StateReset, once.StateChanged:
			continue
		}
		return
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
