// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package launcher installs the engines that the tests run on, and starts servers of them
// on free ports of the loopback interface. [Kinds] is the table of all engines; [Server]
// and [Process] run one server. Both scripts/engines and the tests that have servers of
// their own use it.
package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Patience bounds how long a server may take to answer after its start.
const Patience = time.Minute

// politely is how long a server may take to end before it is killed.
const politely = 5 * time.Second

// Port returns a port of the loopback interface that nobody listens on. A server that is
// not up yet, or that is started again, has to find it free: it is none of those that the
// system gives to connections, which begin at 32768 on Linux.
func Port() (int, error) {
	const first, last, tries = 12000, 32000, 100
	var err error
	for range tries {
		port := first + rand.IntN(last-first)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// Server is what starts one server of an engine.
type Server struct {
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// Dir is where the server runs; if empty, where this process does. A Dir of its own
	// tells which processes are the server's.
	Dir string
	// User is as whom the server runs if this process is root.
	User string
	// Port is where the server listens, if it is to be checked that no other process does.
	Port int
	// Ready returns an error until the server answers.
	Ready func() error
	// Stop is the signal that ends the server. If nil, it is SIGTERM.
	Stop os.Signal
}

func (s Server) command() (*exec.Cmd, error) {
	cmd := exec.Command(s.Args[0], s.Args[1:]...)
	cmd.Env, cmd.Dir = append(os.Environ(), s.Env...), s.Dir
	return cmd, bind(cmd, s.User)
}

// Run runs the command to its end. The error has what it prints.
func (s Server) Run() error {
	cmd, err := s.command()
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s, as user %q in %s: %w\n%s", s.Args[0], s.User, s.Dir, err, out)
	}
	return nil
}

// Process is a server that was started. Its methods may be called concurrently.
type Process struct {
	Server
	// Ended is closed when the first process of the server has ended.
	Ended <-chan struct{}

	cmd *exec.Cmd
	log string
}

// ErrEnded says that a server ended before it answered. Another process may have its port.
var ErrEnded = errors.New("it ended")

// Start starts the server, which adds what it prints to the file log, and does not wait
// until it answers.
func (s Server) Start(log string) (*Process, error) {
	cmd, err := s.command()
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() //nolint:errcheck // the process has it
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // ProcessState has it
	}()
	return &Process{Server: s, Ended: ended, cmd: cmd, log: log}, nil
}

// PID returns the number of the server's first process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// HasEnded says whether the server's first process has ended.
func (p *Process) HasEnded() bool {
	select {
	case <-p.Ended:
		return true
	default:
		return false
	}
}

// Await waits until the server answers. The error says what the server is, where its log
// is, and how the log ends.
func (p *Process) Await(ctx context.Context) error {
	var why error
	end := time.Now().Add(Patience)
	for ; time.Now().Before(end); time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // a process of its own
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case p.HasEnded():
			return p.says(fmt.Errorf("%w: %v", ErrEnded, p.cmd.ProcessState))
		}
		if why = p.listens(); why == nil {
			why = p.Ready()
		}
		if why == nil {
			return nil
		}
	}
	return p.says(fmt.Errorf("it does not answer within %v: %w", Patience, why))
}

// says adds to an error which server it is of, and the end of its log.
func (p *Process) says(err error) error {
	const end = 2000
	log, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s: %w; its log %s ends:\n%s", p.Args[0], err, p.log, log[max(0, len(log)-end):])
}

// listens returns an error if another process than the server has its port: that one may
// answer as well. It is known on Linux alone.
func (p *Process) listens() error {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil || p.Port == 0 {
		return nil //nolint:nilerr // not Linux
	}
	inode := ""
	for line := range strings.Lines(string(table)) {
		// Its second field is the local address, the fourth the state: 0A listens.
		if f := strings.Fields(line); len(f) > 9 && f[1] == fmt.Sprintf("0100007F:%04X", p.Port) && f[3] == "0A" {
			inode = f[9]
		}
	}
	if inode == "" {
		return fmt.Errorf("nobody listens at port %d", p.Port)
	}
	files := fmt.Sprintf("/proc/%d/fd", p.PID())
	open, err := os.ReadDir(files)
	if err != nil {
		return err // as if it has just ended
	}
	for _, file := range open {
		if link, err := os.Readlink(filepath.Join(files, file.Name())); err == nil && link == "socket:["+inode+"]" {
			return nil
		}
	}
	return fmt.Errorf("another process listens at port %d", p.Port)
}

// Signal sends a signal to the server's first process, unless that one has ended.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// End has the server end, and returns when no process of it is left.
func (p *Process) End() {
	stop := p.Stop
	if stop == nil {
		stop = syscall.SIGTERM
	}
	_ = p.Signal(stop) // where there are no signals it is killed
	select {
	case <-p.Ended:
	case <-time.After(politely):
	}
	p.Kill()
}

// Kill ends the server by SIGKILL, and returns when no process of it is left.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.Ended
	if p.Dir == "" {
		return
	}
	end := time.Now().Add(politely)
	for ; time.Now().Before(end); time.Sleep(5 * time.Millisecond) { //nolint:forbidigo // processes of their own
		// Those of PostgreSQL end by themselves when the first one has, but while they are stopped.
		left := Processes(p.Dir)
		if len(left) == 0 {
			return
		}
		Signal(slices.Collect(maps.Keys(left)), os.Kill)
	}
}

// Processes returns the processes that run in a folder, and whether all threads of each are
// stopped. It finds those on Linux alone. Processes of PostgreSQL have sessions of their
// own, and only this in common.
func Processes(dir string) map[int]bool {
	found := map[int]bool{}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	all, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is a good one
	for _, cwd := range all {
		if in, err := os.Readlink(cwd); err != nil || in != dir {
			continue
		}
		process := filepath.Dir(cwd)
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			continue
		}
		going := false
		threads, _ := filepath.Glob(process + "/task/*/stat") // as above
		for _, thread := range threads {
			// The state follows the name, which is in brackets and may hold others.
			stat, err := os.ReadFile(thread)
			state := stat[bytes.LastIndexByte(stat, ')')+1:]
			going = going || err == nil && !bytes.HasPrefix(state, []byte(" T"))
		}
		if len(threads) > 0 { // or it has ended
			found[pid] = !going
		}
	}
	return found
}

// Signal sends a signal to processes. Those that have ended meanwhile do not matter.
func Signal(pids []int, s os.Signal) {
	for _, pid := range pids {
		if process, err := os.FindProcess(pid); err == nil {
			_ = process.Signal(s)
		}
	}
}
