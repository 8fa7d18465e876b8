// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureotel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/telemetry"
	"github.com/tenurelock/tenure/shard"
)

const scope = "github.com/tenurelock/tenure/tenureotel"

// Attributes of metrics and spans.
const (
	lockKey  = attribute.Key("tenure.lock")
	tokenKey = attribute.Key("tenure.token")
	ownerKey = attribute.Key("tenure.owner")
	endKey   = attribute.Key("tenure.end")
	groupKey = attribute.Key("tenure.group")
	kindKey  = attribute.Key("tenure.kind")
)

// Options for [New].
type Options struct {
	// MeterProvider and TracerProvider get the metrics and the spans. If nil, they are the
	// global ones.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider

	// Locks are attributes of metrics by their names.
	Locks []string

	// Label returns the attribute tenure.lock of a lock in metrics. Locks with one label are
	// counted together. It must return few different strings, and may be called
	// concurrently. If nil, a lock that is in Locks has its name, and all others have
	// "other". Spans have the name itself.
	Label func(lock string) string

	// NoSpans makes no spans.
	NoSpans bool
}

// Telemetry makes metrics and spans of what happens to the leases of one client, and to the
// workers of package shard on it. Its methods may be called concurrently.
type Telemetry struct {
	label   func(string) string
	meter   metric.Meter
	tracer  trace.Tracer
	spans   *spans // nil without spans
	account *telemetry.Account

	acquired, ended, late, jeopardy, timeouts, failed, sessions, shardEvents metric.Int64Counter
	waits, heartbeats                                                        metric.Float64Histogram

	registered metric.Registration

	mu     sync.Mutex
	known  map[string]bool // labels that are shown even if nothing is held
	groups map[string]*shard.Group
}

// New returns telemetry to attach to the options of a client: one for each client of
// the program. Options may be nil. An error is one of the provider.
func New(o *Options) (*Telemetry, error) {
	if o == nil {
		o = new(Options)
	}
	meters, tracers := o.MeterProvider, o.TracerProvider
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	t := &Telemetry{
		label: telemetry.Names(o.Label, o.Locks), meter: meters.Meter(scope), tracer: tracers.Tracer(scope),
		account: telemetry.NewAccount(),
		known:   map[string]bool{}, groups: map[string]*shard.Group{},
	}
	if !o.NoSpans {
		t.spans = &spans{tracer: t.tracer, open: map[string]*held{}}
	}
	for _, name := range o.Locks {
		t.known[t.label(name)] = true
	}
	return t, t.instruments()
}

// instruments makes all instruments of the meter.
func (t *Telemetry) instruments() error {
	var errs []error
	counter := func(to *metric.Int64Counter, name, unit, what string) {
		var err error
		*to, err = t.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
	}
	histogram := func(to *metric.Float64Histogram, name, what string, bounds []float64) {
		var err error
		*to, err = t.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
	}
	counter(&t.acquired, "tenure.acquired", "{tenure}", "Terms of this program that began.")
	counter(&t.ended, "tenure.ended", "{tenure}", "Terms of this program that ended, by how.")
	counter(&t.late, "tenure.heartbeat.late", "{heartbeat}", "Heartbeats that were confirmed when less than the grace of the lease was left before the deadline.")
	counter(&t.jeopardy, "tenure.jeopardy", "{event}", "How often heartbeats began to fail.")
	counter(&t.timeouts, "tenure.stop_timeout", "{tenure}", "Terms whose work did not stop in time.")
	counter(&t.failed, "tenure.store_error", "{request}", "Requests of acquires that failed.")
	counter(&t.sessions, "tenure.session.ended", "{session}", "Sessions of this program that ended, by how.")
	counter(&t.shardEvents, "tenure.shard.event", "{event}", "What happened to a worker.")
	histogram(&t.waits, "tenure.acquire.wait", "From the call of an acquire until the lock was taken.", telemetry.WaitBuckets())
	histogram(&t.heartbeats, "tenure.heartbeat.duration", "How long the store took to confirm a heartbeat.", telemetry.Buckets())
	errs = append(errs, t.observe())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("tenureotel: %w", err)
	}
	return nil
}

// observe reports the state at each collection.
func (t *Telemetry) observe() error {
	var errs []error
	gauge := func(name, unit, what string) metric.Int64ObservableGauge {
		g, err := t.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return g
	}
	decimal := func(name, unit, what string) metric.Float64ObservableGauge {
		g, err := t.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return g
	}
	heldNow := gauge("tenure.held", "{lease}", "Leases of this program whose deadline has not passed.")
	token := gauge("tenure.token", "1", "The fencing token of the lease; the highest one of several.")
	remaining := decimal("tenure.remaining", "s", "Time until the deadline; the least of several.")
	slack := decimal("tenure.slack", "s", "Time until the deadline, less the grace of the lease; the least of several.")
	share := decimal("tenure.busy_share", "1", "The busy share of the last whole period; the highest of several.")
	open := gauge("tenure.session.open", "{session}", "Sessions of this program whose deadline has not passed.")
	parts := gauge("tenure.shard.held", "{partition}", "Partitions that this worker has.")
	planned := gauge("tenure.shard.planned", "{partition}", "Partitions that this worker is to have.")
	dropped, err := t.meter.Int64ObservableCounter("tenure.events.dropped", metric.WithUnit("{event}"), metric.WithDescription("Events that were dropped because a callback was slow."))
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	t.registered, err = t.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		known, groups := t.state()
		now := time.Now()
		for label, s := range telemetry.Summary(t.account.Held(now), t.label, known) {
			at := metric.WithAttributes(lockKey.String(label))
			to.ObserveInt64(heldNow, int64(s.Leases), at)
			if s.Leases > 0 {
				to.ObserveInt64(token, int64(s.Token), at)
				to.ObserveFloat64(remaining, s.Remaining.Seconds(), at)
				to.ObserveFloat64(slack, s.Slack.Seconds(), at)
			}
			if s.Busy {
				to.ObserveFloat64(share, s.Share, at)
			}
		}
		to.ObserveInt64(open, int64(t.account.Sessions(now)))
		to.ObserveInt64(dropped, int64(t.account.Missed()))
		for name, g := range groups {
			n, at := g.Stats(), metric.WithAttributes(groupKey.String(name))
			to.ObserveInt64(parts, int64(n.Held), at)
			to.ObserveInt64(planned, int64(n.Planned), at)
		}
		return nil
	}, heldNow, token, remaining, slack, share, open, parts, planned, dropped)
	return err
}

func (t *Telemetry) state() (map[string]bool, map[string]*shard.Group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.known), maps.Clone(t.groups)
}

// Close has the provider ask no more. Spans of leases that are held end.
func (t *Telemetry) Close() error {
	if t.spans != nil {
		t.spans.close()
	}
	if err := t.registered.Unregister(); err != nil {
		return fmt.Errorf("tenureotel: %w", err)
	}
	return nil
}

// Attach has a client that is made with the options feed the telemetry. What the options
// have as OnEvent is called, too. Call it once, before [tenure.New].
func (t *Telemetry) Attach(o *tenure.Options) {
	own := o.OnEvent
	if own == nil {
		o.OnEvent = t.OnEvent
		return
	}
	o.OnEvent = func(e tenure.Event) {
		t.OnEvent(e)
		own(e)
	}
}

// OnEvent takes an event of the client. It is for programs that call it from an OnEvent of
// their own; others use [Telemetry.Attach].
func (t *Telemetry) OnEvent(e tenure.Event) {
	ctx := context.Background() // an event belongs to no call
	at := metric.WithAttributes()
	t.mu.Lock()
	var lock []attribute.KeyValue
	if e.Lock != "" {
		label := t.label(e.Lock)
		t.known[label] = true
		lock = []attribute.KeyValue{lockKey.String(label)}
		at = metric.WithAttributes(lock...)
	}
	t.mu.Unlock()
	change := t.account.Take(e)
	if change.End != "" {
		if e.Lock == "" {
			t.sessions.Add(ctx, 1, metric.WithAttributes(endKey.String(change.End)))
		} else {
			t.ended.Add(ctx, 1, metric.WithAttributes(append(lock, endKey.String(change.End))...))
		}
	}
	if change.Late {
		t.late.Add(ctx, 1, at)
	}
	if change.Latency {
		t.heartbeats.Record(ctx, e.Took.Seconds())
	}
	switch e.Kind {
	case tenure.EventAcquired:
		t.acquired.Add(ctx, 1, at)
		t.waits.Record(ctx, e.Took.Seconds(), at)
	case tenure.EventJeopardy:
		t.jeopardy.Add(ctx, 1, at)
	case tenure.EventStopTimeout:
		t.timeouts.Add(ctx, 1, at)
	case tenure.EventStoreError:
		t.failed.Add(ctx, 1, at)
	}
	if t.spans != nil {
		t.spans.take(e, change)
	}
}

// OnShardEvent takes an event of a worker: it is a value of [shard.Options.OnEvent], or is
// called from there.
func (t *Telemetry) OnShardEvent(e shard.Event) {
	t.shardEvents.Add(context.Background(), 1, metric.WithAttributes(groupKey.String(e.Group), kindKey.String(string(e.Kind))))
}

// WatchGroup shows the numbers of a worker, as [shard.Group.Stats] has them. Of two workers
// of one group the last one counts.
func (t *Telemetry) WatchGroup(g *shard.Group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.groups[g.Name()] = g
}
