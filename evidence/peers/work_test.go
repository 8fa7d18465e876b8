// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peers_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/holds"
	"github.com/tenurelock/tenure/evidence/peers/peertest"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// Two processes of one kind contend for a lock for a while. What they logged
// must not overlap, which is also what the rig's larger test rests on.
func TestWork(t *testing.T) {
	const duration = 3 * time.Second
	eachKind(t, func(t *testing.T, p *peers.Program, tb *peertest.Table) {
		log := filepath.Join(t.TempDir(), "holds")
		var calls []*peers.Call
		for _, owner := range []string{"first", "second"} {
			calls = append(calls, tb.Start(t, p, owner, lease, heartbeat).Begin(wire.Request{
				Command: wire.Work, Name: "x", Log: log, DeleteOnRelease: aws.Bool(false),
				DurationMs: duration.Milliseconds(), HoldMs: 50, PauseMs: 50, RefreshMs: aws.Int64(20),
			}))
		}
		var acquired int64
		for _, c := range calls {
			a, err := peertest.Result(t, c)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", *a.Counts)
			if a.Counts.Acquired == 0 || a.Counts.Errors > 0 || a.Counts.Released != a.Counts.Acquired {
				t.Errorf("counts: %+v", *a.Counts)
			}
			acquired += a.Counts.Acquired
		}
		file, err := os.Open(log)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		all, err := holds.Read(file, nil)
		if err != nil || int64(len(all)) != acquired {
			t.Errorf("%d holds in the log, %d acquired, %v", len(all), acquired, err)
		}
		for _, problem := range holds.Wrong(all) {
			t.Error(problem)
		}
	})
}

func TestBuildsAtOnce(t *testing.T) {
	p := peertest.Need(t, peers.Java)
	began := time.Now()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			again, err := peers.BuildJava(t.Context())
			if err != nil || again.Kind != p.Kind {
				t.Errorf("build: %v", err)
			}
		})
	}
	wg.Wait()
	t.Logf("four builds of what is built: %v", time.Since(began))
}
