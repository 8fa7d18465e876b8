// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureprom_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenurelock/tenure/internal/testutil"
)

// scrape returns what a scrape shows, as "name{label=value,...}".
func scrape(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	shown := map[string]float64{}
	for _, f := range testutil.Must(r.Gather())(t) {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			if h := m.GetHistogram(); h != nil {
				shown[name+" count"], shown[name+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
			} else {
				shown[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() // it has one of them
			}
		}
	}
	return shown
}

const (
	absent = math.MaxFloat64        // of what must not be shown
	settle = 100 * time.Millisecond // by then an event is counted
)

// want compares some of what a scrape shows.
func want(t *testing.T, c prometheus.Collector, when string, wanted map[string]float64) {
	t.Helper()
	shown := scrape(t, c)
	for name, value := range wanted {
		got, there := shown[name]
		if !there {
			got = absent
		}
		near := 1e-6
		if strings.HasPrefix(name, "tenure_lock_vacant_seconds") && value > 0 {
			near = 1 // a poll sees it
		}
		if math.Abs(got-value) > near {
			t.Errorf("%s: %s is %v, want %v; what is absent is %v", when, name, got, value, absent)
		}
	}
	if t.Failed() {
		t.Fatalf("shown are %v", shown)
	}
}
