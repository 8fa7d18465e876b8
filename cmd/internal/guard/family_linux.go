// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// procFS is the /proc of this process's own pid namespace, as it was mounted when it was opened:
// later mounts over it change nothing. All process numbers come from it.
//
// In another namespace's /proc the same numbers belong to other processes, or to none: the
// family would not be found, and other processes would be signalled instead.
type procFS struct{ fd int }

// Supported returns nil if this process can guard a command, otherwise an error that matches
// [ErrProc]. [Start] checks this, too; a caller that has to wait for its lock checks it first.
func Supported() error {
	proc, err := openProc()
	if err != nil {
		return err
	}
	proc.close()
	return nil
}

// openProc opens /proc, and refuses a /proc of another pid namespace.
func openProc() (procFS, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return procFS{}, fmt.Errorf("%w: %w", ErrProc, err)
	}
	proc := procFS{fd: fd}
	if err := proc.check(); err != nil {
		proc.close()
		return procFS{}, fmt.Errorf("%w: %w", ErrProc, err)
	}
	return proc, nil
}

func (p procFS) close() { _ = unix.Close(p.fd) }

func (p procFS) open(name string, flag int) (fd int, err error) {
	return retry(func() (int, error) { return unix.Openat(p.fd, name, unix.O_RDONLY|unix.O_CLOEXEC|flag, 0) })
}

func (p procFS) check() error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(p.fd, &st); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if st.Type != unix.PROC_SUPER_MAGIC {
		return errors.New("it is not mounted (mount -t proc proc /proc)")
	}
	var link [32]byte
	n, err := retry(func() (int, error) { return unix.Readlinkat(p.fd, "self", link[:]) })
	if errors.Is(err, unix.ENOENT) {
		n = 0 // of a namespace that this process is not in
	} else if err != nil {
		return os.NewSyscallError("readlink self", err)
	}
	var status []byte
	if n > 0 {
		var buf [4096]byte
		if status, err = p.read("self/status", buf[:]); err != nil {
			return err
		}
	}
	return checkNumbers(unix.Getpid(), string(link[:n]), string(status))
}

// checkNumbers compares this process's number with its number in /proc. The link alone is not
// enough: a number may happen to be the same in two namespaces. NSpid lists the
// numbers from the namespace of the mount down to the process's own, so a single number means
// that they are the same. (Before Linux 4.1, and in some sandboxes, there is no such line.)
func checkNumbers(pid int, link, status string) error {
	const remedy = `mount one of this namespace ("unshare --pid --fork --mount-proc" does, ` +
		`or "mount -t proc proc /proc" in a mount namespace of its own)`
	if link == "" {
		return fmt.Errorf("it belongs to another pid namespace, which does not know this process: %s", remedy)
	}
	own := strconv.Itoa(pid)
	if link != own {
		return fmt.Errorf("it belongs to another pid namespace, where this process %s is %s: %s", own, link, remedy)
	}
	_, rest, ok := strings.Cut(status, "\nNSpid:")
	if !ok {
		return nil
	}
	line, _, _ := strings.Cut(rest, "\n")
	if numbers := strings.Fields(line); len(numbers) != 1 || numbers[0] != own {
		return fmt.Errorf("it belongs to another pid namespace, where this process also happens to be %s (NSpid %s): %s",
			own, strings.Join(numbers, " "), remedy)
	}
	return nil
}

// read reads the beginning of a file. A machine may have thousands of processes to read, so it
// makes its three system calls itself: package os makes twice as many, and asks the poller.
func (p procFS) read(name string, buf []byte) ([]byte, error) {
	fd, err := p.open(name, 0)
	if err != nil {
		return nil, err
	}
	n, err := retry(func() (int, error) { return unix.Read(fd, buf) })
	_ = unix.Close(fd)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// readAll reads a whole file.
func (p procFS) readAll(name string) ([]byte, error) {
	fd, err := p.open(name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	var all []byte
	var buf [4096]byte
	for {
		n, err := retry(func() (int, error) { return unix.Read(fd, buf[:]) })
		if err != nil || n <= 0 {
			return all, err
		}
		all = append(all, buf[:n]...)
	}
}

// names lists a folder.
func (p procFS) names(folder string) ([]string, error) {
	fd, err := p.open(folder, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), folder)
	defer func() { _ = dir.Close() }()
	return dir.Readdirnames(-1)
}

// process reads /proc/PID/stat.
func (p procFS) process(pid int) (process, error) {
	var buf [1024]byte // a stat line has at most 52 numbers
	b, err := p.read(strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return process{}, err
	}
	return parseStat(pid, b)
}

// processes reads the process table.
func (p procFS) processes() (*processTable, error) {
	names, err := p.names(".")
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
		one, err := p.process(pid)
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			return nil, err
		}
		if err != nil {
			continue // gone
		}
		t.children[one.ppid] = append(t.children[one.ppid], len(t.all))
		t.all = append(t.all, one)
		seen[pid] = true
	}
	for parent := range t.children {
		if parent != 0 && !seen[parent] {
			t.torn = true
		}
	}
	return t, nil
}

// children returns the numbers of this process's children, including dead ones that were not
// reaped. It costs some system calls for each thread, however many processes the machine
// has, and shows what hidepid hides. A list that is read while children die may lack others.
// Kernels without CONFIG_PROC_CHILDREN have no such list.
func (p procFS) children() []int {
	self := strconv.Itoa(unix.Getpid()) + "/task"
	threads, err := p.names(self)
	if err != nil {
		return nil
	}
	var pids []int
	for _, thread := range threads {
		list, err := p.readAll(self + "/" + thread + "/children")
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range bytes.Fields(list) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// killChildren sends SIGKILL to all children of this process. Once it has killed these, theirs are
// its children: repeated until wait4 says that nothing is left, it ends the whole family.
// It finds a family that forks and exits faster than all of /proc can be read.
func (p procFS) killChildren() {
	for _, pid := range p.children() {
		killChild(pid)
	}
}

// killChild sends SIGKILL to a child of this process, but not to a process that has got its
// number since: waitid says whether the descriptor refers to a child. (It reaps nothing, so a dead
// child still has to be reaped.)
func killChild(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // gone; or no pidfds here, and killFamily is left
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = retry(func() (int, error) {
		return 0, unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	})
	if err == nil {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // another user's: nothing more can be done
	}
}

// mountProc mounts a /proc of this process's pid namespace over the existing one. The
// process must be alone in its mount namespace. Other mounts stay as they were: what the command
// mounts is seen outside if it was so before. It reports the error number.
func mountProc() error {
	// Without this the mount would be copied to all namespaces that share this /proc.
	if err := unix.Mount("", "/proc", "", unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// dropCapabilities drops all capabilities of this thread, as for a program of an ordinary user.
func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// errnoOf returns the number of an error of the kernel.
func errnoOf(err error) syscall.Errno {
	errno := syscall.EINVAL
	errors.As(err, &errno)
	return errno
}

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
		// Before Linux 5.3, or behind a filter that does not know the call, only the number
		// can be used, which could be reused in the few microseconds after the check below.
		// Not to signal would be worse.
		fd = -1
	case errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT):
		return nil // gone, and the number at most a thread's by now
	default:
		return err // out of descriptors, most likely: the next scan may have one
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

// killFamily sends SIGKILL to all processes below root that one scan of /proc finds. The
// caller repeats it until wait4 says that no process is left: forks may get in between.
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
	// maxFreezes bounds the scans of terminateFamily if a family forks all the time.
	maxFreezes = 50
	// maxTorn bounds the scans that are repeated only because the table was inconsistent: under
	// hidepid it always is.
	maxTorn = 3
)

// terminateFamily sends SIGTERM to everything below root, each process once, and continues
// it so that it sees the signal.
//
// The family is stopped first, scan after scan until one finds no new process. A fork either
// was complete before its parent had SIGSTOP, and the next scan sees the child, or it fails
// and is done again after the parent continues. Without this, a process forked between the
// scan and the signal would go on until SIGKILL; and sending SIGTERM again and again would hit
// processes that dying ones start to clean up. The scans end at an instant, so that a family
// that forks forever can still clean up before it is killed. Children are continued before
// their parents, so that no parent sees a stopped child, and no group is orphaned while it is
// stopped (the kernel would send it SIGHUP).
func (p procFS) terminateFamily(root int, scansEnd Instant) error {
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
		if !fresh && (!table.torn || torn > maxTorn) || Now() >= scansEnd {
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

// alive returns the processes below root, without those that only have to be reaped.
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
