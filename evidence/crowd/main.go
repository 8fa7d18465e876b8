// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command crowd holds many locks under one session, in one process, and fails
// unless that takes one write a heartbeat and loses none.
//
//	scripts/engines run dynoxide -- go run ./evidence/crowd -locks 100000 -for 5m
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/keepers"
	"github.com/tenurelock/tenure/evidence/peers/serve"
)

func main() {
	proc.Play(serve.Roles)
	proc.Main("crowd", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("crowd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		engine = flags.String("engine", os.Getenv(dynamo.EngineEnv), "the `URL` of a DynamoDB engine")
		locks  = flags.Int("locks", 100_000, "hold so many `locks`: exit with status 1 unless each heartbeat is one write, none is lost, and fewer than 50 goroutines are seen")
		quick  = flags.Bool("quick", false, "look whether all of it works: with a long lease")
		size   = keepers.Ordinary
	)
	flags.DurationVar(&size.Hold, "for", 5*time.Minute, "how long to hold them")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *engine == "" {
		return dynamo.NoEngine("crowd")
	}
	if *quick {
		size.Timing, size.Delay = keepers.Lenient.Timing, keepers.Lenient.Delay
	}
	table, err := dynamo.NewTable(ctx, dynamo.Connect(*engine), "tenure-crowd")
	if err != nil {
		return err
	}
	counted, err := gate.NewMetered(*engine)
	if err != nil {
		return errors.Join(err, table.Drop(ctx))
	}
	err = accept(ctx, table, counted, *engine, *locks, size, stdout)
	counted.Close()
	if err == nil {
		err = checkSizes(ctx, table)
	}
	return errors.Join(err, table.Drop(ctx))
}

// checkSizes checks what the rule for units takes for granted.
func checkSizes(ctx context.Context, table *dynamo.Table) error {
	sizes, err := table.Sizes(ctx)
	for _, n := range sizes {
		if n > gate.MaxItem {
			return fmt.Errorf("an item has %d bytes: the rule for units is for %d at most", n, gate.MaxItem)
		}
	}
	return err
}

// accept says whether it is as it must be.
func accept(ctx context.Context, table *dynamo.Table, counted *gate.HTTP, engine string, locks int, size keepers.Size, out io.Writer) error {
	here := machine.Here()
	name, err := machine.Engine(ctx, engine)
	if err != nil {
		return err
	}
	h, err := keepers.Hold(ctx, peers.Tenure, locks, counted, table.Name, size)
	if h == nil || h.Hold.Took == 0 {
		return err
	}
	fmt.Fprintf(out, "%d locks under one session, %v, %v added to each request, on %s\n", locks, size.Timing, size.Delay, name)
	fmt.Fprintf(out, "%s; %s; load at the start and the end %s, %s\n\n", here.CPU, here.System, here.LoadBefore, machine.Load())
	for _, line := range lines(h) {
		fmt.Fprintf(out, "%-34s %s\n", line[0], line[1])
	}
	missed := h.Missed()
	if err != nil {
		missed = append(missed, err.Error())
	}
	if len(missed) > 0 {
		fmt.Fprintf(out, "\nMISSED: %s\n", strings.Join(missed, "; "))
		return errors.New("the goal was missed")
	}
	fmt.Fprintf(out, "\nas it must be: one write a heartbeat, no lock lost, fewer than %d goroutines, closed in one write\n", keepers.MostGoroutines)
	return nil
}

// lines returns what was found, each with a name.
func lines(h *keepers.Holding) [][2]string {
	return [][2]string{
		{"time to take them", fmt.Sprintf("%.1f s, %.0f a second, %s requests", h.Acquire.Took, float64(h.Locks)/h.Acquire.Took, page.Amount(h.Acquiring.Requests))},
		{"held for", fmt.Sprintf("%.1f s, %.0f heartbeat periods", h.Hold.Took, h.Periods)},
		{"requests meanwhile", fmt.Sprintf("%.0f: %s", h.Holding.Requests*h.Periods, h.Holding.Over(1/h.Periods).Operations(0))},
		{"writes a heartbeat period", fmt.Sprintf("%.3f", h.Holding.WriteUnits)},
		{"locks lost", fmt.Sprint(h.Hold.Lost)},
		{"goroutines, at most", fmt.Sprint(h.Hold.Goroutines)},
		{"processor", fmt.Sprintf("%.2f s a minute", h.CPUMinute())},
		{"memory a lock", fmt.Sprintf("%.0f bytes of heap, %.0f resident", h.PerLock(h.Acquire.Heap), h.PerLock(h.Acquire.RSS))},
		{"closed with", fmt.Sprintf("%.0f requests: %s; in %.2f s", h.Closing.Requests, h.Closing.Operations(0), h.Close.Took)},
	}
}
