// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command load puts the same load on the lock service and on the JSON interfaces of etcd
// and, where its program is named, Consul: pairs of acquire and release, hand-overs,
// heartbeats, and many locks held at once.
//
//	go run ./evidence/load -json evidence/load/results.json -markdown docs/evidence/performance.md
//
// All servers are processes of their own, started here with empty data on the disk; the
// callers are goroutines of this one, with plain HTTP/1.1 on connections that are kept. The
// peers take turns within each round, so that a ratio is of two runs within seconds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/bed/proc"
)

// command is what the page says it is made by.
const command = "make load"

func main() { proc.Main("load", run) }

// size is how much is done.
type size struct {
	Rounds    int           `json:"rounds"`
	Length    time.Duration `json:"length"`     // of a run of pairs, and of heartbeats
	HandOvers int           `json:"hand_overs"` // a round
	Beating   int           `json:"beating"`    // locks whose heartbeats are sent as fast as it goes
	Held      int           `json:"held"`       // locks that are held at once
	Hold      time.Duration `json:"hold"`       // how long
	Lease     time.Duration `json:"lease"`
	callers   []int         // of pairs
}

var (
	ordinary = size{Rounds: 5, Length: 1500 * time.Millisecond, HandOvers: 60, Beating: 1000, Held: 10_000, Hold: 30 * time.Second, Lease: time.Minute, callers: []int{1, 16, 64}}
	small    = size{Rounds: 1, Length: 300 * time.Millisecond, HandOvers: 3, Beating: 20, Held: 200, Hold: time.Second, Lease: time.Minute, callers: []int{1, 4}}
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		etcd   = flags.String("etcd", "", "the `program` etcd (default: the one that scripts/engines installs)")
		consul = flags.String("consul", "", "the `program` consul; without it there is none beside")
		quick  = flags.Bool("quick", false, "look whether all of it works")
		toJSON = flags.String("json", "", "write what was found to this `file`")
		toPage = flags.String("markdown", "", "write the tables into this `file`, between its marks")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	of := ordinary
	if *quick {
		of = small
	}
	dir, err := os.MkdirTemp("", "tenure-load-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &report{Date: time.Now().UTC().Format(time.DateTime) + " UTC", Machine: machine.Here(), Size: of, Figures: map[string]map[string][]float64{}}
	peers, err := open(ctx, dir, *etcd, *consul, of.Lease, r)
	defer func() {
		for _, p := range peers {
			p.close()
		}
	}()
	if err != nil {
		return err
	}
	if err := measure(ctx, peers, of, r, stderr); err != nil {
		return err
	}
	r.Machine.LoadAfter = machine.Load()
	if err := page.Publish(r, r.markdown(), command, stdout, *toJSON, *toPage); err != nil {
		return err
	}
	if r.Wrong > 0 {
		return fmt.Errorf("%d times a lock was granted while it was held, or a heartbeat of a held lock was refused", r.Wrong)
	}
	return nil
}
