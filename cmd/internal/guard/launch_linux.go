// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// launch starts the guardian. On success the Guard owns its ends of the pipes, the alarm and
// the terminal; on failure nothing is left open.
func (g *Guard) launch() (err error) {
	var theirs, ours []int
	defer func() {
		closeAll(theirs)
		if err != nil {
			closeAll(ours)
			if g.tty != nil {
				g.tty.close()
			}
		}
	}()
	var down, up [2]int
	if err := unix.Pipe2(down[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("%w: %w", ErrGuardian, os.NewSyscallError("pipe2", err))
	}
	theirs, ours = append(theirs, down[0]), append(ours, down[1])
	if err := unix.Pipe2(up[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("%w: %w", ErrGuardian, os.NewSyscallError("pipe2", err))
	}
	theirs, ours = append(theirs, up[1]), append(ours, up[0])
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		self = -1 // before Linux 5.3: the guardian goes by its parent's pid
	} else {
		theirs = append(theirs, self)
	}
	tty, foreground := -1, false
	if g.tty = openTerminal(); g.tty != nil {
		tty, foreground = g.tty.fd, g.tty.lendable(g.proc)
	}

	files, at := descriptorTable([]int{down[0], up[1], self, tty})
	spec := guardianSpec{fd: at, parent: os.Getpid(), contain: g.cmd.Contain, foreground: foreground, last: g.cmd.Last}
	attr := &syscall.ProcAttr{
		Dir:   g.cmd.Dir,
		Env:   lastWins(g.cmd.environ()),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	if err := g.fork(spec, attr); err != nil {
		return err
	}
	if foreground {
		g.tty.lent = true
	}
	if g.alarm, err = newAlarm(); err != nil {
		// The guardian has no orders yet, and ends with its pipe.
		closeAll(ours)
		ours = nil
		_, _ = syscall.Wait4(g.guardian, nil, 0, nil)
		return fmt.Errorf("%w: %w", ErrGuardian, err)
	}
	g.alarm.set(g.nextAlarm())
	for _, fd := range ours {
		_ = unix.SetNonblock(fd, true)
	}
	g.toIt, g.fromIt = os.NewFile(uintptr(down[1]), "to the guardian"), os.NewFile(uintptr(up[0]), "from the guardian")
	g.wake()
	return nil
}

// self is the running binary, even if its file was replaced or removed since.
const self = "/proc/self/exe"

func (g *Guard) fork(spec guardianSpec, attr *syscall.ProcAttr) (err error) {
	start := func() (int, error) {
		argv := append([]string{"tenure-guardian", guardianArg, spec.String(), g.path}, spec.last...)
		argv = append(argv, g.cmd.Args...)
		return syscall.ForkExec(self, argv, attr)
	}
	if !spec.contain {
		if g.guardian, err = start(); err != nil {
			return fmt.Errorf("%w: start %s: %w", ErrGuardian, self, err)
		}
		return nil
	}
	// The mount namespace is for a /proc of the pid namespace: see prepare.
	attr.Sys.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	g.guardian, err = start()
	refused := "pid and mount namespaces"
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		refused = "a user namespace with pid and mount namespaces"
		attr.Sys.Cloneflags |= unix.CLONE_NEWUSER
		attr.Sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		attr.Sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		// For mounting /proc. An exec by another user than root loses all others.
		attr.Sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
		spec.confined = true
		g.guardian, err = start()
	}
	if err != nil {
		return fmt.Errorf("%w: the kernel does not allow %s (%w): run as root or with CAP_SYS_ADMIN, or let users make "+
			"namespaces (%s), or do without contain",
			ErrContain, refused, err, strings.Join(namespaceSettings(), ", "))
	}
	return nil
}

// containError explains why the guardian could not make its namespace a /proc of its own.
func containError(err error) error {
	return fmt.Errorf("%w: the kernel does not allow to mount a /proc of the new pid namespace (%w), most likely "+
		"because parts of the /proc here are covered, as container engines do: uncover them, or run as root with "+
		"CAP_SYS_ADMIN, or do without contain",
		ErrContain, err)
}

// namespaceSettings names the settings that can forbid namespaces, with their values here.
func namespaceSettings() []string {
	var all []string
	for _, name := range []string{
		"user.max_user_namespaces", "user.max_pid_namespaces",
		"kernel.unprivileged_userns_clone", "kernel.apparmor_restrict_unprivileged_userns",
	} {
		b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		if err == nil {
			all = append(all, "sysctl "+name+" is "+strings.TrimSpace(string(b)))
		}
	}
	return append(all, "a container's seccomp profile may forbid it, too")
}

// descriptorTable returns the table for a child that gets ours in one row, behind all
// descriptors that the caller was itself started with (9>lockfile, <(list), socket
// activation): those go on to the command under their own numbers. All of them stand in the
// table, since package syscall uses numbers behind it while it shuffles.
func descriptorTable(ours []int) (files []uintptr, at int) {
	inherited := inheritedDescriptors()
	at = 3
	for fd := range inherited {
		at = max(at, fd+1)
	}
	const none = ^uintptr(0)
	for i := range at {
		if i < 3 || inherited[i] {
			files = append(files, uintptr(i))
		} else {
			files = append(files, none)
		}
	}
	for _, fd := range ours {
		files = append(files, uintptr(fd)) // -1 is none
	}
	return files, at
}

// inheritedDescriptors are those above 2 that survive an exec. Go opens none such itself.
func inheritedDescriptors() map[int]bool {
	found := make(map[int]bool)
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return found
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			found[fd] = true
		}
	}
	return found
}

// lastWins drops what a later entry of the same name overrides, as os/exec does: the guardian,
// which hands the environment on, would keep the first.
func lastWins(env []string) []string {
	seen := make(map[string]bool, len(env))
	kept := make([]string, 0, len(env))
	for i := len(env) - 1; i >= 0; i-- {
		name, _, _ := strings.Cut(env[i], "=")
		if !seen[name] {
			seen[name] = true
			kept = append(kept, env[i])
		}
	}
	for i, j := 0, len(kept)-1; i < j; i, j = i+1, j-1 {
		kept[i], kept[j] = kept[j], kept[i]
	}
	return kept
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

func prctlGetSubreaper(was *int32) error {
	_, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(was)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
