// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// metrics is GET /metrics.
func (c *call) metrics() error {
	if !c.s.o.PublicMetrics {
		if err := c.needsPrincipal("the metrics"); err != nil {
			return err
		}
	}
	var text strings.Builder
	c.s.meter.write(&text, c.s.waits.closed())
	c.w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	return c.sendBytes(200, []byte(text.String()))
}

// write writes all in the text format of Prometheus.
func (m *meter) write(w io.Writer, draining bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(time.Now())

	family(w, "tenure_server_calls_total", "counter", "Calls that were answered, by route and status.")
	for _, a := range slices.SortedFunc(maps.Keys(m.calls), func(a, b answered) int {
		return strings.Compare(a.route+strconv.Itoa(a.status), b.route+strconv.Itoa(b.status))
	}) {
		fmt.Fprintf(w, "tenure_server_calls_total{route=%q,status=\"%d\"} %d\n", a.route, a.status, m.calls[a])
	}
	family(w, "tenure_server_call_seconds", "histogram", "How long calls took, waiting included, by route.")
	for _, route := range slices.Sorted(maps.Keys(m.took)) {
		m.took[route].write(w, "tenure_server_call_seconds", fmt.Sprintf("route=%q", route))
	}
	labelled(w, "tenure_server_waits", "gauge", "Calls that wait now, by what they wait for.", "for", m.waits)
	labelled(w, "tenure_server_heartbeats_total", "counter", "Heartbeats of holders, by what became of them.",
		"result", m.beats)
	family(w, "tenure_server_heartbeat_seconds", "histogram", "How long the store took for a heartbeat, those "+
		"without an answer included.")
	m.beatTook.write(w, "tenure_server_heartbeat_seconds", "")
	single(w, "tenure_server_grants_total", "counter", "Locks that were granted.", m.grants)
	single(w, "tenure_server_grants_discarded_total", "counter", "Locks that were freed at once, because the grant "+
		"could not be sent.", m.discards)
	single(w, "tenure_server_grants_unused_total", "counter", "Locks of which no heartbeat came through this server "+
		"in time. It frees them, unless one came through another server.", m.unusedGrants)
	labelled(w, "tenure_server_refused_total", "counter", "Calls that were refused, by why.", "reason", m.refusals)
	shut := 0
	if draining {
		shut = 1
	}
	single(w, "tenure_server_draining", "gauge", "1 while the server is shutting down.", shut)
}

func family(w io.Writer, name, kind, help string) {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func single[N int | uint64](w io.Writer, name, kind, help string, n N) {
	family(w, name, kind, help)
	fmt.Fprintf(w, "%s %d\n", name, n)
}

func labelled[N int | uint64](w io.Writer, name, kind, help, label string, of map[string]N) {
	family(w, name, kind, help)
	for _, value := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(w, "%s{%s=%q} %d\n", name, label, value, of[value])
	}
}

// write writes a histogram; label is "" or one of its own.
func (h *histogram) write(w io.Writer, name, label string) {
	all, more := "", ""
	if label != "" {
		all, more = "{"+label+"}", label+","
	}
	n := uint64(0)
	for i, count := range h.buckets {
		n += count
		bound := "+Inf"
		if i < len(bounds) {
			bound = strconv.FormatFloat(bounds[i], 'g', -1, 64)
		}
		fmt.Fprintf(w, "%s_bucket{%sle=%q} %d\n", name, more, bound, n)
	}
	fmt.Fprintf(w, "%s_sum%s %v\n%s_count%s %d\n", name, all, h.sum.Seconds(), name, all, n)
}
