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

// process is one line of the process table. All numbers are those of the pid namespace
// that /proc was mounted in.
type process struct {
	pid, ppid, pgrp int
	state           byte
	name            string
	start           uint64 // ticks since boot: with the pid it names a process for ever
}

// readProcess reads /proc/PID/stat. A machine may have thousands of them to read, so it
// makes its three system calls itself: package os makes twice as many, and asks the poller.
func readProcess(pid int) (process, error) {
	var buf [1024]byte // a stat line has at most 52 numbers
	fd, err := retry(func() (int, error) {
		return unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return process{}, err
	}
	n, err := retry(func() (int, error) { return unix.Read(fd, buf[:]) })
	_ = unix.Close(fd)
	if err != nil {
		return process{}, err
	}
	return parseStat(pid, buf[:n])
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

func readProcesses() (*processTable, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	t := &processTable{children: make(map[int][]int)}
	seen := make(map[int]bool, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, err := readProcess(pid)
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			return nil, err
		}
		if err != nil {
			continue // gone
		}
		t.children[p.ppid] = append(t.children[p.ppid], len(t.all))
		t.all = append(t.all, p)
		seen[pid] = true
	}
	for parent := range t.children {
		if parent != 0 && !seen[parent] {
			t.torn = true
		}
	}
	return t, nil
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
func (p process) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	now, readErr := readProcess(p.pid)
	if readErr == nil && now.start != p.start || errors.Is(readErr, os.ErrNotExist) || errors.Is(readErr, unix.ESRCH) {
		return nil
	}
	if err != nil {
		// No pidfd (an old kernel, a filter, out of descriptors): the remaining window for a
		// number to change hands is a few microseconds. Not to signal would be worse.
		err = unix.Kill(p.pid, sig)
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
func killFamily(root int) error {
	table, err := readProcesses()
	if err != nil {
		return err
	}
	for _, p := range table.descendants(root) {
		_ = p.signal(unix.SIGKILL) // another user's process: nothing more can be done
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
func terminateFamily(root int, looksEnd Instant) error {
	var frozen []process
	known := make(map[identity]bool)
	var err error
	torn := 0
	for range maxFreezes {
		var table *processTable
		if table, err = readProcesses(); err != nil {
			break
		}
		fresh := false
		for _, p := range table.descendants(root) {
			if !known[p.identity()] {
				known[p.identity()] = true
				fresh = true
				_ = p.signal(unix.SIGSTOP)
				frozen = append(frozen, p)
			}
		}
		if table.torn {
			torn++
		}
		if !fresh && (!table.torn || torn > maxTorn) || Now() >= looksEnd {
			break
		}
	}
	for _, p := range frozen {
		_ = p.signal(unix.SIGTERM)
	}
	for _, p := range slices.Backward(frozen) {
		_ = p.signal(unix.SIGCONT)
	}
	return err
}

// alive returns what is left below root, without those that only wait to be reaped.
func alive(root int) []Process {
	table, err := readProcesses()
	if err != nil {
		return nil
	}
	var left []Process
	for _, p := range table.descendants(root) {
		if p.state != 'Z' && p.state != 'X' {
			left = append(left, Process{PID: p.pid, Name: p.name})
		}
	}
	return left
}

// isStopped reports whether a process is stopped by a signal or by a debugger.
func isStopped(pid int) bool {
	p, err := readProcess(pid)
	return err == nil && (p.state == 'T' || p.state == 't')
}
