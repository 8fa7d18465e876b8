// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// required names the variable with which these tests run: 1, or a folder in which the release is
// kept, so that it is not made again while someone works on a test.
const required = "TENURE_RELEASE_CHECK"

// needs skips a test that was not asked for, or cannot run here.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if os.Getenv(required) == "" {
		t.Skip("takes minutes: make release-check runs it")
	}
	if os.Geteuid() != 0 {
		t.Fatal("needs root, for file systems and networks of its own")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Fatalf("there is no %s: scripts/setup release installs it", p)
		}
	}
}

// debian returns the folder with the file system that all stand-ins begin with.
var debian = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs("../../.bin/debian")
	if err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(context.Background(), "testdata/root", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

// A lan is a network without machines: they are plugged into it.
type lan struct {
	t    *testing.T
	pid  int
	used int // the last address that was given
}

// gateway is the address of the lan itself, at which its services listen.
const gateway = "10.77.0.1"

func newLAN(t *testing.T) *lan {
	t.Helper()
	holder := exec.CommandContext(context.WithoutCancel(t.Context()), "unshare", "--net", "--", "sh", "-euc",
		"ip link set lo up; ip link add br0 type bridge; ip addr add "+gateway+"/24 dev br0; ip link set br0 up; echo; exec sleep infinity")
	l := &lan{t: t, used: 1}
	l.pid = start(t, holder)
	return l
}

// start starts a process that says a line when it is ready, and ends it with the test.
func start(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	ready, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin(t, cmd)
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatalf("%q says nothing: %v", cmd.Args, err)
	}
	return cmd.Process.Pid
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

// serve begins a process that listens in the lan, and waits until it does.
func (l *lan) serve(port int, program string, args ...string) {
	l.t.Helper()
	inside := []string{"--target", strconv.Itoa(l.pid), "--net", "--", program}
	begin(l.t, exec.CommandContext(context.WithoutCancel(l.t.Context()), "nsenter", append(inside, args...)...))
	try := fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", gateway, port)
	eventually(l.t, 60*time.Second, program+" listens", func() bool {
		return exec.CommandContext(l.t.Context(), "nsenter", "--target", strconv.Itoa(l.pid), "--net", "--", "bash", "-c", try).Run() == nil
	})
}

// postgres serves a database in the lan and returns its store's URL.
func (l *lan) postgres() string {
	l.t.Helper()
	bin := ""
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) > 0 {
		bin = filepath.Dir(found[len(found)-1]) + "/"
	}
	dir, err := os.MkdirTemp("", "tenure-postgres-")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	as := []string{"--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--"}
	for _, args := range [][]string{
		{"chown", "postgres:", dir},
		append(append([]string{"setpriv"}, as...), bin+"initdb", "--pgdata", dir, "--auth", "trust", "--no-sync"),
		{"sh", "-c", "echo 'host all all 10.77.0.0/24 trust' >>" + dir + "/pg_hba.conf"},
	} {
		cmd := exec.CommandContext(l.t.Context(), args[0], args[1:]...)
		cmd.Dir = "/"
		if out, err := cmd.CombinedOutput(); err != nil {
			l.t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	l.serve(5432, "setpriv", append(as, bin+"postgres", "-D", dir, "-c", "listen_addresses="+gateway, "-c", "unix_socket_directories="+dir, "-c", "fsync=off", "-c", "log_min_messages=fatal")...)
	return "postgres://postgres@" + gateway + "/postgres?sslmode=disable"
}

// A machine is a stand-in for one.
type machine struct {
	t    *testing.T
	name string
	pid  int // of its first process
	env  []string
}

// boot starts a machine in the lan.
func (l *lan) boot(name string) *machine {
	l.t.Helper()
	root, err := debian()
	if err != nil {
		l.t.Fatal(err)
	}
	name = fmt.Sprintf("%s-%d", name, os.Getpid())
	cmd := exec.CommandContext(context.WithoutCancel(l.t.Context()), "testdata/machine", root, name, l.t.TempDir())
	l.t.Cleanup(func() { // after its end, which takes a moment
		eventually(l.t, 20*time.Second, "the control groups of "+name+" are gone", func() bool {
			groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
			one, _ := filepath.Glob("/sys/fs/cgroup/" + name)
			groups = append(groups, one...)
			for _, dir := range groups {
				prune(dir)
			}
			return len(groups) == 0
		})
	})
	begin(l.t, cmd)
	m := &machine{t: l.t, name: name}
	eventually(l.t, 30*time.Second, name+" has a first process", func() bool {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		m.pid, _ = strconv.Atoi(strings.TrimSpace(string(children)))
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", m.pid))
		return strings.HasSuffix(exe, "/systemd")
	})
	l.used++
	plug := fmt.Sprintf("ip link add to%d type veth peer name eth0 netns %d && ip link set to%[1]d master br0 up", l.used, m.pid)
	if out, err := exec.CommandContext(l.t.Context(), "nsenter", "--target", strconv.Itoa(l.pid), "--net", "--", "sh", "-c", plug).CombinedOutput(); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
	m.must(fmt.Sprintf("ip link set lo up; ip addr add 10.77.0.%d/24 dev eth0; ip link set eth0 up", l.used))
	eventually(l.t, 120*time.Second, name+" is up", func() bool {
		out, _ := m.try("systemctl is-system-running")
		return strings.HasPrefix(out, "running") || strings.HasPrefix(out, "degraded")
	})
	return m
}

// prune removes a control group and those below it, which are empty when their processes have
// ended.
func prune(dir string) {
	below, _ := os.ReadDir(dir)
	for _, d := range below {
		if d.IsDir() {
			prune(filepath.Join(dir, d.Name()))
		}
	}
	_ = os.Remove(dir) // it may not be there
}

// try runs a shell's script on the machine, as root, and returns all that it says.
func (m *machine) try(script string) (string, error) {
	cmd := exec.CommandContext(m.t.Context(), "nsenter", "--target", strconv.Itoa(m.pid), "--all", "--", "bash", "-euo", "pipefail", "-c", "cd; "+script)
	cmd.Env = append([]string{"HOME=/root", "LANG=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, m.env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// must runs a script that succeeds.
func (m *machine) must(script string) string {
	m.t.Helper()
	out, err := m.try(script)
	if err != nil {
		m.t.Fatalf("%s: %s: %v\n%s", m.name, script, err, out)
	}
	return out
}

// file is where a file of the machine is, seen from outside.
func (m *machine) file(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", m.pid, path)
}

// write puts a file on the machine.
func (m *machine) write(path, text string, mode os.FileMode) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.file(path)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.file(path), []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
}

// eventually waits until something is so.
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
