// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureprom_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/tenureprom"
)

func Example() {
	ctx := context.Background()
	store := memstore.New()

	metrics := tenureprom.New(&tenureprom.Options{Elections: []string{"scheduler"}})
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	options := tenure.Options{LeaseDuration: 15 * time.Second}
	metrics.Attach(&options) // keeps an OnEvent that is there
	client, err := tenure.New(store, &options)
	if err != nil {
		log.Fatal(err)
	}

	campaign, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- client.Election("scheduler", nil).Run(campaign, func(ctx context.Context, _ *tenure.Lease) error {
			<-ctx.Done()
			return nil
		})
	}()
	status := "leader_election_master_status{"
	for !strings.Contains(shown(registry, status), "} 1") {
		<-time.After(time.Millisecond)
	}
	fmt.Println(shown(registry, status))
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	if err := client.Close(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(shown(registry, status))
	// Output:
	// leader_election_master_status{name="scheduler"} 1
	// leader_election_master_status{name="scheduler"} 0
}

// shown returns the line of a scrape that begins so.
func shown(registry *prometheus.Registry, begin string) string {
	answer := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", nil)
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, request)
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), begin) {
			return lines.Text()
		}
	}
	return ""
}

func ExampleLocks() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	locks, err := tenureprom.NewLocks(client, &tenureprom.LocksOptions{Leaders: []string{"scheduler"}})
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(locks)

	watching, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- locks.Run(watching, nil) }()
	for shown(registry, "tenure_lock_held{") == "" {
		<-time.After(time.Millisecond)
	}
	fmt.Println(shown(registry, "tenure_store_up"))
	fmt.Println(shown(registry, "tenure_lock_held{"))
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	if err := client.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// tenure_store_up 1
	// tenure_lock_held{name="scheduler"} 0
}
