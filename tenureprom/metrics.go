// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureprom

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/telemetry"
)

// Options for [New].
type Options struct {
	// Elections are the locks for which leader_election_master_status is shown: 1 while
	// this program holds the lock, else 0, from the start. They are labels by their names.
	Elections []string

	// Locks are more locks that are labels by their names.
	Locks []string

	// Label returns the label of a lock, in all metrics but leader_election_master_status.
	// Locks with one label are counted together. It must return few different strings: a
	// Prometheus server keeps dozens of series for each. It may be called concurrently. If
	// nil, a lock that is in Elections or Locks has its name, and all others have "other".
	Label func(lock string) string
}

// Metrics are the metrics of the leases of one client, and of the workers of package shard
// on it. It is a [prometheus.Collector]. Its methods may be called concurrently.
type Metrics struct {
	elections []string
	label     func(string) string
	shards    *shards

	account *telemetry.Account

	mu       sync.Mutex // guards what follows
	timing   telemetry.Timing
	attached bool
	known    map[string]bool // labels whose counters have begun

	acquired, ended, late, jeopardy, timeouts, failed, sessions *prometheus.CounterVec
	waits                                                       *prometheus.HistogramVec
	heartbeats                                                  prometheus.Histogram
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// New returns metrics to register, and to attach to the options of a client: one for
// each client of the program. Options may be nil.
func New(o *Options) *Metrics {
	if o == nil {
		o = new(Options)
	}
	m := &Metrics{
		elections: slices.Compact(slices.Sorted(slices.Values(o.Elections))),
		label:     telemetry.Names(o.Label, o.Elections, o.Locks),
		known:     map[string]bool{},
		account:   telemetry.NewAccount(),
		shards:    newShards(),
		acquired:  counter("tenure_acquired_total", "Terms of this program that began.", "name"),
		ended:     counter("tenure_tenures_ended_total", "Terms of this program that ended, by how.", "name", "end"),
		late:      counter("tenure_heartbeats_late_total", "Heartbeats that were confirmed when less than the grace of the lease was left before the deadline. A session's have no name.", "name"),
		jeopardy:  counter("tenure_jeopardy_total", "How often heartbeats began to fail. A session's have no name.", "name"),
		timeouts:  counter("tenure_stop_timeouts_total", "Terms whose work did not stop in time: another holder may have begun beside it.", "name"),
		failed:    counter("tenure_store_errors_total", "Requests of acquires that failed.", "name"),
		sessions:  counter("tenure_sessions_ended_total", "Sessions of this program that ended, by how.", "end"),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tenure_acquire_wait_seconds", Help: "From the call of an acquire until the lock was taken.", Buckets: telemetry.WaitBuckets(),
		}, []string{"name"}),
		heartbeats: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tenure_heartbeat_seconds", Help: "How long the store took to confirm a heartbeat.", Buckets: telemetry.Buckets(),
		}),
	}
	for _, names := range [][]string{o.Elections, o.Locks} {
		for _, name := range names {
			m.begin(m.label(name))
		}
	}
	return m
}

// Attach makes a client with these options feed the metrics. The options' own OnEvent
// is called, too. Call it once, before [tenure.New], and set the durations of the
// options before it: the grace and the lease duration are metrics as well.
func (m *Metrics) Attach(o *tenure.Options) {
	m.mu.Lock()
	m.timing, m.attached = telemetry.TimingOf(o), true
	m.mu.Unlock()
	own := o.OnEvent
	if own == nil {
		o.OnEvent = m.OnEvent
		return
	}
	o.OnEvent = func(e tenure.Event) {
		m.OnEvent(e)
		own(e)
	}
}

// begin starts the counters of a label at 0: Prometheus sees the first increase of a
// counter only if it has seen the counter before.
func (m *Metrics) begin(label string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known[label] {
		return
	}
	m.known[label] = true
	for _, c := range []*prometheus.CounterVec{m.acquired, m.late, m.jeopardy, m.timeouts, m.failed} {
		c.WithLabelValues(label)
	}
	for _, end := range telemetry.Ends {
		m.ended.WithLabelValues(label, end)
	}
}

// OnEvent takes an event of the client. It is for programs that call it from an OnEvent of
// their own; others use [Metrics.Attach]. It is quick, and sends nothing.
func (m *Metrics) OnEvent(e tenure.Event) {
	label := ""
	if e.Lock != "" {
		label = m.label(e.Lock)
		m.begin(label)
	}
	change := m.account.Take(e)
	switch {
	case change.End == "":
	case e.Lock == "":
		m.sessions.WithLabelValues(change.End).Inc()
	default:
		m.ended.WithLabelValues(label, change.End).Inc()
	}
	if change.Late {
		m.late.WithLabelValues(label).Inc()
	}
	if change.Latency {
		m.heartbeats.Observe(e.Took.Seconds())
	}
	switch e.Kind {
	case tenure.EventAcquired:
		m.acquired.WithLabelValues(label).Inc()
		m.waits.WithLabelValues(label).Observe(e.Took.Seconds())
	case tenure.EventJeopardy:
		m.jeopardy.WithLabelValues(label).Inc()
	case tenure.EventStopTimeout:
		m.timeouts.WithLabelValues(label).Inc()
	case tenure.EventStoreError:
		m.failed.WithLabelValues(label).Inc()
	}
}

// Descriptions of what is computed at each scrape.
var (
	statusDesc    = desc("leader_election_master_status", "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.", "name")
	heldDesc      = desc("tenure_held", "How many locks of this name this program holds: leases whose deadline has not passed.", "name")
	tokenDesc     = desc("tenure_token", "The fencing token of the lock that this program holds; the highest one of several locks.", "name")
	remainingDesc = desc("tenure_remaining_seconds", "Time until the deadline of the lease; the least of several locks.", "name")
	slackDesc     = desc("tenure_slack_seconds", "Time until the deadline of the lease, less its grace; the least of several locks.", "name")
	shareDesc     = desc("tenure_busy_share", "The busy share of the last whole period, of holders that use Lease.Do; the highest of several locks.", "name")
	openDesc      = desc("tenure_sessions_open", "Sessions of this program whose deadline has not passed.")
	droppedDesc   = desc("tenure_events_dropped_total", "Events that were dropped because a callback was slow. The metrics do not count them.")
	leaseDesc     = desc("tenure_lease_seconds", "The lease duration of the client.")
	graceDesc     = desc("tenure_grace_seconds", "The grace of the client: the time between a deadline and the instant at which another process can begin.")
	deadlineDesc  = desc("tenure_deadline_seconds", "How long after a heartbeat was sent its lease reaches the deadline.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.acquired, m.ended, m.late, m.jeopardy, m.timeouts, m.failed, m.sessions, m.waits, m.heartbeats}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(to)
	}
	for _, d := range []*prometheus.Desc{statusDesc, heldDesc, tokenDesc, remainingDesc, slackDesc, shareDesc, openDesc, droppedDesc, leaseDesc, graceDesc, deadlineDesc} {
		to <- d
	}
	m.shards.describe(to)
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(to)
	}
	now := time.Now()
	m.mu.Lock()
	timing, attached, known := m.timing, m.attached, maps.Clone(m.known)
	m.mu.Unlock()
	held := m.account.Held(now)
	for label, s := range telemetry.Summary(held, m.label, known) {
		gauge(to, heldDesc, float64(s.Leases), label)
		if s.Leases > 0 {
			gauge(to, tokenDesc, float64(s.Token), label)
			gauge(to, remainingDesc, s.Remaining.Seconds(), label)
			gauge(to, slackDesc, s.Slack.Seconds(), label)
		}
		if s.Busy {
			gauge(to, shareDesc, s.Share, label)
		}
	}
	leads := map[string]bool{}
	for _, h := range held {
		leads[h.Lock] = true
	}
	for _, name := range m.elections {
		gauge(to, statusDesc, bit(leads[name]), name)
	}
	gauge(to, openDesc, float64(m.account.Sessions(now)))
	to <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, float64(m.account.Missed()))
	if attached {
		gauge(to, leaseDesc, timing.Lease.Seconds())
		gauge(to, graceDesc, timing.Grace.Seconds())
		gauge(to, deadlineDesc, timing.Deadline.Seconds())
	}
	m.shards.collect(to)
}

func gauge(to chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func bit(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
