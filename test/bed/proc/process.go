// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package proc starts processes and speaks with them in lines, JSON as a rule.
//
// One side is a [Process]: it gets lines, and what it says is handed to a
// function. It can be killed, stopped and continued as an operating system does
// it. The other side is [Play], with which a program becomes one of those that it
// starts itself, and [Lines] and [Serve], with which it answers.
//
// The package is for Linux, because only there the clocks of the processes are
// known to be one: see [Monotonic].
package proc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Self is the path of this program, to start it once more.
const Self = "/proc/self/exe"

// Command says what is started, and who hears what it says.
type Command struct {
	Args []string // empty: this program once more
	Role string   // what the program is to be: see [Play]; empty: it is not asked
	Env  []string // beside that of this process

	// Line is called with each line of the standard output, without its end, one
	// line after the other. A kill can cut the last one off.
	Line func(line []byte)
	// Ended is called when the process has ended and all its lines were handed on.
	// It may be nil.
	Ended func(*os.ProcessState)
	// Stderr gets the standard error. Nil: the end of it is kept.
	Stderr io.Writer
}

// stderrTail is how much of a process's standard error is kept.
const stderrTail = 16 << 10

// Process is a child process once it was started, and may be used concurrently then.
// It must be ended with [Process.Kill]; the kernel kills it when this process ends before.
type Process struct {
	cmd    *exec.Cmd
	stderr *tail
	exited chan struct{} // closed when it has been waited for

	send  sync.Mutex // held while a line is written
	stdin io.WriteCloser
}

// Start starts a process.
func Start(c Command) (*Process, error) {
	p := &Process{}
	return p, p.Start(c)
}

// Start starts the process. It is for a process that is a part of what its lines are
// told to: from the first one on it can be used there.
func (p *Process) Start(c Command) error {
	args := c.Args
	if len(args) == 0 {
		args = []string{Self}
	}
	p.cmd, p.stderr, p.exited = exec.Command(args[0], args[1:]...), &tail{limit: stderrTail}, make(chan struct{})
	p.cmd.Env = append(os.Environ(), c.Env...)
	if c.Role != "" {
		p.cmd.Env = append(p.cmd.Env, roleEnv+"="+c.Role, "GORACE=atexit_sleep_ms=0")
	}
	p.cmd.Stderr = p.stderr
	if c.Stderr != nil {
		p.cmd.Stderr = c.Stderr
	}
	// One that is stopped would stay for ever.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout := &lines{each: c.Line}
	p.cmd.Stdout = stdout
	// A server that is killed may leave a process behind that has its output open.
	p.cmd.WaitDelay = leftPatience
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // the state is in ProcessState
		stdout.end()
		if c.Ended != nil {
			c.Ended(p.cmd.ProcessState)
		}
	}()
	return nil
}

// leftPatience is how long the lines of those that outlive a process are waited for.
const leftPatience = 5 * time.Second

// lines hands on what is written to it line by line.
type lines struct {
	each func([]byte) // may be nil
	rest []byte       // of a line that has not ended
}

func (l *lines) Write(text []byte) (int, error) {
	l.rest = append(l.rest, text...)
	for {
		line, rest, ended := bytes.Cut(l.rest, []byte("\n"))
		if !ended {
			return len(text), nil
		}
		l.hand(line)
		l.rest = slices.Clone(rest)
	}
}

// end hands on a last line without an end.
func (l *lines) end() { l.hand(l.rest) }

func (l *lines) hand(line []byte) {
	if len(line) > 0 && l.each != nil {
		l.each(line)
	}
}

// Send writes a value as a line of JSON. An error means that the process has
// ended.
func (p *Process) Send(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return p.SendLine(string(line))
}

// SendLine writes a line.
func (p *Process) SendLine(text string) error {
	p.send.Lock()
	defer p.send.Unlock()
	_, err := io.WriteString(p.stdin, text+"\n")
	return err
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended, and all its lines were handed on.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Alive says that it has not.
func (p *Process) Alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// State is how the process ended, once it has.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Stderr is the end of what the process wrote to its standard error.
func (p *Process) Stderr() string { return p.stderr.String() }

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process with SIGKILL and returns after it has ended. It works on
// a process that is stopped, and does nothing to one that has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended
	<-p.exited
}

// Stop suspends the process with SIGSTOP: no thread of it runs until
// [Process.Continue]. It returns after the process has stopped.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		stopped, err := p.stopped()
		if stopped || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop: %w", context.Cause(ctx))
		case <-time.After(time.Millisecond):
		}
	}
}

// Continue resumes the process with SIGCONT.
func (p *Process) Continue() error { return p.Signal(syscall.SIGCONT) }

// stopped reports whether every thread of the process is stopped: the kernel
// stops them one after the other.
func (p *Process) stopped() (bool, error) {
	threads, err := procfs.AllThreads(p.PID())
	for _, thread := range threads {
		stat, err := thread.Stat()
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil || stat.State != "T" {
			return false, err
		}
	}
	return err == nil, err
}

// tail keeps the last bytes written to it. It may be used concurrently.
type tail struct {
	limit int

	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.limit; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// Run runs a tool in a folder, this one if empty, and returns its standard output.
// An error shows all that it has written.
func Run(ctx context.Context, dir, name string, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	// Child processes, as Maven has them, may hold the pipes after it was killed.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// Monotonic is the machine's CLOCK_MONOTONIC in nanoseconds. Every process of
// one machine reads the same clock, and it is the one behind Java's
// System.nanoTime on Linux, so that instants of different peers can be
// compared. Package time keeps its reading of this clock to itself.
func Monotonic() int64 { return Clock(unix.CLOCK_MONOTONIC) }

// Clock is a clock of clock_gettime(2), as this process sees it.
func Clock(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic("clock_gettime: " + err.Error()) //nolint:forbidigo // the kernel refuses a clock only to a caller that asks for none
	}
	return ts.Nano()
}

// Map makes a file a part of memory, which all processes share that have mapped it,
// and makes the file if it is not there. What a process has written is there when it
// is killed in the next instant. The caller unmaps it, or the end of the process.
func Map(path string, size int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the mapping stays
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}
