// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureprom_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/tenureprom"
)

// TestService compares the metrics of the lock service with ours: one Prometheus has both. No
// name has two meanings, and heartbeats are counted in the same buckets.
func TestService(t *testing.T) {
	c, err := tenure.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
	principals, err := server.ParsePrincipals("ci secret-of-ci-0123456789 hold:jobs/")
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(c, server.Options{PublicMetrics: true, Principals: principals})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Shutdown(context.WithoutCancel(t.Context())) }()
	answer := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/metrics", nil)
	s.ServeHTTP(answer, request)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	service, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil || answer.Code != http.StatusOK || len(service) < 5 {
		t.Fatalf("the service's metrics: status %d, %d families, error %v", answer.Code, len(service), err)
	}

	own := tenureprom.New(&tenureprom.Options{Elections: []string{"x"}})
	own.OnEvent(tenure.Event{Kind: tenure.EventAcquired, Lock: "x", Token: 1})
	own.OnShardEvent(shard.Event{Kind: shard.EventMovedIn, Group: "g"})
	locks, err := tenureprom.NewLocks(c, &tenureprom.LocksOptions{Leaders: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := locks.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(own, locks)
	ours, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range ours {
		name := f.GetName()
		if service[name] != nil || strings.HasPrefix(name, "tenure_server_") {
			t.Errorf("%s is a name of the lock service's metrics", name)
		}
		if !strings.HasPrefix(name, "tenure_") && name != "leader_election_master_status" {
			t.Errorf("%s: want the prefix tenure_", name)
		}
		if name == "tenure_heartbeat_seconds" {
			if got, want := bounds(f), bounds(service["tenure_server_heartbeat_seconds"]); !slices.Equal(got, want) || len(got) < 5 {
				t.Errorf("heartbeats are counted up to %v, and by the lock service up to %v", got, want)
			}
		}
	}
}

// bounds are the finite bounds of a histogram's buckets.
func bounds(f *dto.MetricFamily) (list []float64) {
	for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
		if b.GetUpperBound() < 1e9 {
			list = append(list, b.GetUpperBound())
		}
	}
	return list
}
