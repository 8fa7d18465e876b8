// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package proc starts processes and exchanges lines with them, usually of JSON.
//
// One side is a [Process]: it receives lines, and passes its output to a function. It is a
// [launcher.Process] without its own folder, and can be killed, stopped and continued as an
// operating system does it. On the other side a program calls [Play] to act as a process that it
// started itself, and [Lines] and [Serve] to answer.
//
// The package is for Linux, because only there the processes are known to share one clock: see
// [Monotonic].
package proc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// Self is the path of this program, to start it once more.
const Self = "/proc/self/exe"

// Command describes a process, and who receives its output.
type Command struct {
	Args []string // empty: this program once more
	Role string   // what the program is to be: see [Play]; empty: it is not asked
	Env  []string // added to this process's

	// Line is called with each line of the standard output, without its end, one
	// line after the other. A kill can cut the last one off.
	Line func(line []byte)
	// Ended is called when the process has ended and all its lines were passed on.
	// It may be nil.
	Ended func(*os.ProcessState)
}

// stderrTail is how much of a process's standard error is kept.
const stderrTail = 16 << 10

// leftPatience is how long to wait for lines of children that outlive a process.
const leftPatience = 5 * time.Second

// Process is a child process once it was started, and may be used concurrently then.
// It must be ended with Kill; the kernel kills it when this process ends before.
type Process struct {
	launcher.Process
	stderr *tail

	send  sync.Mutex // held while a line is written
	stdin io.WriteCloser
}

// Start starts a process.
func Start(c Command) (*Process, error) {
	p := &Process{}
	return p, p.Start(c)
}

// Start starts the process. It is for a process that the receiver of its lines contains:
// the receiver can use it from the first line on.
func (p *Process) Start(c Command) error {
	of := launcher.Server{Args: c.Args, Env: c.Env}
	if len(of.Args) == 0 {
		of.Args = []string{Self}
	}
	if c.Role != "" {
		of.Env = append(slices.Clone(of.Env), roleEnv+"="+c.Role, "GORACE=atexit_sleep_ms=0")
	}
	stdout := &lines{each: c.Line}
	p.stderr = &tail{limit: stderrTail}
	return p.Begin(of, func(cmd *exec.Cmd) (err error) {
		// A server that is killed may leave a process behind that has its output open.
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, p.stderr, leftPatience
		p.stdin, err = cmd.StdinPipe()
		return err
	}, func() {
		stdout.end()
		if c.Ended != nil {
			c.Ended(p.State())
		}
	})
}

// lines passes on what is written to it, line by line.
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

// end passes on a last line without an end.
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

// Alive reports whether the process has not ended, or not all its lines were passed on.
func (p *Process) Alive() bool { return !p.HasEnded() }

// Stderr is the end of what the process wrote to its standard error.
func (p *Process) Stderr() string { return p.stderr.String() }

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
