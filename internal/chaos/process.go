// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/internal/chaos/replica"
)

// timespace is a time namespace that a process is started in: by how much its
// clocks differ from the machine's, in seconds.
type timespace struct {
	Monotonic, Boot int64
}

// command returns what starts this program again, in the namespace.
func (n *timespace) command() (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if n == nil {
		return exec.Command(self), nil
	}
	args := []string{"--time", "--monotonic", fmt.Sprint(n.Monotonic), "--boottime", fmt.Sprint(n.Boot), self}
	if os.Getuid() != 0 {
		args = append([]string{"--user", "--map-current-user"}, args...)
	}
	return exec.Command("unshare", args...), nil
}

// process is one life of a replica.
type process struct {
	name  string // of the replica and its life
	where *timespace
	rate  float64
	page  *replica.Page
	cmd   *exec.Cmd
	stdin io.WriteCloser
	began int64
	ready chan struct{} // closed when it has said that it runs
	ended chan struct{} // closed when it has ended, and all its lines are in

	mu     sync.Mutex // guards the fields below
	lines  []replica.Line
	killed bool // by this program
	stderr bytes.Buffer
	seen   int64 // the last change of the clocks that it has told of
	end    int64 // when it had ended
}

// launch starts a replica, and has tell called with each of its lines.
func launch(dir string, c replica.Config, where *timespace, watch replica.Watch, tell func(*process, replica.Line)) (*process, error) {
	p := &process{name: c.Name, where: where, rate: c.Rate, ready: make(chan struct{}), ended: make(chan struct{})}
	c.Page = filepath.Join(dir, c.Name+".clocks")
	var err error
	if p.page, err = replica.OpenPage(c.Page); err != nil {
		return nil, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	if p.cmd, err = where.command(); err != nil {
		return nil, err
	}
	p.cmd.Env = append(os.Environ(), replica.Variable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = &p.stderr
	// Should this program be killed, a replica that is stopped would stay for ever.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.began = watch.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.listen(stdout, watch, tell)
	return p, nil
}

func (p *process) listen(stdout io.Reader, watch replica.Watch, tell func(*process, replica.Line)) {
	defer close(p.ended)
	scan := bufio.NewScanner(stdout)
	scan.Buffer(nil, 1<<20)
	isReady := sync.OnceFunc(func() { close(p.ready) })
	for scan.Scan() {
		var l replica.Line
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			// A kill can cut the last line off.
			l = replica.Line{Kind: replica.Trouble, Text: fmt.Sprintf("says %.200q: %v", scan.Text(), err), At: watch.Now()}
		}
		p.mu.Lock()
		p.lines = append(p.lines, l)
		if l.Clocks != nil {
			p.seen = l.Clocks.Change
		}
		p.mu.Unlock()
		if l.Kind == replica.Ready {
			isReady()
		}
		tell(p, l)
	}
	_ = p.cmd.Wait() // the state says how
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = watch.Now()
}

// sees waits until the process has said what its clocks show since a change.
func (p *process) sees(ctx context.Context, change int64, patience time.Duration) bool {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for ctx.Err() == nil && p.alive() {
		p.mu.Lock()
		seen := p.seen
		p.mu.Unlock()
		if seen >= change {
			return true
		}
		wait(ctx, 5*time.Millisecond)
	}
	return false
}

// alive says that it has not ended.
func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// kill ends it with SIGKILL, and waits until it has.
func (p *process) kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	_ = p.signal(syscall.SIGKILL)
	<-p.ended
	_ = p.stdin.Close()
}

// stop sends SIGSTOP, and waits until every thread stands.
func (p *process) stop() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	late := time.NewTimer(5 * time.Second)
	defer late.Stop()
	for {
		stands, err := p.stands()
		if stands || err != nil {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-late.C:
			return fmt.Errorf("%s does not stop", p.name)
		}
	}
}

func (p *process) stands() (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil || len(stats) == 0 {
		return false, errors.Join(err, fmt.Errorf("%s has ended", p.name))
	}
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // that thread has ended
		}
		if err != nil {
			return false, err
		}
		// Blanks and brackets may be in the name, which is before the last ")".
		if _, state, ok := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " "); !ok || !strings.HasPrefix(state, "T") {
			return false, nil
		}
	}
	return true, nil
}

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

// order writes a line for it to obey.
func (p *process) order(text string) { _, _ = fmt.Fprintln(p.stdin, text) }

// finish has it end in peace, or kills it. It returns whether that was not
// needed.
func (p *process) finish(patience time.Duration) bool {
	p.order(replica.OrderEnd)
	select {
	case <-p.ended:
		_ = p.stdin.Close()
		return true
	case <-time.After(patience):
		p.kill()
		return false
	}
}

// outcome returns what is wrong with how it ended, "" if nothing is.
func (p *process) outcome() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	asked := p.killed && status.Signaled() && status.Signal() == syscall.SIGKILL
	if (asked || status.Exited() && status.ExitStatus() == 0) && p.stderr.Len() == 0 {
		return ""
	}
	return fmt.Sprintf("%s ended with %v: %.2000s", p.name, p.cmd.ProcessState, p.stderr.String())
}
