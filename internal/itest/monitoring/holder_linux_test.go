// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package monitoring_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/tenureprom"
)

// holderStore and holderPort make this binary a program that campaigns.
const (
	holderStore = "TENURE_TEST_MONITORING_STORE"
	holderPort  = "TENURE_TEST_MONITORING_PORT"
)

func TestMain(m *testing.M) {
	if os.Getenv(holderStore) == "" {
		os.Exit(m.Run())
	}
	enginetest.DefaultSignals()
	if err := hold(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// What holders count with: failovers take some ten seconds, and a heartbeat may be a second
// and a half late without being near the grace.
const (
	lease       = 8 * time.Second
	heartbeat   = 600 * time.Millisecond
	grace       = 2500 * time.Millisecond
	stopTimeout = 3 * time.Second
)

// hold campaigns for the election "leader" until its standard input is closed. It serves its
// metrics, and does on request what nobody wants: /late has the next heartbeats be confirmed
// when less than the grace is left, /deaf has the work not stop when it is asked to.
func hold() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := pgstore.Open(ctx, os.Getenv(holderStore), nil)
	if err != nil {
		return err
	}
	defer store.Close()
	faults := faultstore.New(store, nil)
	metrics := tenureprom.New(&tenureprom.Options{Elections: []string{"leader"}})
	options := tenure.Options{LeaseDuration: lease, HeartbeatPeriod: heartbeat, Grace: grace, StopTimeout: stopTimeout}
	metrics.Attach(&options)
	c, err := tenure.New(faults.Driver(), &options)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()

	var now atomic.Pointer[tenure.Lease]
	var deaf atomic.Bool
	registry := client.NewRegistry()
	registry.MustRegister(metrics)
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	http.HandleFunc("/late", func(w http.ResponseWriter, _ *http.Request) {
		l := now.Load()
		if l == nil {
			http.Error(w, "no leader", http.StatusConflict)
			return
		}
		faults.SetBlackHole(true)
		for l.Check() == nil && l.Remaining() > grace-400*time.Millisecond {
			<-time.After(5 * time.Millisecond)
		}
		faults.SetBlackHole(false)
	})
	http.HandleFunc("/deaf", func(http.ResponseWriter, *http.Request) { deaf.Store(true) })
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv(holderPort))
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(listener, nil) }()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return c.Election("leader", nil).Run(ctx, func(ctx context.Context, l *tenure.Lease) error {
		now.Store(l)
		defer now.Store(nil)
		for ctx.Err() == nil {
			_ = l.Do(ctx, time.Second, func(context.Context) error { <-time.After(100 * time.Millisecond); return nil }) // it ends with ctx
			<-time.After(100 * time.Millisecond)
		}
		if deaf.CompareAndSwap(true, false) {
			<-time.After(3 * stopTimeout)
		}
		return nil
	})
}
