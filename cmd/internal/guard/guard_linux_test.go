// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// short are limits that a test can wait for. What is to end by itself between SIGTERM and
// SIGKILL has patient ones.
var (
	short   = []string{"-term", "700ms", "-kill", "1200ms", "-expiry", "2200ms"}
	patient = []string{"-term", "700ms", "-kill", "30s", "-expiry", "40s"}
)

func with(flags []string, more ...string) []string {
	return append(append([]string{}, flags...), more...)
}

func TestExitStatus(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		script string
		status int
		signal syscall.Signal
	}{
		{"exit 0", 0, 0},
		{"exit 7", 7, 0},
		{"exit 255", 255, 0},
		{"kill -TERM $$", 143, syscall.SIGTERM},
		{"kill -KILL $$", 137, syscall.SIGKILL},
	} {
		f := startFamily(t, test.script)
		r := f.finish()
		if status := f.wait(); status != test.status || r.Exit.Signal != test.signal || r.Exit.Reason != Ended {
			t.Errorf("%s: status %d, %v; want status %d", test.script, status, r.Exit, test.status)
		}
	}
}

func TestStdinPassesThrough(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "cat >copy")
	f.cmd.Stdin = strings.NewReader("one\ntwo\n")
	f.start()
	f.finish()
	if b, _ := os.ReadFile(f.file("copy")); string(b) != "one\ntwo\n" {
		t.Errorf("the command read %q", b)
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	f := newFamily(t, `
		for s in $(seq 64); do case $s in 9|19|32|33|34) ;; *) trap "echo $s >>got-$s" $s;; esac; done
		echo $$ >ready
		while [ ! -e end ]; do sleep 0.05; done
		exit 0 # and not as the last signal has ended sleep`)
	f.start()
	f.await("ready")
	passed := []string{"TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "WINCH", "CONT", "IO", "PWR"}
	for _, sig := range Signals() {
		n := sig.(syscall.Signal)
		passed = slices.DeleteFunc(passed, func(name string) bool { return unix.SignalNum("SIG"+name) == n })
		f.signal(f.guardian(), n) // as a service manager does to all of a unit
		f.signal(f.cmd.Process.Pid, n)
		f.await("got-" + strconv.Itoa(int(n)))
	}
	if len(passed) > 0 {
		t.Errorf("not passed on: %v", passed)
	}
	if err := os.WriteFile(f.file("end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := f.finish(); r.Status != 0 {
		t.Errorf("status %d, want 0", r.Status)
	}
}

// What came ignored (nohup) stays ignored in the command, and what the guardian is deaf to does not.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	f := newFamily(t, `grep -E 'Sig(Ign|Blk)' /proc/self/status >signals`)
	f.cmd.Args = append([]string{"sh", "-c", `trap '' HUP; exec "$@"`, "sh"}, f.cmd.Args...)
	f.cmd.Path = "/bin/sh"
	f.start()
	f.finish()
	b, _ := os.ReadFile(f.file("signals"))
	if want := fmt.Sprintf("SigBlk:\t%016x\nSigIgn:\t%016x\n", 0, ignored(t)|1); string(b) != want {
		t.Errorf("signals of the command:\n%swant\n%s", b, want)
	}
}

// ignored returns the signals that this process came to ignore: make, for one,
// leaves signal 32 so.
func ignored(t *testing.T) uint64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "SigIgn:\t")
	text, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestLimitsExtendedKeepTheCommandAlive(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	f := startFamily(t, "echo >up; sleep 5; exit 5", "-term", "2s", "-kill", "3s", "-expiry", "4s", "-ready", "up")
	if r := f.finish(); r.Status != 5 || r.Exit.Reason != Ended {
		t.Errorf("%v, want exit status 5", r.Exit)
	}
}

func TestTermAtTheDeadline(t *testing.T) {
	t.Parallel()
	f := startFamily(t, `trap 'echo >term; exit 3' TERM; echo >up; while :; do sleep 0.05; done`,
		with(patient, "-beats", "3", "-ready", "up")...)
	r := f.finish()
	f.await("term")
	if r.Status != 73 || r.Exit.Code != 3 || r.Exit.Reason != Overdue || r.Exit.Killed {
		t.Errorf("%v", r.Exit)
	}
	if !strings.Contains(f.stderr.String(), "notice: terminating") {
		t.Errorf("no notice of the deadline:\n%s", &f.stderr)
	}
}

func TestKillAtTheDeadline(t *testing.T) {
	t.Parallel()
	f := startFamily(t, hydra, with(short, "-beats", "3", "-ready", hydraReady)...)
	f.awaitHydra()
	r := f.finish()
	if r.Spare < 0 {
		t.Errorf("the family outlived the expiry by %v", -r.Spare)
	}
	if r.Status != 73 || r.Exit.Signal != syscall.SIGKILL || r.Exit.Reason != Overdue || !r.Exit.Killed ||
		r.Exit.GuardianLost {
		t.Errorf("%v", r.Exit)
	}
}

// A second SIGTERM means "at once" to many programs, and a shell's trap starts programs that
// have to finish.
func TestTermComesOnceAndSparesCleaners(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	f := startFamily(t, `
		trap 'echo term >>count; sleep 0.3 && echo cleaned >>count' TERM
		echo $$ >ready
		while :; do sleep 0.05; done`, "-term", "500ms", "-kill", "6s", "-expiry", "9s", "-beats", "1", "-ready", "ready")
	f.finish()
	if b, _ := os.ReadFile(f.file("count")); string(b) != "term\ncleaned\n" {
		t.Errorf("the command saw %q", b)
	}
}

// Everything below gets SIGTERM, wherever it went; the stopped see it, too.
func TestTermReachesEverybody(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	f := startFamily(t, `
		member() { setsid sh -c 'trap "echo >>term-'$1'; exit" TERM; echo $$ >'$1'; while :; do sleep 0.05; done'; }
		member one &
		( ( member two & ) & )
		member stopped &
		while [ ! -s stopped ]; do sleep 0.02; done
		sleep 0.1
		kill -STOP $(cat stopped)
		echo $$ >main
		trap 'echo >term-main; exit' TERM
		while :; do sleep 0.05; done`,
		with(patient, "-beats", "1", "-ready", "one,two,stopped,main")...)
	f.await("one", "two", "stopped", "main")
	r := f.finish()
	f.await("term-one", "term-two", "term-stopped", "term-main")
	if r.Exit.Killed {
		t.Errorf("%v: somebody had not got SIGTERM", r.Exit)
	}
}

// A family that forks all the time has nobody left who missed SIGTERM.
// The forking shell has no trap: a child of it would have its handler until it runs its own program,
// and a signal that comes before that is lost in it.
func TestTermWhileForking(t *testing.T) {
	t.Parallel()
	f := startFamily(t, `
		echo $$ >ready
		i=0
		while :; do sleep 1000 & i=$((i+1)); [ $((i % 20)) -ne 0 ] || sleep 0.02; done`,
		with(patient, "-beats", "1", "-ready", "ready")...)
	if r := f.finish(); r.Exit.Killed || r.Exit.Reason != Overdue {
		t.Errorf("%v: somebody had not got SIGTERM", r.Exit)
	}
}

// forking is a family that ignores SIGTERM, forks all the time and leaves its groups and sessions.
const forking = `
trap '' TERM
fork() { while :; do setsid sh -c 'sleep 1000' & sleep 0.01; done; }
fork & setsid sh -c 'while :; do sleep 0.01; (sleep 1000 &); done' &
echo $$ >main
fork
`

func TestKillWhileForking(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	f := startFamily(t, forking, with(short, "-beats", "1", "-ready", "main")...)
	if r := f.finish(); !r.Exit.Killed {
		t.Errorf("%v", r.Exit)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	f := startFamily(t, hydra, "-term", "60s", "-kill", "65s", "-expiry", "70s", "-stop", "1s", "-ready", hydraReady)
	f.awaitHydra()
	begun := time.Now()
	r := f.finish()
	if r.Exit.Reason != Stopped || !r.Exit.Killed {
		t.Errorf("%v", r.Exit)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("stopping took %v", took)
	}
}

// The lease bounds what Stop allows.
func TestStopWithinTheLimits(t *testing.T) {
	t.Parallel()
	f := startFamily(t, hydra, with(short, "-stop", "500ms", "-allow", "60s", "-beats", "3", "-ready", hydraReady)...)
	f.awaitHydra()
	begun := time.Now()
	if r := f.finish(); r.Exit.Reason != Stopped || !r.Exit.Killed {
		t.Errorf("%v", r.Exit)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("stopping took %v", took)
	}

	o := orders{Limits: Limits{Term: 10, Kill: 20, Expiry: 30}}
	if o.term(9) || !o.term(10) || o.kill() != 20 || o.reason(Ended) != Overdue {
		t.Errorf("%+v", o)
	}
	o.stop = 15
	if !o.term(1) || o.kill() != 15 || o.reason(Ended) != Stopped {
		t.Errorf("%+v", o)
	}
	if o.stop = 25; o.kill() != 20 {
		t.Errorf("%+v", o)
	}
}

func TestLeftoversAreAwaited(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	f := startFamily(t, `setsid sh -c 'sleep 3; echo >last' & exit 3`, "-beat", "20ms")
	r := f.finish()
	if _, err := os.Stat(f.file("last")); err != nil {
		t.Errorf("not awaited: %v", err)
	}
	if r.Status != 3 || r.Exit.Reason != Ended {
		t.Errorf("%v, want exit status 3", r.Exit)
	}
	if s := f.stderr.String(); !strings.Contains(s, "notice: awaiting [") || !strings.Contains(s, " sleep}") {
		t.Errorf("no notice of those awaited:\n%s", s)
	}
}

func TestLeftoversDieAtTheDeadline(t *testing.T) {
	t.Parallel()
	f := startFamily(t, `setsid sh -c 'trap "" TERM; echo >deaf; while :; do sleep 100; done' & exit 3`,
		with(short, "-beats", "1", "-ready", "deaf")...)
	if r := f.finish(); r.Status != 73 || r.Exit.Code != 3 || r.Exit.Reason != Overdue || !r.Exit.Killed {
		t.Errorf("%v", r.Exit)
	}
}

// The pipes end with their owners only if nobody else has them; and the command gets what the
// caller was started with under its own number.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	const list = `ls /proc/self/fd | tr '\n' ' '`
	// What the tests were themselves started with is passed on, too.
	plain, err := exec.Command("sh", "-c", list).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, extra := range []int{0, 2} {
		f := newFamily(t, list+` >fds; [ ! -e /proc/self/fd/4 ] || cat <&4 >four`)
		for range extra {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = w.WriteString("hello")
			_ = w.Close()
			defer r.Close()
			f.cmd.ExtraFiles = append(f.cmd.ExtraFiles, r)
		}
		f.start()
		f.finish()
		want := string(plain)
		if extra == 2 {
			all := strings.Fields(want)
			lowest := func() string { // that is free, which ls has for its own
				for fd := 3; ; fd++ {
					if s := strconv.Itoa(fd); !slices.Contains(all, s) {
						return s
					}
				}
			}
			own := 3 // in plain it is the last of those without a gap
			for slices.Contains(all, strconv.Itoa(own+1)) {
				own++
			}
			all = slices.DeleteFunc(all, func(s string) bool { return s == strconv.Itoa(own) || s == "3" || s == "4" })
			all = append(all, "3", "4")
			all = append(all, lowest())
			slices.Sort(all)
			want = strings.Join(all, " ") + " "
			if b, _ := os.ReadFile(f.file("four")); string(b) != "hello" {
				t.Errorf("the command read %q from descriptor 4", b)
			}
		}
		if b, _ := os.ReadFile(f.file("fds")); string(b) != want {
			t.Errorf("descriptors of the command: %q, want %q", b, want)
		}
	}

	// With many gaps, into which the caller's own descriptors fall.
	open, read, want := "", "", ""
	for fd := 3; fd < 30; fd += 2 {
		open += fmt.Sprintf("exec %d<<<%d; ", fd, fd)
		read += fmt.Sprintf("cat <&%d; ", fd)
		want += fmt.Sprintf("%d\n", fd)
	}
	f := newFamily(t, `bash -c '`+read+`' >all`)
	f.cmd.Args = append([]string{"bash", "-c", open + `exec "$@"`, "bash"}, f.cmd.Args...)
	f.cmd.Path = "/bin/bash"
	f.start()
	f.finish()
	if b, _ := os.ReadFile(f.file("all")); string(b) != want {
		t.Errorf("the command read %q, want %q", b, want)
	}
}
