// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package guard runs a command that must be dead by a given instant, together
// with everything that the command started.
//
// It knows nothing of locks or leases. Its caller hands it three instants
// (see [Limits]), newer ones after each heartbeat, and asks at the end
// how the command ended. On Linux the command is watched from two processes:
//
//	caller ──parent of──> guardian ──parent of──> command ──> whatever it starts
//
// The guardian is the same binary, executed again, in a process group of its own: in it the
// initialization of this package does not return, so a program only needs to import it. The
// limits reach it through a pipe. Both the caller and the guardian are subreapers, so that no
// descendant, however it detaches itself, can leave the tree, and each of them enforces the
// deadline on its own:
//
//   - The caller is killed: the guardian reads the end of the pipe and kills all. If it is
//     stopped, the kernel continues it: SIGCONT is its parent-death signal.
//   - The caller is stopped: the guardian terminates and kills in time, and past
//     [Limits.Expiry] continues the caller, which then learns it from [Guard.Wait].
//   - The guardian is killed: the caller inherits what is left, and kills it.
//   - The guardian is stopped: the caller terminates and kills in time.
//
// A guardian whose caller is gone has one thing left to do when the family has ended: it knows
// for certain that no process is left, and can execute a program that reports this, which
// [Command.Last] names.
//
// The instants count the time spent in suspend, and no time service slews them: see [Now].
//
// # Guarantees
//
// On Linux, while the caller or the guardian can run: from Limits.Term on every
// descendant has been sent SIGTERM (and SIGCONT, so that stopped ones see it); from
// Limits.Kill on every descendant is sent SIGKILL, repeatedly, until wait4 says
// that none is left. [Guard.Wait] returns only then. The command is not started
// before the guardian has its limits, and never after Term.
//
// SIGTERM reaches each process once: a second one means "at once" to many programs.
// The family is stopped while it is sent, so that no fork slips between the scan and
// the signal, and processes that a dying one starts to clean up are left alone until Kill.
//
// With [Command.Contain] the guardian is process 1 of a pid namespace, and the kernel ends the
// whole family with it: nothing survives even when the caller and the guardian are killed at
// the same instant. Its signals are kill(-1), which outside of a namespace would reach the
// whole machine: a guardian that is not process 1 refuses to start, and to send them. It
// mounts a /proc of that namespace, in its own mount namespace, so that processes inside, such
// as another guardian, see their own numbers. Other mounts are as before.
//
// Every process is looked up in the /proc that existed at the start, and only if it belongs to this
// process's own pid namespace: see [ErrProc]. It is signalled through a descriptor, not by a number
// that may have been reused.
//
// # What is not guaranteed
//
//   - Set-user-ID children of an unprivileged guardian cannot be signalled by it
//     (with Contain they cannot exist, or die with the namespace).
//   - Work handed to another daemon (systemd-run, docker run, at, a database) is not
//     a descendant.
//   - A process in uninterruptible sleep dies when the kernel lets it go. Wait does
//     not return before.
//   - If caller and guardian are both stopped, no process enforces the deadline, whether the
//     command is stopped with them or continues.
//   - If the caller is killed, no process acts while a debugger or a cgroup freezer holds the
//     guardian, which SIGCONT does not continue, or when the guardian is stopped after that,
//     before it has killed all.
//   - Without Contain, killing the guardian, and stopping the caller or killing it at the same
//     instant, kills the command by its parent-death signal, but not what it started.
//   - Without Contain, a family that forks and exits faster than it can be scanned may outrun the
//     signals for a while. Orphans are children of the guardian, or otherwise of the caller, and
//     take microseconds to find; under a stopped guardian it takes a reading of all of /proc.
//   - Before Linux 5.3, and behind filters that do not know pidfd_open, a number may be reused in
//     the few microseconds between the check of the process and the signal. Before Linux 5.4
//     children are found by reading all of /proc.
//   - With Contain, a stopped caller is not continued past Expiry: the kernel lets no
//     process signal another outside of its pid namespace. The family is still dead in
//     time. Where parts of /proc are covered, and the caller is an ordinary user, the kernel
//     allows no new one: Start returns [ErrContain].
//   - When the guardian dies before its time, everything that is a child of the
//     calling process is killed, the caller's own helpers (a credential_process)
//     included: an orphan that was inherited cannot be told from them.
//   - Off Linux there is no guardian: only the caller signals the command's process
//     group, and Windows is not supported at all.
package guard
