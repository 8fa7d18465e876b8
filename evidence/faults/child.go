// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
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
	file, err := os.OpenFile(os.Getenv(tickEnv), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < tickBound; {
		b := binary.NativeEndian.AppendUint64(nil, uint64(os.Getpid()))
		b = binary.NativeEndian.AppendUint64(b, uint64(proc.Monotonic()))
		if _, err := file.WriteAt(b, 0); err != nil {
			return err
		}
		if wait.For(ctx, checkPeriod) != nil {
			return nil
		}
	}
	return nil
}

// ticks reads what a command laid down. at is zero if it has not begun.
func ticks(name string) (pid int, at int64) {
	b, err := os.ReadFile(name)
	if err != nil || len(b) != 16 {
		return 0, 0
	}
	return int(binary.NativeEndian.Uint64(b)), int64(binary.NativeEndian.Uint64(b[8:]))
}

// commands are the programs that run a command under a lock.
var commands = map[string]struct {
	name, pkg string
	args      func(s *scene, endpoint, lock string) []string
}{
	tenureName: {"tenure run", "github.com/tenurelock/tenure/cmd/tenure", func(s *scene, endpoint, lock string) []string {
		return []string{"run", "--quiet", "--store", s.storeURL(endpoint), "--lease", s.lease.String(), lock, "--"}
	}},
	etcdName: {"etcdctl lock", "go.etcd.io/etcd/etcdctl/v3", func(s *scene, endpoint, lock string) []string {
		return []string{"--endpoints", endpoint, "lock", "--ttl", strconv.Itoa(int(s.lease / time.Second)), lock, "--"}
	}},
}

// programName is the name of the library whose program it is: Tenure's is one for all stores.
func (s *scene) programName() string {
	if s.isTenure() {
		return tenureName
	}
	return s.name
}

// storeURL is how Tenure's command names the store of the scene, by way of an endpoint.
func (s *scene) storeURL(endpoint string) string {
	if s.elsewhere() {
		return tenureStores[s.name].url(endpoint, s.place)
	}
	return "dynamodb://" + s.table.Name + "?region=" + dynamo.Region + "&endpoint=" + url.QueryEscape(endpoint)
}

// buildCommands builds them.
func (r *rig) buildCommands(ctx context.Context) error {
	for name, c := range commands {
		if _, err := proc.Run(ctx, "", "go", "build", "-buildvcs=false", "-o", filepath.Join(r.dir, "command-"+name), c.pkg); err != nil {
			return err
		}
	}
	return nil
}

// running is a program that runs a command under a lock.
type running struct {
	*proc.Process
	ticks string
}

func (s *scene) command(address, lock string) (*running, error) {
	file, err := os.CreateTemp(s.dir, "ticks-")
	if err != nil {
		return nil, err
	}
	_ = file.Close() // nothing was written
	endpoint, err := s.endpoint(address)
	if err != nil {
		return nil, err
	}
	program := s.programName()
	args := append([]string{filepath.Join(s.dir, "command-"+program)}, commands[program].args(s, endpoint, lock)...)
	// The program hands the environment on to its command, which is this one again.
	p, err := proc.Start(proc.Command{Args: append(args, s.program), Role: tickRole, Env: []string{tickEnv + "=" + file.Name()}})
	return &running{p, file.Name()}, err
}

// begins waits for the first tick, and returns when that was.
func (r *running) begins(ctx context.Context) (int64, error) {
	at := int64(0)
	err := wait.Until(ctx, "the command begins", func() bool {
		_, at = ticks(r.ticks)
		return at > 0
	})
	return at, err
}

// end ends the command, and returns when the program has ended, too.
func (r *running) end(ctx context.Context) error {
	if pid, _ := ticks(r.ticks); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGTERM) // an error means that it has ended
	}
	select {
	case <-r.Exited():
		return nil
	case <-time.After(endBound):
	case <-ctx.Done():
	}
	r.Kill()
	return errors.New("it did not end by itself")
}

const endBound = 10 * time.Second

// beside is for how long a command may go on beside its successor before it is
// taken for one that goes on for ever.
const beside = 3 * time.Second

// childAfterLoss cuts off a program that runs a command under a lock.
func childAfterLoss(ctx context.Context, s *scene) (cell, error) {
	c, found := commands[s.programName()]
	if !found {
		return cell{Verdict: none, Seen: "has no program that runs a command"}, nil
	}
	g, err := s.newGate()
	if err != nil {
		return cell{}, err
	}
	defer g.Close()
	direct, err := s.direct()
	if err != nil {
		return cell{}, err
	}
	name := s.lock()
	first, err := s.command(g.Address(), name)
	if err != nil {
		return cell{}, err
	}
	defer func() { _ = first.end(ctx) }() // it may have ended
	if _, err := first.begins(ctx); err != nil {
		return cell{}, err
	}
	second, err := s.command(direct, name)
	if err != nil {
		return cell{}, err
	}
	defer func() { _ = second.end(ctx) }() // the same
	if err := wait.For(ctx, s.beat()); err != nil {
		return cell{}, err
	}
	g.BlackHole()
	began, err := second.begins(ctx)
	if err != nil {
		return cell{}, err
	}
	if err := wait.For(ctx, beside); err != nil {
		return cell{}, err
	}
	_, last := ticks(first.ticks)
	gap := milliseconds(began - last)
	g.Heal()
	if err := first.end(ctx); err != nil {
		s.say("%s: %v", c.name, err)
	}
	status := first.State().ExitCode()
	seen := fmt.Sprintf("`%s`: the command ended %s before its successor began; exit status %d", c.name, length(gap), status)
	if gap <= 0 {
		seen = fmt.Sprintf("`%s`: the command ran on beside its successor, for the %s that were looked at; exit status %d after it ended", c.name, length(-gap), status)
	}
	return cell{Verdict: judge(gap > 0), Figures: []float64{gap}, Seen: seen}, nil
}
