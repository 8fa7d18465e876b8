// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureprom

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenurelock/tenure/internal/telemetry"
	"github.com/tenurelock/tenure/shard"
)

// shards are the metrics of workers of package shard.
type shards struct {
	events *prometheus.CounterVec
	moves  *prometheus.HistogramVec

	mu     sync.Mutex
	groups map[string]*shard.Group
}

var (
	shardJoined     = desc("tenure_shard_joined", "1 while this worker is in the membership of the group.", "group")
	shardPlanned    = desc("tenure_shard_planned", "How many partitions this worker is to have by the plan.", "group")
	shardHeld       = desc("tenure_shard_held", "How many partitions this worker has, those that stop included.", "group")
	shardSurplus    = desc("tenure_shard_surplus", "How many partitions this worker has that others are to have.", "group")
	shardUnassigned = desc("tenure_shard_unassigned", "How many partitions of the group the plan gives to no worker.", "group")
	shardMembers    = desc("tenure_shard_members", "How many workers the plan of this worker gives partitions to.", "group")
	shardLeads      = desc("tenure_shard_coordinator", "1 while this worker writes the membership.", "group")
)

func newShards() *shards {
	return &shards{
		events: counter("tenure_shard_events_total", "What happened to this worker: events of package shard, by kind.", "group", "kind"),
		moves: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tenure_shard_move_seconds", Help: "From the request for a partition until this worker had it.", Buckets: telemetry.Buckets(),
		}, []string{"group"}),
		groups: map[string]*shard.Group{},
	}
}

// OnShardEvent takes an event of a worker: it is a value of [shard.Options.OnEvent], or is
// called from there.
func (m *Metrics) OnShardEvent(e shard.Event) {
	s := m.shards
	s.events.WithLabelValues(e.Group, string(e.Kind)).Inc()
	if e.Kind == shard.EventMovedIn {
		s.moves.WithLabelValues(e.Group).Observe(e.Took.Seconds())
	}
}

// WatchGroup shows the numbers of a worker, as [shard.Group.Stats] has them. Of two workers
// of one group the last one counts. Nothing is sent for them.
func (m *Metrics) WatchGroup(g *shard.Group) {
	s := m.shards
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups[g.Name()] = g
}

func (s *shards) describe(to chan<- *prometheus.Desc) {
	s.events.Describe(to)
	s.moves.Describe(to)
	for _, d := range []*prometheus.Desc{shardJoined, shardPlanned, shardHeld, shardSurplus, shardUnassigned, shardMembers, shardLeads} {
		to <- d
	}
}

func (s *shards) collect(to chan<- prometheus.Metric) {
	s.events.Collect(to)
	s.moves.Collect(to)
	s.mu.Lock()
	groups := maps.Clone(s.groups)
	s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		n := groups[name].Stats()
		gauge(to, shardJoined, bit(n.Joined), name)
		gauge(to, shardPlanned, float64(n.Planned), name)
		gauge(to, shardHeld, float64(n.Held), name)
		gauge(to, shardSurplus, float64(n.Surplus), name)
		gauge(to, shardUnassigned, float64(n.Unassigned), name)
		gauge(to, shardMembers, float64(n.Members), name)
		gauge(to, shardLeads, bit(n.Coordinator), name)
	}
}
