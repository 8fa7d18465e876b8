// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// process is one line of the process table.
type process struct {
	pid, ppid, pgrp int
	state           byte
	name            string
	start           uint64 // ticks since boot: with the pid it names a process for ever
}

func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func parseStat(pid int, b []byte) (process, error) {
	// The name is in parentheses and may itself hold spaces and parentheses.
	open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || shut < open {
		return process{}, errors.New("unreadable stat line")
	}
	fields := bytes.Fields(b[shut+1:])
	if len(fields) < 20 {
		return process{}, errors.New("short stat line")
	}
	p := process{pid: pid, name: string(b[open+1 : shut]), state: fields[0][0]}
	p.ppid, _ = strconv.Atoi(string(fields[1]))
	p.pgrp, _ = strconv.Atoi(string(fields[2]))
	var err error
	p.start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return p, err
}

// processTable is one reading of /proc. It is not a snapshot: processes come, go and change
// their parents while it is read.
type processTable struct {
	all      []process
	children map[int][]int // parent's pid: indexes in all
	// torn is set when a process names a parent that is not in the table: the parent died
	// while the table was read, and descendants below it may have been missed.
	torn bool
}

// descendants returns everything below root, parents before their children.
func (t *processTable) descendants(root int) []process {
	var found []process
	visited := map[int]bool{root: true}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, i := range t.children[queue[0]] {
			// A table read while pids change hands could hold a cycle.
			if p := t.all[i]; !visited[p.pid] {
				visited[p.pid] = true
				found = append(found, p)
				queue = append(queue, p.pid)
			}
		}
	}
	return found
}

// identity names a process for ever.
type identity struct {
	pid   int
	start uint64
}

func (p process) identity() identity { return identity{p.pid, p.start} }

// signal sends a signal to the process that was seen in the table, and to no other that
// has got its number since: the descriptor is opened first, and if the start time is
// still the same then, it is the descriptor of that process. A process that is gone is no error.
func (p procFS) signal(one process, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(one.pid, 0)
	switch {
	case err == nil:
		defer func() { _ = unix.Close(fd) }()
	case errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM):
		// Before Linux 5.3, or behind a filter that does not know the call, there is no other way than
		// by the number, which could change hands in the few microseconds after the look below. Not to
		// signal would be worse.
		fd = -1
	case errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT):
		return nil // gone, and the number at most a thread's by now
	default:
		return err // out of descriptors, most likely: the next look may have one
	}
	now, err := p.process(one.pid)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && now.start != one.start {
		return nil
	}
	if err != nil {
		return err
	}
	if fd < 0 {
		err = unix.Kill(one.pid, sig)
	} else {
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// killFamily sends SIGKILL to everything below root that one look at /proc finds. The
// caller repeats it until wait4 says that nothing is left: forks may get in between.
func (p procFS) killFamily(root int) error {
	table, err := p.processes()
	if err != nil {
		return err
	}
	for _, one := range table.descendants(root) {
		_ = p.signal(one, unix.SIGKILL) // another user's process: nothing more can be done
	}
	return nil
}

const (
	// maxFreezes bounds the looks of terminateFamily at a family that forks all the time.
	maxFreezes = 50
	// maxTorn bounds the looks that are only repeated because the table was torn: under
	// hidepid it always is.
	maxTorn = 3
)

// terminateFamily sends SIGTERM to everything below root, each process once, and continues
// it so that it sees the signal.
//
// The family is stopped first, look after look until one finds nothing new. A fork either
// was complete before its parent had SIGSTOP, and the next look sees the child, or it fails and
// is done again after the parent continues. Without this, a process forked between the look
// and the signal would go on until SIGKILL; and sending SIGTERM again and again would
// hit what the dying start to clean up. The looks end at an instant, so that a family that
// forks without end is not kept from cleaning up until it is killed. Children are continued before their parents, so
// that no parent sees a stopped child, and no group is orphaned while it is stopped (the
// kernel would send it SIGHUP).
func (p procFS) terminateFamily(root int, looksEnd Instant) error {
	var frozen []process
	known := make(map[identity]bool)
	var err error
	torn := 0
	for range maxFreezes {
		var table *processTable
		if table, err = p.processes(); err != nil {
			break
		}
		fresh := false
		for _, one := range table.descendants(root) {
			if !known[one.identity()] {
				known[one.identity()] = true
				fresh = true
				_ = p.signal(one, unix.SIGSTOP)
				frozen = append(frozen, one)
			}
		}
		if table.torn {
			torn++
		}
		if !fresh && (!table.torn || torn > maxTorn) || Now() >= looksEnd {
			break
		}
	}
	for _, one := range frozen {
		_ = p.signal(one, unix.SIGTERM)
	}
	for _, one := range slices.Backward(frozen) {
		_ = p.signal(one, unix.SIGCONT)
	}
	return err
}

// alive returns what is left below root, without those that only wait to be reaped.
func (p procFS) alive(root int) []Process {
	table, err := p.processes()
	if err != nil {
		return nil
	}
	var left []Process
	for _, one := range table.descendants(root) {
		if one.state != 'Z' && one.state != 'X' {
			left = append(left, Process{PID: one.pid, Name: one.name})
		}
	}
	return left
}

// isStopped reports whether a process is stopped by a signal or by a debugger.
func (p procFS) isStopped(pid int) bool {
	one, err := p.process(pid)
	return err == nil && (one.state == 'T' || one.state == 't')
}
