// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Lease is how long the ways of FailOver let a dead holder keep the lock, where that can
// be set: the lease, or the time-out of a session.
const Lease = 5 * time.Second

// What a holder's process is told by its environment, and what it says.
const (
	holderOf  = "TENURE_BENCH_HOLDER" // the way, if it is one
	inherited = "TENURE_BENCH_"       // and the name of what is inherited
	says      = "has the lock"
)

// Inherited returns what make returns, and the same in the processes that FailOver starts.
func Inherited(b *testing.B, name string, make func() string) string {
	b.Helper()
	if value := os.Getenv(inherited + name); value != "" {
		return value
	}
	value := make()
	b.Setenv(inherited+name, value)
	return value
}

// FailOver measures from the SIGKILL of the process of a holder to the grant at another
// client, which waits. The processes are the test's binary, with the same benchmark. The
// metric is the one time, if b.N is 1, or the mean.
func FailOver(b *testing.B, ways ...Way) {
	for _, way := range ways {
		name := "fail-over-" + way.Name
		if os.Getenv(holderOf) == way.Name {
			b.Run(way.Name, func(b *testing.B) {
				if err := way.Client(b)(name).Take(b.Context()); err != nil {
					b.Fatal(err)
				}
				fmt.Fprintln(os.Stdout, says)
				select {} // until it is killed
			})
		}
		if os.Getenv(holderOf) != "" {
			continue
		}
		b.Run(way.Name, func(b *testing.B) {
			to := way.Client(b)(name)
			var took time.Duration
			n := 0
			for b.Loop() {
				n++
				holder := startHolder(b, way.Name)
				granted := make(chan error, 1)
				go func() { granted <- to.Take(b.Context()) }()
				<-time.After(settled)
				begun := time.Now()
				if err := holder.Process.Kill(); err != nil {
					b.Fatal(err)
				}
				if err := <-granted; err != nil {
					b.Fatal(err)
				}
				took += time.Since(begun)
				_ = holder.Wait() // it was killed
				if err := to.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(took.Microseconds())/float64(n), "µs-failover")
			b.ReportMetric(0, "ns/op") // mostly the start of processes
		})
	}
}

// startHolder starts a process that takes the lock, and waits until it has it.
func startHolder(b *testing.B, way string) *exec.Cmd {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	benchmark, _, _ := strings.Cut(b.Name(), "/")
	holder := exec.Command(os.Args[0], "-test.run", "^$", "-test.bench", "^"+benchmark+"$/^"+way+"$", "-test.benchtime", "1x")
	holder.Env = append(os.Environ(), holderOf+"="+way)
	holder.Stderr = os.Stderr
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = holder.Process.Kill() })
	defer stop()
	b.Cleanup(func() { _ = holder.Process.Kill() })
	var all strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), says) {
			return holder
		}
		fmt.Fprintln(&all, lines.Text())
	}
	b.Fatalf("the process that was to hold the lock says:\n%s", all.String())
	return nil
}
