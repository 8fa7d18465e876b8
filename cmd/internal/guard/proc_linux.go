// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// procFS is the /proc of this process's own pid namespace, as it was mounted when it was opened:
// what is mounted over it later changes nothing. All numbers of processes come from it.
//
// In another namespace's /proc the same numbers belong to other processes, or to none: the
// family would not be found, and strangers would be signalled in its place.
type procFS struct{ fd int }

// Supported returns nil if this process can guard a command, and else an error that matches
// [ErrProc]. [Start] looks, too; a caller that has to wait for its lock looks first.
func Supported() error {
	proc, err := openProc()
	if err != nil {
		return err
	}
	proc.close()
	return nil
}

// openProc opens /proc, and refuses one that is not this process's own namespace's.
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

func (p procFS) check() error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(p.fd, &st); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if st.Type != unix.PROC_SUPER_MAGIC {
		return errors.New("none is mounted there (mount -t proc proc /proc)")
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

// checkNumbers compares this process's number with what /proc calls it. The link alone does
// not tell: a number may happen to be the same in two namespaces. NSpid lists the
// numbers from the namespace of the mount down to the process's own, so one alone means that
// they are one. (Before Linux 4.1, and in some sandboxes, there is no such line.)
func checkNumbers(pid int, link, status string) error {
	const remedy = `mount one of this namespace ("unshare --pid --fork --mount-proc" does, ` +
		`or "mount -t proc proc /proc" in a mount namespace of its own)`
	if link == "" {
		return fmt.Errorf("it is another pid namespace's, which does not know this process: %s", remedy)
	}
	own := strconv.Itoa(pid)
	if link != own {
		return fmt.Errorf("it is another pid namespace's, where this process %s is %s: %s", own, link, remedy)
	}
	_, rest, ok := strings.Cut(status, "\nNSpid:")
	if !ok {
		return nil
	}
	line, _, _ := strings.Cut(rest, "\n")
	if numbers := strings.Fields(line); len(numbers) != 1 || numbers[0] != own {
		return fmt.Errorf("it is another pid namespace's, where this process happens to be %s as well (NSpid %s): %s",
			own, strings.Join(numbers, " "), remedy)
	}
	return nil
}

// read reads the beginning of a file. A machine may have thousands of processes to read, so it
// makes its three system calls itself: package os makes twice as many, and asks the poller.
func (p procFS) read(name string, buf []byte) ([]byte, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(p.fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
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
	fd, err := retry(func() (int, error) {
		return unix.Openat(p.fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
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
	fd, err := retry(func() (int, error) {
		return unix.Openat(p.fd, folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
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

// children returns the numbers of this process's children, the dead that were not
// reaped included. It costs some system calls for each thread, however many processes the machine
// has, and shows what hidepid hides. A list that is read while children die may lack others.
// Kernels without CONFIG_PROC_CHILDREN have none.
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

// killChild sends SIGKILL to a child of this process, and to nothing that has got its number
// since: of what the descriptor stands for, waitid says whether it is a child. (It asks for nothing, so
// a child that is dead stays to be reaped.)
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

// mountProc mounts a /proc of this process's pid namespace over the one that is there. The
// process must be alone in its mount namespace. Other mounts stay as they were: what the command
// mounts is seen outside if it was so before. It reports the error number.
func mountProc() error {
	// Without this the mount would be copied to all namespaces that share this /proc.
	if err := unix.Mount("", "/proc", "", unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// dropCapabilities leaves this thread without any, as a program of an ordinary user has none.
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
