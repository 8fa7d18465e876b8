// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureotel_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/tenureotel"
	"github.com/tenurelock/tenure/tenuretest"
)

// sdk is an SDK that keeps all it is told.
type sdk struct {
	t      *testing.T
	reader *metric.ManualReader
	spans  *tracetest.SpanRecorder
	*tenureotel.Telemetry
}

func newSDK(t *testing.T, o tenureotel.Options) *sdk {
	t.Helper()
	s := &sdk{t: t, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	o.MeterProvider = metric.NewMeterProvider(metric.WithReader(s.reader))
	o.TracerProvider = trace.NewTracerProvider(trace.WithSpanProcessor(s.spans))
	var err error
	if s.Telemetry, err = tenureotel.New(&o); err != nil {
		t.Fatal(err)
	}
	return s
}

// collect returns what is collected now, as "name{attribute=value,...}".
func (s *sdk) collect() map[string]float64 {
	s.t.Helper()
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(context.WithoutCancel(s.t.Context()), &all); err != nil {
		s.t.Fatal(err)
	}
	shown := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			key := func(set attribute.Set) string {
				return fmt.Sprintf("%s{%s}", m.Name, set.Encoded(attribute.DefaultEncoder()))
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					shown[key(p.Attributes)] = float64(p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					shown[key(p.Attributes)] = float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					shown[key(p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					shown[key(p.Attributes)+" count"], shown[key(p.Attributes)+" sum"] = float64(p.Count), p.Sum
				}
			default:
				s.t.Fatalf("%s: %T", m.Name, d)
			}
			if !strings.HasPrefix(m.Name, "tenure.") || m.Unit == "" || m.Description == "" {
				s.t.Errorf("%s: want the prefix tenure., a unit and a description", m.Name)
			}
		}
	}
	return shown
}

const absent = math.MaxFloat64

func (s *sdk) want(when string, wanted map[string]float64) {
	s.t.Helper()
	shown := s.collect()
	for name, w := range wanted {
		got, there := shown[name]
		if there == (w == absent) || there && math.Abs(got-w) > 1e-6 {
			s.t.Errorf("%s: %s is %v (there: %v), want %v", when, name, got, there, w)
		}
	}
	if s.t.Failed() {
		s.t.Fatalf("%v", shown)
	}
}

const settle = 100 * time.Millisecond

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSDK(t, tenureotel.Options{Locks: []string{"leader"}})
		var seen atomic.Int64
		c := tenuretest.New(t).Client("a", func(o *tenure.Options) { o.OnEvent = func(tenure.Event) { seen.Add(1) } }, s.Attach)
		s.want("at first", map[string]float64{"tenure.held{tenure.lock=leader}": 0, "tenure.token{tenure.lock=leader}": absent, "tenure.session.open{}": 0})
		lease, err := c.Acquire(t.Context(), "leader", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Acquire(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			_ = lease.Do(t.Context(), time.Second, func(context.Context) error { time.Sleep(time.Second); return nil })
			time.Sleep(time.Second)
		}
		s.want("held", map[string]float64{
			"tenure.held{tenure.lock=leader}": 1, "tenure.held{tenure.lock=other}": 1, "tenure.token{tenure.lock=leader}": 1,
			"tenure.remaining{tenure.lock=leader}": lease.Remaining().Seconds(), "tenure.slack{tenure.lock=leader}": (lease.Remaining() - lease.Timing().Grace).Seconds(),
			"tenure.busy_share{tenure.lock=leader}": 0.5,
			"tenure.acquired{tenure.lock=leader}":   1, "tenure.acquire.wait{tenure.lock=leader} count": 1, "tenure.heartbeat.duration{} sum": 0,
			"tenure.heartbeat.late{tenure.lock=leader}": absent, "tenure.events.dropped{}": 0,
		})
		c.Partition()
		time.Sleep(lease.Remaining() - 1700*time.Millisecond)
		c.Heal()
		time.Sleep(5 * time.Second)
		s.want("late", map[string]float64{"tenure.heartbeat.late{tenure.lock=leader}": 1, "tenure.jeopardy{tenure.lock=leader}": 1, "tenure.held{tenure.lock=leader}": 1})
		_ = lease.Release(t.Context())
		c.Partition()
		time.Sleep(time.Minute)
		s.want("ended", map[string]float64{
			"tenure.held{tenure.lock=leader}": 0, "tenure.held{tenure.lock=other}": 0, "tenure.ended{tenure.end=released,tenure.lock=leader}": 1,
			"tenure.ended{tenure.end=expired,tenure.lock=other}": 1, "tenure.stop_timeout{tenure.lock=other}": 1,
		})
		if seen.Load() < 50 {
			t.Errorf("the program's own callback saw %d events", seen.Load())
		}
		c.Heal()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s.want("closed", map[string]float64{"tenure.held{tenure.lock=leader}": absent})
	})
}

func TestSessionsAndShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSDK(t, tenureotel.Options{Label: func(lock string) string { before, _, _ := strings.Cut(lock, ":"); return before }})
		c := tenuretest.New(t).Client("a", s.Attach)
		g, err := shard.New(c.Client, "orders", &shard.Options{Partitions: 100, OnEvent: s.OnShardEvent})
		if err != nil {
			t.Fatal(err)
		}
		s.WatchGroup(g)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- g.Run(ctx, func(ctx context.Context, _ *shard.Partition) error { <-ctx.Done(); return nil })
		}()
		time.Sleep(time.Minute)
		s.want("held", map[string]float64{
			"tenure.shard.held{tenure.group=orders}": 100, "tenure.shard.planned{tenure.group=orders}": 100, "tenure.session.open{}": 1,
			"tenure.shard.event{tenure.group=orders,tenure.kind=assigned}": 100,
		})
		shown := s.collect()
		if n := shown["tenure.held{tenure.lock=orders}"]; n < 100 || n > 110 {
			t.Errorf("%v locks of the group are held", n)
		}
		if len(shown) > 40 {
			t.Errorf("100 partitions made %d series", len(shown))
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		s.want("closed", map[string]float64{"tenure.session.open{}": 0, "tenure.session.ended{tenure.end=released}": 1, "tenure.held{tenure.lock=orders}": 0})
	})
}

// told is a span in words.
func told(s trace.ReadOnlySpan) string {
	words := []string{s.Name()}
	for _, a := range s.Attributes() {
		words = append(words, string(a.Key)+"="+a.Value.String())
	}
	for _, e := range s.Events() {
		words = append(words, e.Name)
	}
	if s.Status().Code != codes.Unset {
		words = append(words, s.Status().Code.String()+": "+s.Status().Description)
	}
	return strings.Join(append(words, s.EndTime().Sub(s.StartTime()).String()), " ")
}

func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSDK(t, tenureotel.Options{})
		w := tenuretest.New(t)
		a, b := w.Client("a"), w.Client("b", s.Attach)
		first, err := a.Acquire(t.Context(), "leader", nil)
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan *tenure.Lease, 1)
		go func() {
			l, err := b.Acquire(t.Context(), "leader", nil)
			if err != nil {
				t.Error(err)
			}
			waiting <- l
		}()
		time.Sleep(time.Minute)
		_ = first.Release(t.Context())
		lease := <-waiting
		time.Sleep(time.Minute)
		_ = lease.Release(t.Context())
		time.Sleep(settle)
		if _, err := b.Acquire(t.Context(), "leader", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if n := len(s.spans.Started()) - len(s.spans.Ended()); n != 1 {
			t.Errorf("%d spans are open, want that of the lease", n)
		}
		b.Partition()
		time.Sleep(20 * time.Second)
		b.Heal()
		time.Sleep(time.Minute)
		_ = s.Close()
		var all []string
		for _, span := range s.spans.Ended() {
			if span.Parent().IsValid() {
				t.Errorf("%s has a parent", span.Name())
			}
			all = append(all, told(span))
		}
		want := []string{
			"tenure acquire tenure.lock=leader tenure.token=2 tenure.owner=b 1m0s",
			"tenure hold tenure.lock=leader tenure.token=2 tenure.owner=b tenure.end=released stopping 1m0s",
			"tenure acquire tenure.lock=leader tenure.token=3 tenure.owner=b 0s",
			"tenure hold tenure.lock=leader tenure.token=3 tenure.owner=b tenure.end=expired jeopardy lost stop_timeout Error: lease expired",
		}
		if len(all) != len(want) {
			t.Fatalf("spans:\n%s", strings.Join(all, "\n"))
		}
		for i, w := range want {
			if !strings.HasPrefix(all[i], w) {
				t.Errorf("span %d: %s, want %s", i, all[i], w)
			}
		}
	})
}

func TestNoSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSDK(t, tenureotel.Options{NoSpans: true})
		c := tenuretest.New(t).Client("a", s.Attach)
		lease, err := c.Acquire(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = lease.Release(t.Context())
		time.Sleep(settle)
		if n := len(s.spans.Started()); n > 0 {
			t.Errorf("%d spans", n)
		}
	})
}

// TestManySpans has more leases than spans may be open, one after the other.
func TestManySpans(t *testing.T) {
	s := newSDK(t, tenureotel.Options{})
	for i := range 10_050 {
		lock := fmt.Sprint("lock-", i)
		s.OnEvent(tenure.Event{Kind: tenure.EventAcquired, Lock: lock, Token: 1, Time: time.Now()})
		s.OnEvent(tenure.Event{Kind: tenure.EventReleased, Lock: lock, Token: 1, Time: time.Now()})
	}
	if n := len(s.spans.Ended()); n != 2*10_050 {
		t.Errorf("%d spans of 10050 leases", n)
	}
}

// TestGlobal uses the providers that the program has set, or none.
func TestGlobal(t *testing.T) {
	o, err := tenureotel.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	o.OnEvent(tenure.Event{Kind: tenure.EventAcquired, Lock: "x", Token: 1})
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
