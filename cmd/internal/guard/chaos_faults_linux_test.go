// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// What happens when the caller or the guardian is killed or stopped.

func TestCallerKilled(t *testing.T) {
	t.Parallel()
	f := startFamily(t, hydra) // limits of minutes: only the end of the pipe can tell
	f.awaitHydra()
	f.signal(f.cmd.Process.Pid, syscall.SIGKILL)
	f.wait()
	f.eventually("end of the family", func() bool { return len(f.left()) == 0 })
}

// TestGuardianLost kills and stops the guardian.
func TestGuardianLost(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	const (
		deaf     = `setsid sh -c 'echo $$ >left; while :; do sleep 100; done' & exit 4`
		obedient = `trap 'echo >term; exit' TERM; echo $$ >main; while :; do sleep 0.05; done`
	)
	overdue := with(short, "-beats", "1", "-ready", "go")
	for name, test := range map[string]struct {
		script, ready string
		flags         []string
		sig           syscall.Signal
		reason        Reason
	}{
		"Killed":             {hydra, "main", nil, syscall.SIGKILL, Abandoned},
		"KilledContain":      {hydra, "main", []string{"-contain"}, syscall.SIGKILL, Abandoned},
		"KilledWhileForking": {forking, "main", nil, syscall.SIGKILL, Abandoned},
		// The command had ended: its own status is known, what it left is killed.
		"KilledWhileAwaiting": {deaf, "left", nil, syscall.SIGKILL, Abandoned},
		"Stopped":             {hydra, "main", overdue, syscall.SIGSTOP, Overdue},
		"StoppedContain":      {hydra, "main", with(overdue, "-contain"), syscall.SIGSTOP, Overdue},
		// SIGTERM comes from the caller. The stopped guardian is waited for until -kill.
		"StoppedStillTerminates": {
			obedient, "main",
			[]string{"-term", "700ms", "-kill", "10s", "-expiry", "14s", "-beats", "1", "-ready", "go"},
			syscall.SIGSTOP, Overdue,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFamily(t, test.script, test.flags...)
			f.await("started", test.ready)
			switch test.script {
			case hydra:
				f.awaitHydra()
			case forking:
				time.Sleep(300 * time.Millisecond) // the family grows
			case deaf:
				f.eventually("notice", func() bool { return len(f.below()) == 2 })
			}
			f.signal(f.guardian(), test.sig)
			f.write("go")
			r := f.finish()
			if r.Status != 73 || r.Exit.Reason != test.reason || !r.Exit.GuardianLost ||
				test.script != obedient && !r.Exit.Killed && test.reason == Overdue {
				t.Errorf("status %d, %v", r.Status, r.Exit)
			}
			if name == "Stopped" && r.Spare < 0 {
				t.Errorf("the family outlived the expiry by %v", -r.Spare)
			}
			switch {
			case test.script == obedient:
				f.await("term")
			case name == "Killed" && (r.Exit.Signal != syscall.SIGKILL ||
				!strings.Contains(f.stderr.String(), "notice: guardian_lost")):
				t.Errorf("%v, or no notice:\n%s", r.Exit, &f.stderr)
			}
		})
	}
}

// A caller that is continued by others before the expiry need not wait for the guardian, which
// holds the deadline for it; inside a namespace it cannot continue the caller.
func TestCallerStoppedAndContinued(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-contain=false", "-contain"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			f := startFamily(t, hydra, "-term", "500ms", "-kill", "900ms", "-expiry", "60s", "-ready", hydraReady, flag)
			f.awaitHydra()
			f.await("counting")
			f.signal(f.cmd.Process.Pid, syscall.SIGSTOP)
			f.eventually("end of the family", f.dead)
			f.signal(f.cmd.Process.Pid, syscall.SIGCONT)
			begun := time.Now()
			if r := f.finish(); r.Status != 73 || r.Exit.Reason != Overdue {
				t.Errorf("%v", r.Exit)
			}
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("the end took %v", took)
			}
		})
	}
}

func TestCallerStopped(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	f := startFamily(t, hydra, "-term", "700ms", "-kill", "1200ms", "-expiry", "8s", "-ready", hydraReady)
	f.awaitHydra()
	f.await("counting")
	stopped := Now()
	f.signal(f.cmd.Process.Pid, syscall.SIGSTOP)
	f.eventually("end of the family", f.dead)
	if late := Now().Sub(stopped.Add(8 * time.Second)); late > 0 {
		t.Errorf("the family outlived the expiry by %v", late)
	}
	if !isStopped(f.cmd.Process.Pid) || f.guardian() == 0 {
		t.Errorf("dead %v after the caller was stopped, but not by the guardian of a stopped caller", Now().Sub(stopped))
	}
	// The guardian continues the caller; the test does not.
	r := f.finish()
	if now := Now(); now < stopped.Add(7900*time.Millisecond) {
		t.Errorf("the caller was continued %v after it was stopped, before the expiry", now.Sub(stopped))
	}
	if r.Status != 73 || r.Exit.Reason != Overdue || !r.Exit.Killed || r.Exit.GuardianLost {
		t.Errorf("%v", r.Exit)
	}
}

// A short stop within the limits changes nothing.
func TestCallerStoppedShortly(t *testing.T) {
	t.Parallel()
	f := startFamily(t, "sleep 1.5; exit 6", "-term", "5s", "-kill", "6s", "-expiry", "7s")
	f.eventually("start", func() bool { return len(f.below()) > 0 })
	f.signal(f.cmd.Process.Pid, syscall.SIGSTOP)
	time.Sleep(300 * time.Millisecond)
	f.signal(f.cmd.Process.Pid, syscall.SIGCONT)
	if r := f.finish(); r.Status != 6 || r.Exit.Reason != Ended {
		t.Errorf("%v", r.Exit)
	}
}

// A guardian that was stopped past its old limits reads the newer ones before it judges.
func TestGuardianStoppedWhileExtended(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	f := startFamily(t, "echo >ready; while [ ! -e end ]; do sleep 0.05; done; sleep 1; exit 8",
		"-term", "2s", "-kill", "2500ms", "-expiry", "3s", "-beat", "5ms", "-ready", "ready")
	f.await("ready", "started", "counting")
	time.Sleep(300 * time.Millisecond) // for the guardian to get the first of these limits
	f.signal(f.guardian(), syscall.SIGSTOP)
	time.Sleep(3500 * time.Millisecond) // longer than the whole lease
	f.signal(f.guardian(), syscall.SIGCONT)
	f.write("end")
	if r := f.finish(); r.Status != 8 || r.Exit.Reason != Ended {
		t.Errorf("%v", r.Exit)
	}
}

// The caller is killed while its guardian is stopped. Below a process of the same session that
// inherits orphans, such as a shell that is process 1 of a container, the guardian's group is
// not orphaned, so the kernel does not continue it on that account.
func TestCallerKilledWhileGuardianStopped(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-contain=false", "-contain", "-end-thread"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			eachUser(t, hydra, func(t *testing.T, f *family) {
				f.cmd.Args = append([]string{f.cmd.Args[0], subreaperArg}, f.cmd.Args[1:]...)
				f.start()
				f.awaitHydra()
				caller, guardian := f.await("started"), f.guardian()
				f.signal(guardian, syscall.SIGSTOP)
				f.eventually("stop of the guardian", func() bool { return isStopped(guardian) })
				f.signal(caller, syscall.SIGKILL)
				f.eventually("end of the family", func() bool { return len(f.left()) == 0 })
			}, flag)
		})
	}
}

// killBoth kills caller and guardian with one system call, by their common group.
func (f *family) killBoth() {
	f.t.Helper()
	// The two are in groups of their own, so: both stopped first, then both killed. Neither can act.
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range []int{f.guardian(), f.cmd.Process.Pid} {
			f.signal(pid, sig)
		}
	}
	f.wait()
}

func TestContainBothKilled(t *testing.T) {
	t.Parallel()
	f := startFamily(t, hydra, "-contain")
	f.awaitHydra()
	f.killBoth()
	f.eventually("end of the family", func() bool { return len(f.left()) == 0 })
}

// Without contain the command itself dies, by its parent-death signal.
func TestBothKilled(t *testing.T) {
	t.Parallel()
	f := newFamily(t, hydra)
	f.cmd.WaitDelay = 100 * time.Millisecond // what lives on keeps the driver's standard error open
	f.start()
	f.awaitHydra()
	command := f.await("main")
	f.killBoth()
	f.eventually("end of the command", func() bool {
		p, err := readProcess(command)
		return err != nil || p.state == 'Z'
	})
	// The package says that it does not cover the rest.
	for _, p := range f.left() {
		f.signal(p.pid, syscall.SIGKILL)
	}
	f.eventually("end of the family", func() bool { return len(f.left()) == 0 })
}

func TestContain(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	for _, test := range []struct {
		name, script string
		flags        []string
		status       int
		reason       Reason
		killed       bool
	}{
		{"status", "echo $$ >pid; exit 7", nil, 7, Ended, false},
		{
			"term", `trap 'echo >term; exit 3' TERM; echo >up; while :; do sleep 0.05; done`,
			with(patient, "-beats", "1", "-ready", "up"), 73, Overdue, false,
		},
		{"kill", hydra, with(short, "-beats", "1", "-ready", hydraReady), 73, Overdue, true},
		{"leftovers", `setsid sh -c 'sleep 2; echo >last' & exit 9`, nil, 9, Ended, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := startFamily(t, test.script, with(test.flags, "-contain")...)
			r := f.finish()
			if r.Status != test.status || r.Exit.Reason != test.reason || r.Exit.Killed != test.killed {
				t.Errorf("status %d, %v", r.Status, r.Exit)
			}
			switch test.name {
			case "status":
				if pid := f.await("pid"); pid > 20 {
					t.Errorf("the command has pid %d: not in a namespace of its own", pid)
				}
			case "term":
				f.await("term")
			case "leftovers":
				f.await("last")
				if !strings.Contains(f.stderr.String(), "notice: awaiting [") {
					t.Errorf("no notice of those awaited:\n%s", &f.stderr)
				}
			}
		})
	}
}

// As an ordinary user: a user namespace comes with it, and the command stays that user.
func TestContainUnprivileged(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user; as that user the other tests cover it")
	}
	const nobody = 65534
	f := newFamily(t, "id -u >uid; id -g >gid; "+hydra, "-contain")
	f.publish(nobody)
	f.start()
	f.awaitHydra()
	if uid, gid := f.await("uid"), f.await("gid"); uid != nobody || gid != nobody {
		t.Errorf("the command runs as %d:%d", uid, gid)
	}
	f.killBoth()
	f.eventually("end of the family", func() bool { return len(f.left()) == 0 })
}

// publish lets another user run the driver.
func (f *family) publish(uid uint32) {
	f.t.Helper()
	dir, err := os.MkdirTemp("/tmp", "guard-test-")
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { os.RemoveAll(dir) })
	for _, args := range [][]string{
		{"cp", os.Args[0], dir + "/driver"},
		{"chmod", "755", dir + "/driver", dir},
		{"mkdir", dir + "/work"},
		{"chmod", "777", dir + "/work"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			f.t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	f.dir = dir + "/work"
	f.cmd.Path, f.cmd.Dir = dir+"/driver", f.dir
	f.cmd.Args[2] = f.file("report")
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}

func TestContainRefused(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "echo >ran", "-contain")
	// The limits of namespaces are a user namespace's own: nothing of the machine is touched.
	f.cmd.Args = append([]string{
		"unshare", "-U", "-r", "sh", "-c",
		`echo 0 >/proc/sys/user/max_pid_namespaces || exit 99; exec "$@"`, "sh",
	}, f.cmd.Args...)
	path, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip(err)
	}
	f.cmd.Path = path
	f.start()
	if f.wait() == 99 || f.wait() == 1 {
		t.Skipf("cannot forbid namespaces here: %s", &f.stderr)
	}
	r := f.finish()
	if r.Status != 70 || !strings.Contains(r.Started, "contain refused") ||
		!strings.Contains(r.Started, "do without contain") {
		t.Errorf("status %d, error %q", r.Status, r.Started)
	}
	if _, err := os.Stat(f.file("ran")); err == nil {
		t.Error("the command was run")
	}
}
