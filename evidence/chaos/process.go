// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/chaos/replica"
)

// timespace is a time namespace that a process is started in: by how much its
// clocks differ from the machine's, in seconds.
type timespace struct {
	Monotonic, Boot int64
}

// command returns what starts this program again, in the namespace.
func (n *timespace) command() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if n == nil {
		return []string{self}, nil
	}
	args := []string{
		"unshare", "--time", "--monotonic", fmt.Sprint(n.Monotonic), "--boottime",
		fmt.Sprint(n.Boot), self,
	}
	if os.Getuid() != 0 {
		args = slices.Insert(args, 1, "--user", "--map-current-user")
	}
	return args, nil
}

// process is one life of a replica.
type process struct {
	proc.Process
	name  string // of the replica and its life
	where *timespace
	rate  float64
	page  *replica.Page
	began int64

	mu     sync.Mutex // guards the fields below
	lines  []replica.Line
	killed bool  // by this program
	seen   int64 // the last change of the clocks that it has told of
	end    int64 // when it had ended
}

// launch starts a replica, and has tell called with each of its lines.
func launch(dir string, c replica.Config, where *timespace, watch replica.Watch,
	tell func(*process, replica.Line),
) (*process, error) {
	p := &process{name: c.Name, where: where, rate: c.Rate}
	c.Page = filepath.Join(dir, c.Name+".clocks")
	var err error
	if p.page, err = replica.OpenPage(c.Page); err != nil {
		return nil, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	args, err := where.command()
	if err != nil {
		return nil, err
	}
	p.began = watch.Now()
	return p, p.Start(proc.Command{
		Args: args, Role: replica.RoleName, Env: []string{replica.Variable + "=" + string(text)},
		Line: func(line []byte) { p.heard(line, watch, tell) },
		Ended: func(*os.ProcessState) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.end = watch.Now()
		},
	})
}

// heard takes a line down.
func (p *process) heard(line []byte, watch replica.Watch, tell func(*process, replica.Line)) {
	var l replica.Line
	if err := json.Unmarshal(line, &l); err != nil {
		// A kill can cut the last line off.
		l = replica.Line{Kind: replica.Trouble, Text: fmt.Sprintf("says %.200q: %v", line, err), At: watch.Now()}
	}
	p.mu.Lock()
	p.lines = append(p.lines, l)
	if l.Clocks != nil {
		p.seen = l.Clocks.Change
	}
	p.mu.Unlock()
	tell(p, l)
}

// sees waits until the process has said what its clocks show since a change.
func (p *process) sees(ctx context.Context, change int64, patience time.Duration) bool {
	seen := false
	wait.Within(ctx, patience, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		seen = p.seen >= change
		return seen || !p.Alive()
	})
	return seen
}

// kill ends it with SIGKILL, and waits until it has.
func (p *process) kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	p.Kill()
}

// stopPatience is for how long it may take until every thread stands.
const stopPatience = 5 * time.Second

// stop sends SIGSTOP, and waits until every thread stands.
func (p *process) stop() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), stopPatience,
		fmt.Errorf("%s does not stop", p.name))
	defer cancel()
	return p.Stop(ctx)
}

// finish has it end in peace, or kills it. It returns whether that was not
// needed.
func (p *process) finish(patience time.Duration) bool {
	_ = p.SendLine(replica.OrderEnd) // it may have ended
	select {
	case <-p.Exited():
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
	status, _ := p.State().Sys().(syscall.WaitStatus)
	asked := p.killed && status.Signaled() && status.Signal() == syscall.SIGKILL
	if (asked || status.Exited() && status.ExitStatus() == 0) && p.Stderr() == "" {
		return ""
	}
	return fmt.Sprintf("%s ended with %v: %.2000s", p.name, p.State(), p.Stderr())
}
