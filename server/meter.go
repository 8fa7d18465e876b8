// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// meter counts what the server does. It knows no names: each label has few values. Its
// methods may be called concurrently.
type meter struct {
	mu       sync.Mutex
	calls    map[answered]uint64
	took     map[string]*histogram // by route
	waits    map[string]int        // by what waits
	beats    map[string]uint64     // by what became of them
	beatTook histogram
	refusals map[string]uint64 // by why

	grants, discards, unusedGrants uint64
	offered                        map[offered]struct{} // and no heartbeat has come yet
	due                            []due                // of these and others, in their order
}

// answered is the key under which an answer is counted.
type answered struct {
	route  string
	status int
}

// offered is a grant that no heartbeat has followed yet, through this server.
type offered struct {
	name  string
	token uint64
}

// due is when a grant is freed.
type due struct {
	of offered
	at time.Time
}

// maxOffered bounds how many grants are watched. Further ones are not.
const maxOffered = 20_000

func newMeter(routes map[string]*route) *meter {
	m := &meter{
		offered: map[offered]struct{}{},
		calls:   map[answered]uint64{}, took: map[string]*histogram{},
		waits:    map[string]int{"acquire": 0, "drain": 0, "events": 0, "request": 0},
		beats:    map[string]uint64{"renewed": 0, "lost": 0, "unknown": 0, "refused": 0},
		refusals: map[string]uint64{"host": 0, "origin": 0, "token": 0, "token_limit": 0, "right": 0, "limit": 0},
	}
	for _, path := range slices.Sorted(maps.Keys(routes)) {
		m.took[path] = &histogram{}
	}
	return m
}

func (m *meter) answered(route string, status int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[answered{route, status}]++
	if h := m.took[route]; h != nil {
		h.add(took)
	}
}

func (m *meter) waiting(what string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits[what] += n
}

func (m *meter) refused(why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refusals[why]++
}

// beat counts a heartbeat that was sent to the store, and how long that took.
func (m *meter) beat(err error, took time.Duration) {
	what := "unknown"
	switch {
	case err == nil:
		what = "renewed"
	case errors.Is(err, tenure.ErrInvalid):
		what = "refused"
	case errors.Is(err, tenure.ErrLost):
		what = "lost"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beats[what]++
	if what != "refused" {
		m.beatTook.add(took)
	}
}

// granted counts a grant, and watches whether a heartbeat follows.
func (m *meter) granted(g wire.Grant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.settle(now)
	m.grants++
	if len(m.due) < maxOffered {
		of := offered{g.Name, g.Token}
		m.offered[of] = struct{}{}
		m.due = append(m.due, due{of, now.Add(time.Duration(g.FreeAfterMs) * time.Millisecond)})
	}
}

// used says that a holder has shown life, or released the lock, through this server.
func (m *meter) used(name string, token uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.offered, offered{name, token})
}

// discarded counts a grant that could not be sent.
func (m *meter) discarded(g wire.Grant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.discards++
	delete(m.offered, offered{g.Name, g.Token})
}

// settle counts the grants whose time is up. The caller holds the mutex.
func (m *meter) settle(now time.Time) {
	n := 0
	for n < len(m.due) && !now.Before(m.due[n].at) {
		if _, unused := m.offered[m.due[n].of]; unused {
			m.unusedGrants++
			delete(m.offered, m.due[n].of)
		}
		n++
	}
	m.due = slices.Delete(m.due, 0, n)
}

// bounds are the upper bounds of a histogram's buckets, in seconds.
var bounds = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

// histogram counts durations.
type histogram struct {
	buckets [len(bounds) + 1]uint64 // the last one: longer than all bounds
	sum     time.Duration
}

func (h *histogram) add(d time.Duration) {
	i, _ := slices.BinarySearch(bounds[:], d.Seconds())
	h.buckets[i]++
	h.sum += d
}

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
	family(w, "tenure_server_call_seconds", "histogram", "How long calls took, including waiting, by route.")
	for _, route := range slices.Sorted(maps.Keys(m.took)) {
		m.took[route].write(w, "tenure_server_call_seconds", fmt.Sprintf("route=%q", route))
	}
	labelled(w, "tenure_server_waits", "gauge", "Calls that are waiting, by what they wait for.", "for", m.waits)
	labelled(w, "tenure_server_heartbeats_total", "counter", "Heartbeats of holders, by result.",
		"result", m.beats)
	family(w, "tenure_server_heartbeat_seconds", "histogram", "How long the store took for a heartbeat, including those "+
		"without an answer.")
	m.beatTook.write(w, "tenure_server_heartbeat_seconds", "")
	single(w, "tenure_server_grants_total", "counter", "Locks that were granted.", m.grants)
	single(w, "tenure_server_grants_discarded_total", "counter", "Locks that were freed at once because the grant "+
		"could not be sent.", m.discards)
	single(w, "tenure_server_grants_unused_total", "counter", "Locks without a heartbeat through this server "+
		"in time. It frees them, unless a heartbeat came through another server, or the client may count the grant.", m.unusedGrants)
	labelled(w, "tenure_server_refused_total", "counter", "Calls that were refused, by reason.", "reason", m.refusals)
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
