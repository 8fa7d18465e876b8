// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// stderrLimit is how much of what a replica says on standard error is kept.
const stderrLimit = 4 << 10

// company is the processes of the replicas. close ends and awaits them all.
type company struct {
	program string
	reports chan report   // of all replicas; closed by nobody
	closing chan struct{} // closed when nobody reads the reports any more
	readers sync.WaitGroup
	members []*process
}

// process is one replica's process.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser // its end tells the replica that the demo is gone
}

func newCompany() (*company, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to start it as a replica: %w", err)
	}
	return &company{program: program, reports: make(chan report), closing: make(chan struct{})}, nil
}

// start starts a replica. Its reports, and at last that of its exit, come on
// the channel.
func (c *company) start(name string, at place, lease time.Duration) (*process, error) {
	p := &process{name: name, cmd: exec.Command(c.program, ReplicaCommand, name, at.lock, lease.String())}
	p.cmd.Env = append(os.Environ(), "TENURE_STORE="+at.at.URL())
	said := &head{limit: stderrLimit}
	p.cmd.Stderr = said
	p.cmd.SysProcAttr = detached()
	p.cmd.WaitDelay = closeTimeout
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.stdin = stdin
	c.members = append(c.members, p)
	c.readers.Go(func() {
		garbled := c.hear(stdout)
		err := errors.Join(p.cmd.Wait(), garbled)
		r := report{Kind: exited, Time: time.Now(), Replica: name, PID: p.pid()}
		if err != nil {
			r.Error = strings.TrimSuffix(err.Error()+": "+said.String(), ": ")
		}
		c.hand(r)
	})
	return p, nil
}

// hear hands on the reports of a replica until there are no more. It reads to
// the end in any case, so that the replica never waits for it.
func (c *company) hear(stdout io.Reader) error {
	lines := json.NewDecoder(stdout)
	for {
		var r report
		if err := lines.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) {
				return nil // it may have been killed within a line
			}
			_, _ = io.Copy(io.Discard, stdout)
			return fmt.Errorf("a report that is not JSON: %w", err)
		}
		c.hand(r)
	}
}

func (c *company) hand(r report) {
	select {
	case c.reports <- r:
	case <-c.closing:
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// close kills what is left of the replicas, and returns when all have been
// waited for. The demo reads no reports any more.
func (c *company) close() {
	close(c.closing)
	for _, p := range c.members {
		_ = p.cmd.Process.Kill() // an error says that it has ended already
		_ = p.stdin.Close()
	}
	c.readers.Wait()
}

// head keeps the beginning of what is written to it.
type head struct {
	limit int
	buf   bytes.Buffer
}

func (h *head) Write(b []byte) (int, error) {
	h.buf.Write(b[:min(len(b), h.limit-h.buf.Len())])
	return len(b), nil
}

func (h *head) String() string { return string(bytes.TrimSpace(h.buf.Bytes())) }
