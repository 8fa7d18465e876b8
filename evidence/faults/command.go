// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
)

// tickRole is that of a command for others to run: it lays its process id down in
// the file that tickEnv names, and over and over the instant. SIGTERM ends it.
const (
	tickRole = "tick"
	tickEnv  = "TENURE_FAULTS_TICK"
)

// tickBound ends a command that nobody ends.
const tickBound = time.Minute

func tick(io.Reader, io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, tickBound)
	defer cancel()
	at, err := proc.Map(os.Getenv(tickEnv), 16)
	if err != nil {
		return err
	}
	binary.NativeEndian.PutUint64(at, uint64(os.Getpid()))
	for wait.For(ctx, time.Millisecond) == nil {
		binary.NativeEndian.PutUint64(at[8:], uint64(proc.Monotonic()))
	}
	return nil
}

// lockCommand is a program that runs a command under a lock.
type lockCommand struct {
	name, pkg string
	args      func(s *scene, endpoint, lock string) []string
}

var (
	tenureRun = &lockCommand{
		"tenure run", "github.com/tenurelock/tenure/cmd/tenure",
		func(s *scene, endpoint, lock string) []string {
			return []string{"run", "--quiet", "--store", s.url(endpoint), "--lease", s.lease.String(), lock, "--"}
		},
	}
	etcdctlLock = &lockCommand{
		"etcdctl lock", "go.etcd.io/etcd/etcdctl/v3",
		func(s *scene, endpoint, lock string) []string {
			return []string{"--endpoints", endpoint, "lock", "--ttl", strconv.Itoa(int(s.lease / time.Second)), lock, "--"}
		},
	}
)

// program is where the program is, once it is built.
func (c *lockCommand) program(dir string) string {
	return filepath.Join(dir, "command-"+strings.Fields(c.name)[0])
}

// buildCommands builds those of the columns.
func (r *rig) buildCommands(ctx context.Context, chosen []column) error {
	built := map[*lockCommand]bool{nil: true}
	for _, c := range chosen {
		if built[c.command] {
			continue
		}
		built[c.command] = true
		file := c.command.program(r.dir)
		if _, err := proc.Run(ctx, "", "go", "build", "-buildvcs=false", "-o", file, c.command.pkg); err != nil {
			return err
		}
	}
	return nil
}

// running is a program that runs a command under a lock.
type running struct {
	*proc.Process
	ticks []byte
}

func (s *scene) runs(address, lock string) (*running, error) {
	file, err := writeFile(s.dir, "ticks-", "")
	if err != nil {
		return nil, err
	}
	ticks, err := proc.Map(file, 16)
	if err != nil {
		return nil, err
	}
	endpoint, err := s.endpoint(address)
	if err != nil {
		return nil, err
	}
	args := append([]string{s.command.program(s.dir)}, s.command.args(s, endpoint, lock)...)
	// The program hands the environment on to its command, which is this one again.
	p, err := proc.Start(proc.Command{Args: append(args, s.program), Role: tickRole, Env: []string{tickEnv + "=" + file}})
	return &running{p, ticks}, err
}

// last is the last instant at which the command ran; zero if it has not begun.
func (r *running) last() int64 { return int64(binary.NativeEndian.Uint64(r.ticks[8:])) }

// end ends the command, and returns when the program has ended, too.
func (r *running) end(ctx context.Context) {
	if pid := int(binary.NativeEndian.Uint64(r.ticks)); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGTERM) // an error means that it has ended
	}
	wait.Unless(10*time.Second, r.Exited(), ctx.Done())
	r.Kill()
}

// childAfterLoss cuts off a program that runs a command under a lock.
func childAfterLoss(ctx context.Context, s *scene) (cell, error) {
	// For how long a command may go on beside its successor before it is taken for one that
	// goes on for ever.
	const beside = 3 * time.Second
	if s.command == nil {
		return lacking("has no program that runs a command"), nil
	}
	g, err := s.gate("faults-command")
	if err != nil {
		return cell{}, err
	}
	defer g.Close()
	lock := s.lock()
	first, err := s.runs(g.Address(), lock)
	if err != nil {
		return cell{}, err
	}
	defer first.end(ctx)
	if err := wait.Until(ctx, "the command begins", func() bool { return first.last() > 0 }); err != nil {
		return cell{}, err
	}
	second, err := s.runs(s.direct, lock)
	if err != nil {
		return cell{}, err
	}
	defer second.end(ctx)
	if err := wait.For(ctx, s.beat()); err != nil {
		return cell{}, err
	}
	g.BlackHole()
	began := int64(0)
	err = wait.Until(ctx, "the other command begins", func() bool {
		began = second.last()
		return began > 0
	})
	if err == nil {
		err = wait.For(ctx, beside)
	}
	if err != nil {
		return cell{}, err
	}
	gap := milliseconds(began - first.last())
	g.Heal()
	first.end(ctx)
	status := first.State().ExitCode()
	seen := fmt.Sprintf("ended %s before its successor began; exit status %d", length(gap), status)
	if gap <= 0 {
		seen = fmt.Sprintf("ran on beside its successor, for the %s that were looked at; exit status %d after it ended",
			length(-gap), status)
	}
	return judged(gap > 0, []float64{gap}, "`%s`: the command %s", s.command.name, seen), nil
}
