// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command bench measures Tenure beside two other lock clients, cirello.io/dynamolock
// and com.amazonaws:dynamodb-lock-client, on one DynamoDB engine in one run.
//
//	eval "$(scripts/engines up dynoxide)"
//	go run ./bench -json bench/results.json -markdown docs/performance.md
//	go run ./bench -sessions 100000 -for 5m
//
// The second one holds that many locks under one session, and fails unless that
// takes one write a heartbeat and loses none.
//
// The clients run as processes, each kind behind a proxy of its own that counts
// its requests; from these follow units and prices. Throughput alone is measured
// without the proxy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/tenurelock/tenure/internal/testbed"
	"github.com/tenurelock/tenure/interop/peer"
)

// engineEnv names the endpoint of the engine, as scripts/engines prints it.
const engineEnv = "TENURE_TEST_DYNOXIDE"

func main() {
	if os.Getenv(serveEnv) != "" {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench: serve:", err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(crowdEnv) != "" {
		if err := serveCrowd(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench: crowd:", err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(shardEnv) != "" {
		if err := serveShard(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench: shard:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		small   = flags.Bool("quick", false, "look whether all of it works; the times mean nothing then")
		toJSON  = flags.String("json", "", "write what was found to this `file`")
		toPage  = flags.String("markdown", "", "write the tables into this `file`, between its marks")
		engine  = flags.String("engine", os.Getenv(engineEnv), "the `URL` of a DynamoDB engine")
		clients = flags.String("clients", strings.Join(clientNames, ","), "which clients to measure")
		list    = flags.String("steps", stepNames(), "which steps to make")
		many    = flags.Int("sessions", 0, "hold so many `locks` under one session, and nothing else: exit with status 1 unless each heartbeat is one write, none is lost, and fewer than 50 goroutines are seen")
		spread  = flags.String("shards", "", "make these `parts` of what is measured of package shard (sqlite, dynamodb, simulator), and nothing else: exit with status 1 unless no partition is ever owned twice, and all are owned again in time")
		howLong = flags.Duration("for", 5*time.Minute, "how long -sessions holds them")
		folder  = flags.String("profiles", "", "have the processes that hold many locks write profiles into this `folder`")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	steps, err := chosen(*list)
	if err != nil {
		return err
	}
	if *engine == "" {
		return fmt.Errorf("there is no engine: %s is not set; scripts/engines run dynoxide -- go run ./bench starts one", engineEnv)
	}
	began := time.Now()
	r := &rig{engine: *engine, db: connect(*engine), size: full}
	if *small {
		r.size = quick
	}
	r.size.crowd.profiles = *folder
	r.report = &report{
		Date: began.UTC().Format(time.DateTime) + " UTC", Machine: testbed.Here(), Clients: map[string]string{}, Quick: *small,
		Units: unitRule, Prices: priceSource,
	}
	r.say = func(format string, args ...any) { fmt.Fprintf(stderr, "bench: "+format+"\n", args...) }
	if r.report.Engine, err = testbed.Engine(ctx, *engine); err != nil {
		return err
	}
	if *spread != "" {
		return shards(ctx, r, *spread, *toJSON, *toPage, stdout)
	}
	if *many > 0 {
		return acceptance(ctx, r, *many, *howLong, stdout)
	}
	if r.clients, err = build(ctx, strings.Split(*clients, ",")); err != nil {
		return err
	}
	for _, c := range r.clients {
		r.report.Order = append(r.report.Order, c.name)
	}
	if err := r.make(ctx, steps); err != nil {
		return err
	}
	r.report.Largest, r.report.Took = r.largest, time.Since(began).Seconds()
	r.report.Machine.LoadAfter = testbed.Load()
	return r.report.write(stdout, *toJSON, *toPage)
}

// build makes the programs of the clients.
func build(ctx context.Context, names []string) (clients []client, err error) {
	for _, name := range names {
		var c client
		switch name {
		case tenureName:
			c = tenureClient()
		case dynamolockName:
			c, err = peerClient(ctx, peer.Dynamolock)
		case javaName:
			c, err = peerClient(ctx, peer.Java)
		default:
			err = fmt.Errorf("there is no client %q; there are %s", name, strings.Join(clientNames, ","))
		}
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

// Marks of the part of a page that is made from a run.
const (
	beginMark = "<!-- made by make bench, from here -->\n"
	endMark   = "<!-- to here -->\n"
)

// write writes the tables to stdout, or to a page, and everything as JSON.
func (r *report) write(stdout io.Writer, toJSON, toPage string) error {
	return publish(r, r.markdown(), beginMark, stdout, toJSON, toPage)
}

// publish writes tables to stdout, or to a page after the line that begins their
// place, and what they are made of as JSON.
func publish(found any, tables, begin string, stdout io.Writer, toJSON, toPage string) error {
	if toJSON != "" {
		text, err := json.MarshalIndent(found, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(toJSON, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if toPage == "" {
		_, err := io.WriteString(stdout, tables)
		return err
	}
	page, err := os.ReadFile(toPage)
	if err != nil {
		return err
	}
	before, rest, begun := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, endMark)
	if !begun || !ended {
		return fmt.Errorf("%s has no place for the tables, between the lines %q and %q", toPage, strings.TrimSpace(begin), strings.TrimSpace(endMark))
	}
	return os.WriteFile(toPage, []byte(before+begin+"\n"+tables+"\n"+endMark+after), 0o644)
}
