// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package launcher installs the engines that the tests run on, and starts their servers
// on free ports of the loopback interface. [Kinds] is the table of all engines; [Server]
// and [Process] run one server. scripts/engines and the tests with servers of their own
// use it.
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
	"strconv"
	"syscall"
	"time"
)

// Patience bounds how long a server may take to answer after its start.
const Patience = time.Minute

// politely is how long a server may take to end before it is killed.
const politely = 5 * time.Second

// Port returns a free port of the loopback interface. It stays free for a server that is
// not up yet, or that is started again: no other process gets it from this function while
// this one lives (on Linux), and the system does not give it to connections, whose ports
// begin at 32768 there.
func Port() (int, error) {
	const first, last, tries = 12000, 32000, 100
	err := errors.New("no port is free")
	for range tries {
		port := first + rand.IntN(last-first)
		if !reserve(port) {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// ports returns so many ports: see [Port].
func ports(n int) (all []int, err error) {
	for len(all) < n && err == nil {
		var port int
		port, err = Port()
		all = append(all, port)
	}
	return all, err
}

// Server is what starts one server of an engine.
type Server struct {
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// Dir is where the server runs; if empty, where this process does. A Dir of its own
	// identifies the server's processes.
	Dir string
	// User is as whom the server runs if this process is root.
	User string
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

// Start starts the server, which adds what it prints to the file log, and does not wait
// until it answers.
func (s Server) Start(log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() //nolint:errcheck // the process has it
	p := &Process{log: log}
	return p, p.Begin(s, func(cmd *exec.Cmd) error {
		cmd.Stdout, cmd.Stderr = out, out
		return nil
	}, nil)
}

// Up starts the server, and waits until it answers. What is left of a killed process may have its
// port, so that it ends at once: then it is started again, for half of [Patience].
func (s Server) Up(ctx context.Context, log string) (*Process, error) {
	for end := time.Now().Add(Patience / 2); ; pause() {
		p, err := s.Start(log)
		if err != nil {
			return nil, err
		}
		if err = p.Await(ctx); err == nil {
			return p, nil
		}
		ended := p.HasEnded()
		p.Kill()
		if !ended || ctx.Err() != nil || time.Now().After(end) {
			return nil, err
		}
	}
}

// Begin starts the server with a prepared command, and calls over, which may be nil, when its first
// process has ended and its output was copied. It is for output that goes to the caller itself.
func (p *Process) Begin(s Server, prepare func(*exec.Cmd) error, over func()) error {
	cmd, err := s.command()
	if err == nil {
		err = prepare(cmd)
	}
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	p.Server, p.Ended, p.cmd = s, ended, cmd
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(ended)
		_ = cmd.Wait() // ProcessState has it
		if over != nil {
			over()
		}
	}()
	return nil
}

// PID returns the number of the server's first process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// State is how the first process ended, once it has.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

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
	for end := time.Now().Add(Patience); time.Now().Before(end); pause() {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case p.HasEnded():
			return p.says(fmt.Errorf("it ended: %v", p.cmd.ProcessState))
		}
		if why = p.Ready(); why == nil {
			return nil
		}
	}
	return p.says(fmt.Errorf("it does not answer within %v: %w", Patience, why))
}

func pause() { time.Sleep(5 * time.Millisecond) } //nolint:forbidigo // until processes of their own have done something

// says adds to an error which server it is of, and the end of its log.
func (p *Process) says(err error) error {
	const end = 2000
	log, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s: %w; its log %s ends:\n%s", p.Args[0], err, p.log, log[max(0, len(log)-end):])
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
	_ = p.Hang()             // of several processes none does anything once another has ended
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.Ended
	for end := time.Now().Add(politely); time.Now().Before(end); pause() {
		left := p.Processes()
		if len(left) == 0 {
			return
		}
		signal(left, os.Kill)
	}
}

// Hang stops all processes of the server, and returns when they are: the kernel stops threads
// one after the other, a little after the signal was sent. It does nothing but on Linux.
func (p *Process) Hang() error {
	for end := time.Now().Add(Patience); time.Now().Before(end); pause() {
		going := p.Processes()
		maps.DeleteFunc(going, func(_ int, stopped bool) bool { return stopped })
		if len(going) == 0 {
			return nil
		}
		signal(going, hang)
	}
	return fmt.Errorf("%s: its processes are not stopped within %v", p.Args[0], Patience)
}

// Continue ends Hang.
func (p *Process) Continue() { signal(p.Processes(), goOn) }

// Processes returns the server's processes, and whether all threads of each are stopped: the
// first one, and those that run in Dir, which is all that the processes of PostgreSQL have in
// common. It works only on Linux.
func (p *Process) Processes() map[int]bool {
	found := map[int]bool{}
	dir, err := filepath.EvalSymlinks(p.Dir)
	if err != nil {
		dir = p.Dir
	}
	all := []string{fmt.Sprint("/proc/", p.PID())}
	if p.Dir != "" {
		all, _ = filepath.Glob("/proc/[0-9]*") // the pattern is a good one
	}
	for _, process := range all {
		pid, _ := strconv.Atoi(filepath.Base(process)) // by the pattern it begins as a number
		in, err := os.Readlink(process + "/cwd")
		first := pid == p.PID() && !p.HasEnded() // it may have gone elsewhere
		if !first && (err != nil || in != dir) {
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

// signal sends a signal to processes, and ignores processes that have ended.
func signal(processes map[int]bool, s os.Signal) {
	for pid := range processes {
		if process, err := os.FindProcess(pid); err == nil {
			_ = process.Signal(s)
		}
	}
}
