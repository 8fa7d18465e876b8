// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// Tests that are themselves the caller. None of them runs in parallel with others: there is one
// guard at a time in a process.

func here(args ...string) Command {
	return Command{Args: args, Env: append(os.Environ(), "GORACE=atexit_sleep_ms=0")}
}

func in(d time.Duration) Limits {
	now := Now()
	return Limits{Term: now.Add(d), Kill: now.Add(2 * d), Expiry: now.Add(3 * d)}
}

func TestNotStarted(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "#!/bin/sh\n", 0o644)
	alien := write("alien", "\x7fALIEN\x00\x00", 0o755)
	orphan := write("orphan", "#!/no/such/interpreter\n", 0o755)
	path := "PATH=/nowhere:" + dir
	for _, test := range []struct {
		cmd    Command
		want   error
		status int
		text   string
	}{
		{here("no-such-command-at-all"), ErrNotFound, 127, `"no-such-command-at-all" is not in PATH`},
		{here("/no/such/file"), ErrNotFound, 127, "/no/such/file"},
		{here(), ErrNotFound, 127, "no command"},
		{here(plain), ErrCannotRun, 126, "permission denied"},
		{here(dir), ErrCannotRun, 126, "directory"},
		{here(alien), ErrCannotRun, 126, "exec format error"},
		{here(orphan), ErrCannotRun, 126, "interpreter"},
		{here("true", strings.Repeat("x", 1<<18)), ErrGuardian, 0, "argument list too long"},
		{Command{Args: []string{"plain"}, Env: []string{path}}, ErrCannotRun, 126, "permission denied"},
		{Command{Args: []string{"other"}, Env: []string{path}}, ErrNotFound, 127, "not in PATH"},
		{here("./nothing"), ErrNotFound, 127, "./nothing"},
	} {
		g, err := Start(test.cmd, in(time.Minute))
		if err == nil {
			t.Errorf("%q started", test.cmd.Args)
			g.Stop(0)
			g.Wait()
			continue
		}
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) || StartStatus(err) != test.status {
			t.Errorf("%.40q: error %q, status %d; want %q, %q, status %d",
				test.cmd.Args, err, StartStatus(err), test.want, test.text, test.status)
		}
	}
	if children := descendantsOf(t, os.Getpid()); len(children) > 0 {
		t.Errorf("left behind: %v", children)
	}
}

func TestNeverStartedAfterTerm(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	late := in(time.Minute)
	late.Term = Now()
	if _, err := Start(here("touch", file), late); !errors.Is(err, ErrTooLate) {
		t.Errorf("error %v, want %v", err, ErrTooLate)
	}
	// And the guardian's own look, for when it was slow to start.
	if _, err := begin(here("touch", file), "/usr/bin/touch", late); !errors.Is(err, ErrTooLate) {
		t.Errorf("error %v from the guardian, want %v", err, ErrTooLate)
	}
	if _, err := Start(here("true"), Limits{Term: 3, Kill: 2, Expiry: 4}); err == nil ||
		!strings.Contains(err.Error(), "out of order") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the command was run")
	}
}

// TestLimitsWhileStarting lets the limits pass at each point of a start: the
// caller gets an error about the time, never about something broken.
func TestLimitsWhileStarting(t *testing.T) {
	enginetest.MakeVerify(t)
	overdue := 0
	for d := 500 * time.Microsecond; d < 60*time.Millisecond; d += 500 * time.Microsecond {
		g, err := Start(here("sleep", "60"), in(d/2))
		switch {
		case err == nil:
			if exit := g.Wait(); exit.Reason != Overdue {
				t.Errorf("limits in %v: it ended as %v", d, exit)
			}
		case errors.Is(err, ErrOverdue):
			overdue++
		case !errors.Is(err, ErrTooLate):
			t.Errorf("limits in %v: %v", d, err)
		}
	}
	t.Logf("the limits passed %d times while the guardian was starting", overdue)
	if children := descendantsOf(t, os.Getpid()); len(children) > 0 {
		t.Errorf("left behind: %v", children)
	}
}

func TestGuardianStartedByHand(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"fd=0,parent=1,contain=false,confined=false,foreground=false", "/bin/true", "true"},
		{"?", "/bin/true", "true"},
		{"fd=3,parent=1,contain=true,confined=false,foreground=false", "/bin/true", "true"},
	} {
		cmd := exec.Command("/proc/self/exe", append([]string{guardianArg}, args...)...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 64 || !strings.Contains(string(out), "started by hand") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

// Ctrl-Z while the guardian starts is not lost: the rest of the pipeline would stand still beside
// a command that runs on.
func TestSignalBeforeTheStart(t *testing.T) {
	theirIn, toIt, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromIt, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	spec := guardianSpec{fd: 3, parent: os.Getpid()}
	cmd := exec.Command("/proc/self/exe", guardianArg, spec.String(), "/bin/sleep", "sleep", "100")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	b := frame{kind: frameSignal, arg: int32(syscall.SIGTSTP)}.append(nil)
	b = frame{kind: frameOrders, orders: orders{Limits: in(time.Minute)}}.append(b)
	if _, err := toIt.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	defer func() {
		_ = toIt.Close() // the guardian kills the command, and ends
		_ = cmd.Wait()
		_ = fromIt.Close()
	}()
	if err := fromIt.SetReadDeadline(time.Now().Add(awaited)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []frameKind{frameStarting, frameStarted, frameStopped} {
		got := make([]byte, frameSize)
		if _, err := io.ReadFull(fromIt, got); err != nil {
			t.Fatalf("waiting for frame %d: %v", want, err)
		}
		if f, err := parseFrame(got); err != nil || f.kind != want {
			t.Fatalf("frame %+v, %v; want kind %d", f, err, want)
		}
	}
}

func TestOneAtATime(t *testing.T) {
	g, err := Start(here("sleep", "100"), in(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(here("true"), in(time.Minute)); !errors.Is(err, ErrBusy) {
		t.Errorf("error %v, want %v", err, ErrBusy)
	}
	g.Signal(syscall.SIGTERM)
	if e := g.Wait(); e.Status() != 143 || e.Reason != Ended {
		t.Errorf("%v", e)
	}
	// After the end everything is allowed and does nothing.
	g.Extend(in(time.Minute))
	g.Stop(0)
	g.Signal(syscall.SIGTERM)
	g.Wait()
}

func TestEnvironment(t *testing.T) {
	out := t.TempDir() + "/out"
	cmd := Command{
		Args: []string{"sh", "-c", "env | grep ^GUARD_ >" + out},
		Env:  []string{"PATH=" + os.Getenv("PATH"), "GUARD_A=1", "GUARD_A=2", "GORACE=atexit_sleep_ms=0"},
	}
	g, err := Start(cmd, in(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if e := g.Wait(); e.Status() != 0 {
		t.Error(e)
	}
	if b, _ := os.ReadFile(out); string(b) != "GUARD_A=2\n" {
		t.Errorf("the command saw %q", b)
	}
}

// A guardian that does not read holds up nobody, and finds the newest limits when it goes on.
func TestExtendNeverBlocks(t *testing.T) {
	g, err := Start(here("sleep", "100"), in(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(g.guardian, syscall.SIGSTOP)
	begun := time.Now()
	for range 20_000 { // the pipe holds 1,600 frames
		g.Extend(in(20 * time.Second))
		g.Signal(syscall.SIGUSR1)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	g.mu.Lock()
	if len(g.queue) > maxQueue {
		t.Errorf("%d frames are queued, the limit is %d", len(g.queue), maxQueue)
	}
	g.mu.Unlock()
	_ = syscall.Kill(g.guardian, syscall.SIGCONT)
	if e := g.Wait(); e.Signal != syscall.SIGUSR1 || e.Reason != Ended {
		t.Errorf("%v", e)
	}
}

// After Wait no goroutine, descriptor, process or zombie is left, and the process is no subreaper.
func TestNothingIsLeft(t *testing.T) {
	fds := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	once := func() {
		g, err := Start(here("sh", "-c", "(sleep 0.2 &); exit 2"), in(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if e := g.Wait(); e.Status() != 2 {
			t.Error(e)
		}
		if _, err := Start(here("/etc"), in(time.Minute)); err == nil {
			t.Error("a directory was run")
		}
	}
	once() // os/signal starts a goroutine that stays
	goroutines, descriptors := runtime.NumGoroutine(), fds()
	for range 3 {
		once()
	}
	for end := time.Now().Add(awaited); runtime.NumGoroutine() > goroutines && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		buf := make([]byte, 1<<16)
		t.Errorf("%d goroutines, %d before:\n%s", n, goroutines, buf[:runtime.Stack(buf, true)])
	}
	if n := fds(); n > descriptors {
		t.Errorf("%d descriptors, %d before", n, descriptors)
	}
	if children := descendantsOf(t, os.Getpid()); len(children) > 0 {
		t.Errorf("left behind: %v", children)
	}
	var is int32
	if err := prctlGetSubreaper(&is); err != nil || is != 0 {
		t.Errorf("subreaper %d, %v", is, err)
	}
}

// Both the caller and the guardian are subreapers while the command runs.
func TestOrphansStayInTheTree(t *testing.T) {
	dir := t.TempDir()
	cmd := here("sh", "-c", `cd "$0"; ( ( setsid sh -c 'echo $$ >orphan; sleep 100' & ) & )
		while [ ! -s orphan ]; do sleep 0.01; done; sleep 100`, dir)
	g, err := Start(cmd, in(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { g.Stop(0); g.Wait() }()
	var orphan int
	for end := time.Now().Add(awaited); orphan == 0; time.Sleep(5 * time.Millisecond) {
		b, _ := os.ReadFile(dir + "/orphan")
		if _, err := fmt.Sscan(string(b), &orphan); err != nil && time.Now().After(end) {
			t.Fatal("no orphan")
		}
	}
	for end := time.Now().Add(awaited); ; time.Sleep(5 * time.Millisecond) {
		p, err := readProcess(orphan)
		if err != nil {
			t.Fatal(err)
		}
		if p.ppid == g.guardian {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the orphan's parent is %d, want the guardian %d", p.ppid, g.guardian)
		}
	}
	var is int32
	if err := prctlGetSubreaper(&is); err != nil || is != 1 {
		t.Errorf("the caller is no subreaper: %d, %v", is, err)
	}
}

func descendantsOf(t *testing.T, root int) []process {
	t.Helper()
	table, err := readProcesses()
	if err != nil {
		t.Fatal(err)
	}
	return table.descendants(root)
}

func TestFrames(t *testing.T) {
	want := frame{kind: frameOrders, arg: -5, orders: orders{
		Limits: Limits{Term: 1, Kill: 1 << 40, Expiry: 1<<63 - 1},
		stop:   7,
	}}
	b := want.append(nil)
	got, err := parseFrame(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	b[0]++
	if _, err := parseFrame(b); !errors.Is(err, errFrame) {
		t.Errorf("error %v, want %v", err, errFrame)
	}
	if _, err := parseFrame(b[:frameSize-1]); !errors.Is(err, errFrame) {
		t.Errorf("error %v, want %v", err, errFrame)
	}
}

func TestParseStat(t *testing.T) {
	line := "42 (a) b (c) S 7 9 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 9 10 11\n"
	p, err := parseStat(42, []byte(line))
	want := process{pid: 42, ppid: 7, pgrp: 9, state: 'S', name: "a) b (c", start: 123456}
	if err != nil || p != want {
		t.Errorf("%+v, %v; want %+v", p, err, want)
	}
	for _, bad := range []string{"", "42", "42 (a", "42 (a) S 1 2"} {
		if _, err := parseStat(42, []byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// A number that has changed hands is not signalled.
func TestSignalChecksTheStartTime(t *testing.T) {
	p, err := readProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p.start--
	if err := testProc().signal(p, syscall.SIGKILL); err != nil { // it would end this test
		t.Fatal(err)
	}
}

func TestExitText(t *testing.T) {
	for want, e := range map[string]Exit{
		"exit status 3": {Code: 3},
		"signal 9 (killed), past its deadline, killed": {Code: -1, Signal: syscall.SIGKILL, Reason: Overdue, Killed: true},
		"exit status 0, lost its guardian":             {Reason: Abandoned, GuardianLost: true},
		"exit status 1, stopped on request, guardian lost": {
			Code: 1, Reason: Stopped, GuardianLost: true,
		},
	} {
		if got := e.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestGuardianKilledAtTheStart has a command kill the guardian before that can say that
// it has begun, mostly: on one processor the command comes first. It has begun, and must
// not be taken for a command that can be started again.
func TestGuardianKilledAtTheStart(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for i := range len(all) * 64 {
		if all.IsSet(i) {
			one.Set(i)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	for range 20 {
		ran := filepath.Join(t.TempDir(), "ran")
		g, err := Start(here("sh", "-c", `: >"$0"; kill -9 $PPID; sleep 100`, ran), in(time.Minute))
		if err != nil {
			if _, missing := os.Stat(ran); missing == nil {
				t.Errorf("it has begun: %v", err)
			}
			continue
		}
		if e := g.Wait(); e.Status() != 137 || e.Reason == Ended {
			t.Errorf("%+v", e)
		}
	}
}
