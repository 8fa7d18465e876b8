// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureotel

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/telemetry"
)

// Names of spans.
const (
	acquireSpan = "tenure acquire"
	holdSpan    = "tenure hold"
)

// spans are the spans of the leases that are held.
type spans struct {
	tracer trace.Tracer

	mu   sync.Mutex
	open map[string]*held // by lock
}

// held is the span of a lease.
type held struct {
	span  trace.Span
	token uint64
	lost  bool
}

// maxSpans bounds how many spans are open at once. Further leases have none.
const maxSpans = 10_000

// take makes of an event a span, or an event of a span. What has no lock is a session's own.
func (s *spans) take(e tenure.Event, change telemetry.Change) {
	if e.Lock == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, at := context.Background(), trace.WithTimestamp(e.Time)
	h := s.open[e.Lock]
	if e.Kind == tenure.EventAcquired {
		if h != nil {
			if h.token >= e.Token {
				return
			}
			h.span.End(at) // nobody has told its end
		}
		attributes := trace.WithAttributes(lockKey.String(e.Lock), tokenKey.Int64(int64(e.Token)), ownerKey.String(e.Owner))
		_, waited := s.tracer.Start(ctx, acquireSpan, trace.WithNewRoot(), trace.WithTimestamp(e.Time.Add(-e.Took)), attributes)
		waited.End(at)
		delete(s.open, e.Lock)
		if len(s.open) < maxSpans {
			_, span := s.tracer.Start(ctx, holdSpan, trace.WithNewRoot(), at, attributes, trace.WithLinks(trace.Link{SpanContext: waited.SpanContext()}))
			s.open[e.Lock] = &held{span: span, token: e.Token}
		}
		return
	}
	if h == nil || h.token != e.Token {
		return
	}
	if change.End != "" {
		h.span.SetAttributes(endKey.String(change.End))
	}
	var why []attribute.KeyValue
	if e.Err != nil {
		why = []attribute.KeyValue{attribute.String("exception.message", e.Err.Error())}
	}
	switch e.Kind {
	case tenure.EventJeopardy, tenure.EventSafe, tenure.EventStopping, tenure.EventLost, tenure.EventStopTimeout:
		h.span.AddEvent(string(e.Kind), at, trace.WithAttributes(why...))
		if !h.lost && (e.Kind == tenure.EventLost || e.Kind == tenure.EventStopTimeout) {
			h.lost = true
			h.span.SetStatus(codes.Error, reason(e.Err))
		}
	case tenure.EventReleased, tenure.EventEnded:
		if (e.Kind == tenure.EventEnded || e.End == tenure.EndFailed) && !h.lost {
			h.span.SetStatus(codes.Error, reason(e.Err))
		}
		h.span.End(at)
		delete(s.open, e.Lock)
	}
}

func reason(err error) string {
	if err == nil {
		return "not released"
	}
	return err.Error()
}

// close ends all spans that are open.
func (s *spans) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for lock, h := range s.open {
		h.span.End()
		delete(s.open, lock)
	}
}
