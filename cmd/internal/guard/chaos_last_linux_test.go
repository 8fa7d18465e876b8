// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The last act of a guardian whose caller was killed.

// lastArg marks the program that a guardian executes in the end.
const lastArg = "--guard-test-last"

// lastReport is what that program has found.
type lastReport struct {
	At, Ended, Expiry Instant
	Alive             []string // of the family, by their command lines
	Files             []string // that it has open, the first three
	Others            []string // and those that are inherited beside them
}

// lastAct is that program.
func lastAct(args []string) {
	r := lastReport{At: Now()}
	var err error
	if r.Ended, err = ParseInstant(args[1]); err == nil {
		r.Expiry, err = ParseInstant(args[2])
	}
	if err != nil {
		r.Alive = append(r.Alive, err.Error())
	}
	mark := ""
	for _, e := range os.Environ() {
		if strings.HasPrefix(e, markEnv+"=") {
			mark = e
		}
	}
	table, err := readProcesses()
	if err != nil {
		r.Alive = append(r.Alive, err.Error())
	}
	for _, p := range table.all {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
		if err == nil && p.pid != os.Getpid() && slices.Contains(strings.Split(string(env), "\x00"), mark) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
			r.Alive = append(r.Alive, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	for fd := range 3 {
		name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		r.Files = append(r.Files, name)
	}
	for fd := range inheritedDescriptors() {
		name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		r.Others = append(r.Others, name)
	}
	b, _ := json.Marshal(r)
	_ = os.WriteFile(args[0]+".new", append(b, '\n'), 0o600)
	_ = os.Rename(args[0]+".new", args[0])
}

func (f *family) lastReport() (r lastReport) {
	f.t.Helper()
	f.eventually("the last act", func() bool {
		_, err := os.Stat(f.file("last"))
		return err == nil
	})
	b, err := os.ReadFile(f.file("last"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// The caller is killed: when nothing is left, and not before, the guardian executes what
// was given to it for that, with no file open that anybody may wait for.
func TestLast(t *testing.T) {
	t.Parallel()
	for _, contain := range []bool{false, true} {
		t.Run(fmt.Sprintf("contain=%t", contain), func(t *testing.T) {
			t.Parallel()
			f := newFamily(t, hydra, with(nil, "-last", "last", fmt.Sprintf("-contain=%t", contain))...)
			extra, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			f.cmd.ExtraFiles = []*os.File{extra} // goes on to the command, and no further
			f.start()
			_ = extra.Close()
			f.awaitHydra()
			before := Now()
			f.signal(f.cmd.Process.Pid, syscall.SIGKILL)
			r := f.lastReport()
			f.wait()
			if len(r.Alive) > 0 {
				t.Errorf("alive when nothing was to be left: %v", r.Alive)
			}
			if r.Ended < before || r.Ended > r.At || r.Expiry <= r.At {
				t.Errorf("killed at %v or later: ended at %v, executed at %v, expiry %v", before, r.Ended, r.At, r.Expiry)
			}
			if want := []string{os.DevNull, os.DevNull, os.DevNull}; !slices.Equal(r.Files, want) || len(r.Others) > 0 {
				t.Errorf("open: %v, and %v", r.Files, r.Others)
			}
			f.eventually("its end", func() bool { return len(f.left()) == 0 })
		})
	}
}

// If the guardian cannot know that no process is left, or another process reports the end,
// there is no last act.
func TestNoLast(t *testing.T) {
	t.Parallel()
	none := func(f *family) {
		f.t.Helper()
		f.wait()
		f.eventually("end of all", func() bool { return len(f.left()) == 0 })
		if _, err := os.Stat(f.file("last")); err == nil {
			f.t.Error("there was a last act")
		}
	}
	t.Run("the command ends", func(t *testing.T) {
		t.Parallel()
		f := startFamily(t, "exit 3", "-last", "last")
		if status := f.wait(); status != 3 {
			t.Errorf("status %d", status)
		}
		none(f)
	})
	t.Run("the guardian is killed first", func(t *testing.T) {
		t.Parallel()
		f := startFamily(t, hydra, "-last", "last")
		f.awaitHydra()
		f.signal(f.guardian(), syscall.SIGKILL)
		f.wait()
		none(f)
	})
	t.Run("nonsense in the pipe", func(t *testing.T) {
		t.Parallel()
		f := newFamily(t, hydra, "-last", "last", "-nonsense", "go")
		f.start()
		f.awaitHydra()
		f.write("go")
		f.eventually("end of the family", f.dead)
		none(f)
	})
	t.Run("the caller lives, and has closed the pipe", func(t *testing.T) {
		t.Parallel()
		f := newFamily(t, hydra, with(short, "-last", "last", "-ready", hydraReady, "-hangup", "hang-up")...)
		f.start()
		f.awaitHydra()
		f.await("counting")
		f.write("hang-up")
		f.eventually("end of the family", f.dead)
		none(f)
	})
}

// A caller that is stopped, or slow to die, is not dead: the end of its pipe alone is no
// proof.
func TestCallerEnded(t *testing.T) {
	t.Parallel()
	sleeper := func() (pid int, end func()) {
		p, err := os.StartProcess("/bin/sleep", []string{"sleep", "100"}, &os.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		return p.Pid, func() {
			_ = p.Kill()
			_, _ = p.Wait()
		}
	}
	pid, end := sleeper()
	defer end()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Skipf("pidfd_open: %v", err)
	}
	defer func() { _ = unix.Close(fd) }()
	g := &guardian{clock: Now, parentFD: fd, orders: orders{Limits: Limits{Expiry: Now().Add(100 * time.Millisecond)}}}
	if g.callerEnded() {
		t.Error("it lives")
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if g.callerEnded() {
		t.Error("it is stopped, and lives")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	g.orders.Expiry = Now().Add(awaited)
	if !g.callerEnded() {
		t.Error("it has ended, and waits to be reaped")
	}
	g = &guardian{clock: Now, parentFD: -1, spec: guardianSpec{contain: true}, orders: g.orders}
	if g.callerEnded() {
		t.Error("nothing tells of it in a namespace")
	}
	g = &guardian{clock: Now, parentFD: -1, spec: guardianSpec{parent: os.Getppid()}}
	if g.callerEnded() {
		t.Error("its parent is the same")
	}
	if g.spec.parent = pid; !g.callerEnded() {
		t.Error("its parent is another one")
	}
}
