// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
)

// ticks is a command to run under a lock: it writes its process id into a file, and touches the
// file repeatedly. SIGTERM ends it, or the end of a minute.
const ticks = `trap 'exit 0' TERM
echo $$ >"$0"
n=0
while [ $n -lt 6000 ]; do n=$((n+1)); sleep 0.01; touch "$0"; done`

// lockCommand is a program that runs a command under a lock. Args begin with the program, and the
// command's own come behind them.
type lockCommand struct {
	name string
	args func(s *fixture, endpoint, lock string) []string
}

var (
	tenureRun = &lockCommand{"tenure run", func(s *fixture, endpoint, lock string) []string {
		return []string{s.tenure, "run", "--quiet", "--store", s.url(endpoint), "--lease", s.lease.String(), lock, "--"}
	}}
	etcdctlLock = &lockCommand{"etcdctl lock", func(s *fixture, endpoint, lock string) []string {
		program := must.Have(launcher.Program("etcd", "etcdctl"))
		ttl := strconv.Itoa(int(s.lease / time.Second))
		return []string{program, "--endpoints", endpoint, "lock", "--ttl", ttl, lock, "--"}
	}}
)

// running is a program that runs a command under a lock.
type running struct {
	*proc.Process
	ticks string
}

func (s *fixture) run(address, lock string) *running {
	file := filepath.Join(s.dir, "ticks-"+rand.Text())
	args := append(s.command.args(s, s.endpoint(address), lock), "sh", "-c", ticks, file)
	return &running{must.Have(proc.Start(proc.Command{Args: args})), file}
}

// last is the last instant at which the command ran; zero if it has not begun.
func (r *running) last() (at time.Time) {
	if info, err := os.Stat(r.ticks); err == nil {
		at = info.ModTime()
	}
	return at
}

// begins waits for the command, and returns when it has begun.
func (r *running) begins(ctx context.Context) time.Time {
	must.Do(wait.Until(ctx, "the command begins", func() bool { return !r.last().IsZero() }))
	return r.last()
}

// end ends the command, and returns when the program has ended, too.
func (r *running) end(ctx context.Context) {
	text, _ := os.ReadFile(r.ticks) // none, if it has not begun
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		_ = syscall.Kill(pid, syscall.SIGTERM) // an error means that it has ended
	}
	wait.Unless(10*time.Second, r.Ended, ctx.Done())
	r.Kill()
}

// childAfterLoss cuts off a program that runs a command under a lock.
func childAfterLoss(ctx context.Context, s *fixture) cell {
	// How long a command may run alongside its successor before it counts as running for
	// ever.
	const beside = 3 * time.Second
	if s.command == nil {
		return lacking("has no program that runs a command")
	}
	g := s.gate("faults-command")
	defer g.Close()
	lock := s.lock(ctx)
	first := s.run(g.Address(), lock)
	defer first.end(ctx)
	first.begins(ctx)
	second := s.run(s.direct, lock)
	defer second.end(ctx)
	must.Do(wait.For(ctx, s.beat()))
	g.BlackHole()
	began := second.begins(ctx)
	must.Do(wait.For(ctx, beside))
	gap := milliseconds(began.Sub(first.last()).Nanoseconds())
	g.Heal()
	first.end(ctx)
	status := first.State().ExitCode()
	seen := fmt.Sprintf("ended %s before its successor began; exit status %d", length(gap), status)
	if gap <= 0 {
		seen = fmt.Sprintf("still ran %s after its successor had begun; exit status %d", length(gap), status)
	}
	return judged(gap > 0, []float64{gap}, "`%s`: the command %s", s.command.name, seen)
}
