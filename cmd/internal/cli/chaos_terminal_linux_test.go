// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// terminal is a shell on a terminal: tmux with a server of its own.
type terminal struct {
	s      *harness
	socket string
}

func (s *harness) terminal() *terminal {
	s.t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		enginetest.Missing(s.t, "tmux", "apt-get install tmux does")
	}
	x := &terminal{s: s, socket: s.path("tmux.sock")}
	s.t.Cleanup(func() { _ = x.command("kill-server").Run() })
	s.write("bashrc", "PS1='$ '\n")
	x.tmux("new-session", "-d", "-x", "150", "-y", "40", "bash --rcfile "+s.path("bashrc")+" -i")
	x.await("$")
	return x
}

func (x *terminal) command(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-S", x.socket, "-f", "/dev/null"}, args...)...)
	cmd.Dir, cmd.Env = x.s.dir, append(x.s.env(), "TERM=xterm", "PS1=$ ", "HISTFILE=/dev/null")
	return cmd
}

func (x *terminal) tmux(args ...string) string {
	x.s.t.Helper()
	out, err := x.command(args...).CombinedOutput()
	if err != nil {
		x.s.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (x *terminal) keys(keys ...string) {
	x.s.t.Helper()
	x.tmux(append([]string{"send-keys"}, keys...)...)
}

func (x *terminal) screen() string { return x.tmux("capture-pane", "-p") }

// clear empties the screen, without a word to the shell.
func (x *terminal) clear() { x.keys("-R") }

func (x *terminal) await(text string) {
	x.s.t.Helper()
	x.awaitOne(text)
}

// awaitOne waits until one of the texts is on the screen.
func (x *terminal) awaitOne(texts ...string) {
	x.s.t.Helper()
	shown := ""
	defer func() {
		if x.s.t.Failed() {
			x.s.t.Logf("the screen while waiting for %q:\n%s", texts, strings.TrimRight(shown, "\n"))
		}
	}()
	x.s.await(fmt.Sprintf("one of %q on the screen", texts), func() bool {
		shown = x.screen()
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(shown, text) })
	})
}

// grows waits until the log has grown by a few lines.
func (s *harness) grows() {
	s.t.Helper()
	before := len(s.read("log"))
	s.await("more of the log", func() bool { return len(s.read("log")) > before+6 })
}

// ticking is in bash, which forks. A shell that starts sleep by vfork waits for it in the
// kernel, where no signal stops it, and if Ctrl-Z stops the child before its own program
// has begun, the shell reports no stopped job.
const ticking = `bash -c 'while :; do echo x >>"$DIR/log"; sleep 0.1; done'`

func TestTerminalWaiting(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	s := newHarness(t)
	x := s.terminal()
	// While it waits for the lock, one line of the terminal says so.
	holder := s.start("run", "job", "--", "sh", "-c", `echo >"$DIR/up"; exec sleep 60`)
	s.await("a holder", func() bool { return s.read("up") != "" })
	x.clear()
	x.keys(`tenure run job -- sh -c 'echo it is $TENURE_TOKEN'`, "Enter")
	x.await(`waiting for "job" for `)
	holder.signal(syscall.SIGTERM)
	holder.status()
	x.await("it is 2")
	if strings.Contains(x.screen(), "waiting for") {
		t.Errorf("the line of the waiting was left behind:\n%s", x.screen())
	}

	// And Ctrl-C is tenure's own.
	s.write("up", "")
	holder = s.start("run", "job", "--", "sh", "-c", `echo >"$DIR/up"; exec sleep 60`)
	s.await("a holder", func() bool { return s.read("up") != "" })
	x.clear()
	x.keys(`tenure run job -- true; echo "gave up $?"`, "Enter")
	x.await(`waiting for "job" for `)
	before := x.screen()
	s.await("the next second", func() bool {
		now := x.screen()
		return now != before && strings.Contains(now, `waiting for "job" for `)
	})
	if n := strings.Count(x.screen(), "waiting for"); n != 1 {
		t.Errorf("the waiting is shown on %d lines, want 1", n)
	}
	x.keys("C-c")
	x.await("gave up 130")
	if strings.Contains(x.screen(), "waiting for") {
		t.Errorf("the line of the waiting was left behind:\n%s", x.screen())
	}
	holder.signal(syscall.SIGINT)
	holder.status()
}

// Ctrl-Z is reported before this process stops. Past the lease the command is dead, and the
// status is 73.
func TestTerminalStopped(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	s := newHarness(t)
	x := s.terminal()
	x.keys(`tenure run --lease 8s job -- `+ticking, "Enter")
	s.grows()
	x.keys("C-z")
	x.await("tenure: stopped, so no heartbeats are sent; continue within")
	x.await("Stopped")
	size := len(s.read("log"))
	x.await(`the lease of "job" was lost while the command ran`)
	// tenure has ended, or is about to: the shell says so, or fg does.
	x.keys(`fg; echo "fg says $?"`, "Enter")
	x.awaitOne("Exit 73", "fg says 73")
	if now := len(s.read("log")); now != size {
		t.Errorf("the command wrote %d bytes after it was stopped", now-size)
	}
	if p := s.start("run", "--wait", "0", "job", "--", "true"); p.status() != 0 {
		t.Error("the lock was not released")
	}
}

// TestTerminalLeftovers has a command leave a process behind: Ctrl-C asks that process
// to stop, though it ignores Ctrl-C itself, and a second Ctrl-C kills it.
func TestTerminalLeftovers(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	s := newHarness(t)
	x := s.terminal()
	x.keys(`tenure run job -- sh -c 'sleep 60 & setsid sleep 61 & exit 3'; echo "status $?"`, "Enter")
	x.await("Ctrl-C asks them to stop")
	x.keys("C-c")
	x.await("status 3")
	if screen := x.screen(); strings.Contains(screen, "lost") || strings.Contains(screen, "killed") {
		t.Errorf("the screen after a polite end:\n%s", screen)
	}

	x.clear()
	x.keys(`tenure run job -- sh -c '(trap "" TERM; while :; do sleep 0.1; done) & exit 4'; echo "status $?"`, "Enter")
	x.await("Ctrl-C asks them to stop")
	x.keys("C-c")
	x.await("Ctrl-C kills them")
	x.keys("C-c")
	x.await("processes that the command left behind were killed")
	x.await("status 4")
	if p := s.start("run", "--wait", "0", "job", "--", "true"); p.status() != 0 {
		t.Error("the lock was not released")
	}
}

func TestTerminalWatch(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	s := newHarness(t)
	if p := s.start("run", "--owner", "cron-1", "job", "--", "true"); p.status() != 0 {
		t.Fatal("status", p.status())
	}
	x := s.terminal()
	x.keys(`tenure status --watch --refresh 100ms; echo "status $?"`, "Enter")
	x.await("job   free   cron-1")
	p := s.start("run", "--owner", "web-7", "job", "--", "sh", "-c", `until [ -e "$DIR/go" ]; do sleep 0.05; done`)
	x.await("job   held   web-7")
	s.write("go", "")
	x.await("job   free   web-7")
	p.status()

	// Ctrl-Z gives the screen back, and fg draws the table again.
	x.keys("C-z")
	x.await("Stopped")
	if strings.Contains(x.screen(), "LOCK") {
		t.Errorf("the table stayed on the screen:\n%s", x.screen())
	}
	x.keys(`fg; echo "status $?"`, "Enter")
	x.await("job   free   web-7")
	x.keys("C-c")
	x.await("status 130")
	if strings.Contains(x.screen(), "LOCK") {
		t.Errorf("the table was left on the screen:\n%s", x.screen())
	}
}
