// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// crowdEnv makes this program a process that holds many locks, with the client
// that it names, and measures itself.
const crowdEnv = "TENURE_BENCH_CROWD"

// order is what such a process is told to do next, in this order; it answers each
// one with figures, one line of JSON each way.
type order struct {
	Do string `json:"do"`

	// Of open.
	Client    string        `json:"client,omitempty"`
	Endpoint  string        `json:"endpoint,omitempty"`
	Table     string        `json:"table,omitempty"`
	Lease     time.Duration `json:"lease,omitempty"`
	Heartbeat time.Duration `json:"heartbeat,omitempty"`
	Refresh   time.Duration `json:"refresh,omitempty"`

	Locks int           `json:"locks,omitempty"` // of acquire
	For   time.Duration `json:"for,omitempty"`   // of hold
	To    string        `json:"to,omitempty"`    // of profile: the folder
}

// What a process of a crowd is told.
const (
	toOpen    = "open"    // the client, and a session; with one lock, to have all of it loaded
	toAcquire = "acquire" // so many locks
	toHold    = "hold"    // for a while
	toClose   = "close"   // the session, or the client, once each lock's work has returned
	toProfile = "profile" // writes a profile of what follows, until it ends
)

// figures is what a process found out about itself.
type figures struct {
	Err string `json:"error,omitempty"`

	Took float64 `json:"tookSeconds"`
	CPU  float64 `json:"cpuSeconds"` // without that of the checks themselves

	// Of open and acquire, after a garbage collection; of hold, as they are.
	Heap int64 `json:"heapBytes"`
	RSS  int64 `json:"rssBytes"`

	Goroutines int `json:"goroutines"` // the most that were seen
	Lost       int `json:"lost"`       // locks, ever

	// What the client tells, which dynamolock does not.
	Renewed        int     `json:"renewed,omitempty"`
	LeastSlack     float64 `json:"leastSlackSeconds,omitempty"`     // until the deadline, when the next heartbeat was confirmed
	LeastRemaining float64 `json:"leastRemainingSeconds,omitempty"` // until the new deadline, then
	Jeopardies     int     `json:"jeopardies,omitempty"`
	LostEvents     int     `json:"lostEvents,omitempty"`
}

// crowd is a process that holds many locks.
type crowd struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// crowd starts a process.
func (r *rig) crowd(ctx context.Context) (*crowd, error) {
	c := &crowd{cmd: exec.CommandContext(ctx, "/proc/self/exe")}
	c.cmd.Env = append(os.Environ(), crowdEnv+"=1")
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	return c, c.cmd.Start()
}

// do has the process carry out an order, and returns its figures.
func (c *crowd) do(o order) (f figures, err error) {
	line, err := json.Marshal(o)
	if err != nil {
		return f, err
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return f, fmt.Errorf("%s: %w", o.Do, err)
	}
	if line, err = c.out.ReadBytes('\n'); err != nil {
		return f, fmt.Errorf("%s: the process is gone: %w", o.Do, err)
	}
	if err := json.Unmarshal(line, &f); err != nil {
		return f, err
	}
	if f.Err != "" {
		return f, errors.New(o.Do + ": " + f.Err)
	}
	return f, nil
}

// end kills the process, if it has not ended.
func (c *crowd) end() {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait() // it was killed
}
