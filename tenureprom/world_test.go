// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureprom_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/tenureprom"
	"github.com/tenurelock/tenure/tenuretest"
)

// scrape returns what a scrape shows, as "name{label=value,...}".
func scrape(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				shown[name] = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				shown[name] = m.GetGauge().GetValue()
			case dto.MetricType_HISTOGRAM:
				shown[name+" count"] = float64(m.GetHistogram().GetSampleCount())
				shown[name+" sum"] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return shown
}

const absent = math.MaxFloat64

// want compares some of what a scrape shows; absent is for what must not be there.
func want(t *testing.T, c prometheus.Collector, when string, wanted map[string]float64) {
	t.Helper()
	shown := scrape(t, c)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		got, there := shown[name]
		near := 1e-6
		if strings.HasPrefix(name, "tenure_lock_vacant_seconds") && wanted[name] > 0 {
			near = 1 // a poll sees it
		}
		switch w := wanted[name]; {
		case w == absent && there:
			t.Errorf("%s: %s is %v, want none", when, name, got)
		case w != absent && !there:
			t.Errorf("%s: there is no %s, want %v", when, name, w)
		case w != absent && math.Abs(got-w) > near:
			t.Errorf("%s: %s is %v, want %v", when, name, got, w)
		}
	}
	if t.Failed() {
		for _, name := range slices.Sorted(maps.Keys(shown)) {
			t.Logf("%s %v", name, shown[name])
		}
		t.FailNow()
	}
}

// holder is a client that tells metrics of an election "leader".
func holder(w *tenuretest.World, name string, edit ...func(*tenure.Options)) (*tenuretest.Client, *tenureprom.Metrics) {
	m := tenureprom.New(&tenureprom.Options{Elections: []string{"leader"}})
	attach := func(o *tenure.Options) { m.Attach(o) }
	return w.Client(name, append(slices.Clone(edit), attach)...), m
}

const settle = 100 * time.Millisecond

func ended(end string) string {
	return fmt.Sprintf("tenure_tenures_ended_total{end=%s,name=leader}", end)
}
