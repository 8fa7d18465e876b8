// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peers_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// Two processes of one kind contend for a lock for a while. What they logged
// must not overlap, which is also what the rig's larger test rests on.
func TestWork(t *testing.T) {
	const duration = 3 * time.Second
	eachKind(t, func(t *testing.T, p *peers.Program, tb *table) {
		log := filepath.Join(t.TempDir(), "holds")
		var calls []*peers.Call
		for _, owner := range []string{"first", "second"} {
			calls = append(calls, tb.open(t, p, owner).Begin(wire.Request{
				Command: wire.Work, Name: "x", Log: log, DeleteOnRelease: aws.Bool(false),
				DurationMs: duration.Milliseconds(), HoldMs: 50, PauseMs: 50, RefreshMs: aws.Int64(20),
			}))
		}
		var acquired int64
		for _, c := range calls {
			a, err := peers.Result(t, c)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", *a.Counts)
			if a.Counts.Acquired == 0 || a.Counts.Errors > 0 || a.Counts.Released != a.Counts.Acquired {
				t.Errorf("counts: %+v", *a.Counts)
			}
			acquired += a.Counts.Acquired
		}
		if holds := readLog(t, log); int64(holds) != acquired {
			t.Errorf("%d holds in the log, %d acquired", holds, acquired)
		}
	})
}

// readLog checks that the holds in a log do not overlap and counts them. The
// lines of one lock come in the order of its holds: an end is written before the
// release that lets the next begin.
func readLog(t *testing.T, name string) (holds int) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var (
		holder string
		last   int64
	)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var (
			what, owner string
			ns          int64
		)
		if _, err := fmt.Sscanf(lines.Text(), "%s %s %d", &what, &owner, &ns); err != nil {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
		switch {
		case ns < last:
			t.Errorf("%s: before the line above it, %d", lines.Text(), last)
		case what == wire.LogBegin && holder == "":
			holder = owner
		case what == wire.LogEnd && holder == owner:
			holder = ""
			holds++
		default:
			t.Errorf("%s: while %q holds", lines.Text(), holder)
		}
		last = ns
	}
	if holder != "" {
		t.Errorf("%s never ended", holder)
	}
	return holds
}

func TestBuildsAtOnce(t *testing.T) {
	p := peers.Need(t, peers.Java)
	began := time.Now()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			again, err := peers.Build(t.Context(), peers.Java)
			if err != nil || again.Kind != p.Kind {
				t.Errorf("build: %v", err)
			}
		})
	}
	wg.Wait()
	t.Logf("four builds of what is built: %v", time.Since(began))
}
