// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/tenureprom"
)

type exporterCmd struct {
	Names    []string       `arg:"" optional:""`
	Leader   []string       `sep:"none" placeholder:"NAME"`
	Prefix   []string       `sep:"none" placeholder:"PREFIX"`
	Listen   string         `placeholder:"HOST:PORT" default:"127.0.0.1:8369"` // next to the port of tenured
	Refresh  *time.Duration `must:"be a period"`
	Discover *time.Duration `must:"be a period"`
	Max      *int
	Holder   *string
	storeFlags
	Quiet bool `short:"q"`
}

// holderLabels are what --holder shows of the holder of a lock.
var holderLabels = map[string]func(tenure.Status) string{
	"host":  func(st tenure.Status) string { return st.Host },
	"label": func(st tenure.Status) string { return st.Label },
	"owner": func(st tenure.Status) string { return st.Owner },
	"none":  func(tenure.Status) string { return "" },
}

// scrapesAtOnce and scrapeTimeout bound what scrapes cost. A scrape sends no request to the
// store.
const (
	scrapesAtOnce = 8
	scrapeTimeout = 10 * time.Second
)

// Run serves the metrics of locks until a signal.
func (f *exporterCmd) Run(c *console, rest operands) error {
	f.Names = append(f.Names, rest.words...)
	o, err := f.options()
	if err != nil {
		return err
	}
	v, err := f.client(c, nil, nil)
	if err != nil {
		return err
	}
	defer v.close()
	locks, err := tenureprom.NewLocks(v.client, o)
	if err != nil {
		return usage("%w", err)
	}
	listener, err := net.Listen("tcp", f.Listen)
	if err != nil {
		return storeFailed(fmt.Errorf("--listen: %w", err))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(locks)
	server := &http.Server{
		Handler: exporterPages(registry), ReadHeaderTimeout: scrapeTimeout,
		ReadTimeout: scrapeTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 16,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	c.say("serving http://%s/metrics", listener.Addr())

	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	polled := make(chan error, 1)
	trouble := &outages{console: c}
	go func() { polled <- locks.Run(ctx, func(err error) { trouble.tell(err) }) }()
	select {
	case err = <-served: // no client can connect any more
		err = fmt.Errorf("--listen: %w", err)
		cancel()
		err = errors.Join(err, <-polled)
	case err = <-polled: // nil after a signal
	}
	bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), scrapeTimeout)
	defer stop()
	if server.Shutdown(bounded) != nil {
		_ = server.Close()
	}
	if err != nil {
		return storeFailed(err)
	}
	return nil
}

func exporterPages(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: scrapesAtOnce,
		Timeout:             scrapeTimeout, EnableOpenMetrics: true,
	}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "tenure exporter: the metrics are at /metrics")
	})
	return mux
}

// options finds what is wrong with the command line before a store is touched.
func (f *exporterCmd) options() (*tenureprom.LocksOptions, error) {
	if len(f.Names)+len(f.Leader)+len(f.Prefix) == 0 {
		return nil, usage("no locks named: give NAMEs, --leader or --prefix; --prefix '' is all locks")
	}
	if err := check(tenure.Options{}, append(f.Names, f.Leader...)...); err != nil {
		return nil, err
	}
	o := &tenureprom.LocksOptions{
		Names: f.Names, Leaders: f.Leader, Prefixes: f.Prefix,
		Interval: valueOf(f.Refresh), Discover: valueOf(f.Discover),
	}
	if f.Max != nil {
		if o.Max = *f.Max; o.Max < 1 {
			return nil, usage("--max %d must be at least 1", o.Max)
		}
	}
	if f.Holder != nil {
		if o.Holder = holderLabels[*f.Holder]; o.Holder == nil {
			return nil, usage("--holder %.20q: want host, label, owner or none", *f.Holder)
		}
	}
	if _, _, err := net.SplitHostPort(f.Listen); err != nil {
		return nil, usage("--listen %.60q is not an address: write HOST:PORT, such as 127.0.0.1:8369", f.Listen)
	}
	return o, nil
}
