// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// trial is the clone that testdata/trial has made, with a release in its folder dist.
var trial = os.Getenv("TENURE_RELEASE_CHECK")

// network is the pid of the process that keeps the network of the stand-ins.
var network string

func TestMain(m *testing.M) {
	if trial == "" {
		fmt.Fprintln(os.Stderr, "takes minutes: make release-check runs it")
		os.Exit(0)
	}
	// It ends with its input, which is with this process.
	owner := exec.CommandContext(context.Background(), "unshare", "--net",
		"sh", "-euc", "ip link set lo up; echo; exec cat")
	open, in := owner.StdinPipe()
	ready, out := owner.StdoutPipe()
	if err := owner.Start(); in != nil || out != nil || err != nil {
		panic(fmt.Sprint("needs root: ", in, out, err))
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		panic(err)
	}
	network = strconv.Itoa(owner.Process.Pid)
	status := m.Run()
	_ = open.Close()
	os.Exit(status)
}

// inside is a command in the network of the stand-ins.
func inside(program string, args ...string) *exec.Cmd {
	args = append([]string{"--target", network, "--net", "--", program}, args...)
	return exec.CommandContext(context.Background(), "nsenter", args...)
}

// output runs a command that has to succeed, and returns its output.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// shell is a script of the shell on this machine.
func shell(script string) *exec.Cmd {
	return exec.CommandContext(context.Background(), "bash", "-euo", "pipefail", "-c", script)
}

// begin starts a process in a group of its own, and ends the group with the test.
func begin(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if cmd.Stderr == nil {
		cmd.Stderr = t.Output()
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = cmd.Wait()                                      // it was killed
	})
}

// serve begins a process in the network that listens on a port, and waits until it does.
func serve(t *testing.T, port int, program string, args ...string) {
	t.Helper()
	begin(t, inside(program, args...))
	eventually(t, time.Minute, program+" listens", func() bool {
		return inside("bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d", port)).Run() == nil
	})
}

// postgres serves a database in the network, and returns its store's URL.
func postgres(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tenure-postgres-") //nolint:usetesting // the server's user reaches this folder
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const as = "setpriv --reuid postgres --regid postgres --clear-groups -- "
	script := "PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH; cd " + dir + "; "
	output(t, shell(script+"chown postgres: .; "+as+"initdb --pgdata . --auth trust --no-sync"))
	serve(t, 5432, "bash", "-c", script+"exec "+as+"postgres -D . -c unix_socket_directories="+dir+
		" -c fsync=off -c log_min_messages=fatal")
	return "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
}

// path is that of the programs of a machine, and of a container.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// A machine is a stand-in for a real machine.
type machine struct {
	t    *testing.T
	name string
	pid  int // of its first process
	env  []string
}

// boot starts a machine, whose programs have the environment.
func boot(t *testing.T, name string, env ...string) *machine {
	t.Helper()
	root, err := filepath.Abs("../../.bin/debian")
	if err != nil {
		t.Fatal(err)
	}
	output(t, exec.CommandContext(t.Context(), "testdata/root", root))
	name = fmt.Sprintf("%s-%d", name, os.Getpid())
	t.Cleanup(func() { // after its end, which takes a moment
		eventually(t, 20*time.Second, "the control groups of "+name+" are gone", func() bool {
			_ = shell("find /sys/fs/cgroup -depth -path '*/" + name + "*' -type d -exec rmdir {} +").Run() // not yet
			one, _ := filepath.Glob("/sys/fs/cgroup/" + name)
			more, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
			return len(one)+len(more) == 0
		})
	})
	cmd := inside("testdata/machine", root, name, t.TempDir())
	begin(t, cmd)
	m := &machine{t: t, name: name, env: env}
	eventually(t, 30*time.Second, name+" has a first process", func() bool {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		m.pid, _ = strconv.Atoi(strings.TrimSpace(string(children)))
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", m.pid))
		return strings.HasSuffix(exe, "/systemd")
	})
	t.Cleanup(func() {
		if t.Failed() {
			said, _ := m.try("journalctl --no-pager --lines=60")
			t.Logf("%s says:\n%s", name, said)
		}
	})
	eventually(t, 2*time.Minute, name+" is up", func() bool {
		out, _ := m.try("systemctl is-system-running")
		return strings.HasPrefix(out, "running") || strings.HasPrefix(out, "degraded")
	})
	return m
}

// try runs a shell script on the machine, as root, and returns its whole output; must
// runs a script that has to succeed.
func (m *machine) try(script string) (string, error) {
	cmd := exec.CommandContext(context.Background(), "nsenter", "--target", strconv.Itoa(m.pid), "--all", "--",
		"bash", "-euo", "pipefail", "-c", "cd; "+script)
	cmd.Env = append([]string{"HOME=/root", "LANG=C.UTF-8", path}, m.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (m *machine) must(script string) string {
	m.t.Helper()
	out, err := m.try(script)
	if err != nil {
		m.t.Fatalf("%s: %s: %v\n%s", m.name, script, err, out)
	}
	return out
}

// eventually waits until a script succeeds.
func (m *machine) eventually(script string) {
	m.t.Helper()
	eventually(m.t, time.Minute, m.name+": "+script, func() bool { _, err := m.try(script); return err == nil })
}

// root is where the machine's files are, seen from outside.
func (m *machine) root() string { return fmt.Sprintf("/proc/%d/root", m.pid) }

// write puts a program on the machine, or another file.
func (m *machine) write(path, text string) {
	m.t.Helper()
	if err := os.WriteFile(m.root()+path, []byte(text), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, limit time.Duration, what string, is func() bool) {
	t.Helper()
	end := time.After(limit)
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for !is() {
		select {
		case <-end:
			t.Fatalf("after %s it is not so: %s", limit, what)
		case <-again.C:
		}
	}
}
