// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// Terminal tests: a driver under an interactive bash in a private tmux server.
//
// Programs that Ctrl-Z stops here start no process at that moment. A shell that starts one by
// vfork waits for it in the kernel, where no signal stops it, and if the child was stopped
// before its own program began, the shell waits until the child is continued: no shell, with
// or without a guardian, reports a stopped job then.

type screen struct {
	*family
	server string
}

// newScreen starts a shell that knows $DRIVER, the test's driver.
func newScreen(t *testing.T) *screen {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		enginetest.Missing(t, "tmux", "apt-get install tmux does")
	}
	s := &screen{family: &family{t: t, dir: t.TempDir()}}
	s.server = fmt.Sprintf("guard-%d-%d", os.Getpid(), time.Now().UnixNano())
	s.mark = fmt.Sprintf("%s=%s", markEnv, s.server)
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	rc := fmt.Sprintf("PS1='ready> '; unset HISTFILE\n"+
		"driver() { %s=1 GORACE=atexit_sleep_ms=0 %s -report %s/report \"$@\"; }\n",
		driverEnv, self, s.dir)
	if err := os.WriteFile(s.file("rc"), []byte(rc), 0o600); err != nil {
		t.Fatal(err)
	}
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", "150", "-y", "50", "-c", s.dir,
		"env "+s.mark+" bash --noprofile --rcfile "+s.file("rc")+" -i")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("screen:\n%s", strings.TrimSpace(s.text()))
		}
		socket, _ := exec.Command("tmux", "-L", s.server, "display-message", "-p", "#{socket_path}").Output()
		_ = exec.Command("tmux", "-L", s.server, "kill-server").Run()
		_ = os.Remove(strings.TrimSpace(string(socket))) // the server leaves it
		for end := time.Now().Add(awaited); len(s.left()) > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("left behind: %v", s.left())
				for _, p := range s.left() {
					_ = testProc().signal(p, 9)
				}
				return
			}
		}
	})
	s.see("ready>")
	return s
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-L", s.server}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

func (s *screen) text() string {
	out, _ := exec.Command("tmux", "-L", s.server, "capture-pane", "-p", "-S", "-200").Output()
	return string(out)
}

// line types a line; key presses a key.
func (s *screen) line(text string) {
	s.t.Helper()
	s.tmux("send-keys", "-l", text)
	s.key("Enter")
}

func (s *screen) key(name string) {
	s.t.Helper()
	s.tmux("send-keys", name)
}

func (s *screen) see(text string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%q on the screen", text), func() bool {
		return strings.Contains(s.text(), text)
	})
}

// stopAgain waits for the second stop of the job. The notice comes before it, and a shell
// continues only what is stopped.
func (s *screen) stopAgain() {
	s.t.Helper()
	s.eventually("second stop", func() bool {
		return strings.Count(s.text(), "notice: suspended") == 2 && slices.ContainsFunc(s.left(), func(p process) bool {
			return p.state == 'T' && strings.HasPrefix(p.name, "guard.test")
		})
	})
}

// play types, presses keys and waits as a script says: "> LINE" types a line, "key KEY" presses
// a key, "see TEXT" waits for a text on the screen, "N TEXT" for that text N times, "file NAME"
// for a file, "dead N" until no more than N processes are left, "stopped" for the second stop.
func (s *screen) play(script string) {
	s.t.Helper()
	for line := range strings.Lines(strings.TrimSpace(script)) {
		what, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.Atoi(what)
		switch {
		case what == ">":
			s.line(text)
		case what == "key":
			s.key(text)
		case what == "see":
			s.see(text)
		case what == "file":
			s.await(text)
		case what == "dead":
			most, _ := strconv.Atoi(text)
			s.eventually("end of the command", func() bool { return len(s.left()) <= most })
		case what == "stopped":
			s.stopAgain()
		case n > 0:
			s.eventually(text+" again", func() bool { return strings.Count(s.text(), text) == n })
		default:
			s.t.Fatalf("%q is not known", line)
		}
	}
}

func TestTerminal(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	const suspended = `
		> driver -term 20s -kill 22s -expiry 30s %s -- sh -c 'echo running-$((1+1)); read x; echo got-$x; exit 6'; echo status-$?
		see running-2
		key C-z
		see Stopped
		see status-148
		> jobs; echo shell-$((40+2))
		see shell-42
		> fg; echo status-$?
		see notice: resumed
		> hello
		see got-hello
		see status-6`
	for name, script := range map[string]string{
		"Input": `
			> driver -- sh -c 'read x </dev/tty; echo got-$x; exit 5'; echo status-$?
			file started
			> hello
			see got-hello
			see status-5
			> echo back-$((40+2))
			see back-42`, // the shell has its terminal back
		"Interrupt": `
			> driver -- sh -c 'echo running-$((1+1)); exec sleep 1000'; echo status-$?
			see running-2
			key C-c
			see status-130`,
		"SuspendAndForeground": fmt.Sprintf(suspended, ""), // 148 is the shell's word for a stopped job
		"Contain":              fmt.Sprintf(suspended, "-contain"),
		"SuspendTwice": `
			> driver -- sh -c 'echo running-$((1+1)); exec sleep 1000'
			see running-2
			key C-z
			see notice: suspended
			see Stopped
			> fg
			see notice: resumed
			key C-z
			stopped
			> echo shell-$((40+2))
			see shell-42
			> fg; echo status-$?
			2 notice: resumed
			key C-c
			see status-130`,
		// It reads the terminal, which is the shell's: the job is stopped, and fg gives it the terminal.
		"SuspendAndBackground": `
			> mkfifo go; driver -- sh -c 'echo waiting-$((1+1)); read x <go; echo working-$((1+1)); read x; echo got-$x; exit 7'
			see waiting-2
			key C-z
			see Stopped
			> bg
			see notice: resumed
			> echo >go
			see working-2
			stopped
			> fg; echo status-$?
			2 notice: resumed
			> hello
			see got-hello
			see status-7`,
		// fg comes after the notice that the job is about to be stopped, and before the stop.
		"ForegroundBeforeTheStop": `
			> driver -linger 800ms -- sh -c 'echo waiting-$((1+1)); read x; echo got-$x; exit 7' &
			see waiting-2
			see notice: suspended
			> fg; echo status-$?
			see notice: resumed
			> hello
			see got-hello
			see status-7`,
		// The command is dead after the deadline, and the guardian continues the stopped job past
		// the expiry: it ends by itself with 73.
		"SuspendPastTheDeadline": `
			> driver -term 1s -kill 2s -expiry 4s -ready up -- sh -c 'trap "" TERM; echo >up; echo running-$((1+1)); exec sleep 1000'
			see running-2
			file counting
			key C-z
			see Stopped
			dead 1
			> echo shell-$((40+2))
			see Exit 73
			> fg; echo over-$?
			see over-1`,
		// fg after the deadline, before the expiry: shell, driver and guardian are left.
		"ForegroundPastTheDeadline": `
			> driver -term 1s -kill 1500ms -expiry 60s -ready up -- sh -c 'trap "" TERM; echo >up; echo running-$((1+1)); exec sleep 1000'
			see running-2
			file counting
			key C-z
			see Stopped
			dead 3
			> fg; echo status-$?
			see status-73
			> echo shell-$((40+2))
			see shell-42`,
		// The terminal's modes come back when the command was killed.
		"Modes": `
			> driver -- sh -c 'stty raw -echo; kill -9 $$'; stty -a | tr ';' '\n' | grep -c -E ' -(icanon|echo) '; echo status-$?
			see status-1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newScreen(t).play(script)
		})
	}
}

// In a pipeline the others may want the terminal; the command gets it when it asks.
func TestTerminalPipeline(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	s.line(`driver -- sh -c 'read x; echo got-$x' | sh -c 'cat; read y </dev/tty; echo then-$y'; ` +
		`echo status-${PIPESTATUS[*]}`)
	s.eventually("the command", func() bool { return len(s.left()) >= 4 })
	s.line("hello")
	s.see("got-hello")
	s.line("world")
	s.see("then-world")
	s.see("status-0 0")
	if err := os.Remove(s.file("started")); err != nil { // the first driver's
		t.Fatal(err)
	}
	s.line(`driver -- sleep 100 | (trap '' INT; cat)`)
	s.await("started")
	s.key("C-z")
	s.see("notice: suspended")
	s.line("fg")
	s.see("notice: resumed")
	s.key("C-c")
	s.eventually("end of the pipeline", func() bool { return !s.running() })
	if b, _ := os.ReadFile(s.file("report")); !strings.Contains(string(b), `"Status":130`) {
		t.Errorf("report %s", b)
	}
}

// While what the command left behind is awaited, the terminal is the caller's: Ctrl-C reaches it.
func TestTerminalWhileAwaiting(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	s.line(`driver -- sh -c 'setsid sleep 100 & exit 4'; echo status-$?`)
	s.see("notice: awaiting [")
	s.key("C-c")
	s.see("signal: interrupt")
	for _, p := range s.left() {
		if p.name == "sleep" {
			_ = testProc().signal(p, 15)
		}
	}
	s.see("status-4")
}

// running reports whether anything but the shell is there.
func (s *screen) running() bool {
	left := s.left()
	if slices.ContainsFunc(left, func(p process) bool { return p.name != "bash" }) {
		return true
	}
	// What ends has no environment any more before its parent hears of it, and can reap it.
	table, err := readProcesses()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range table.all {
		if slices.ContainsFunc(left, func(shell process) bool { return p.ppid == shell.pid }) {
			return true
		}
	}
	return false
}
