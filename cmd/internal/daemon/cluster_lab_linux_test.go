// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// inLab is the variable by which a test knows that it is in a network of its own.
const inLab = "TENURED_TEST_LAB"

// lab is a network of its own, with a bridge that machines are plugged into. The test's
// process is at labHost; clients are there.
type lab struct {
	t      *testing.T
	dir    string
	etcd   string // folder with the programs of etcd
	used   int
	admin  string // the folder of the cluster
	booted map[string]*labMachine
}

const (
	labHost = "10.78.0.1"
	// labAddress is that of machine N.
	labAddress = "10.78.0.%d"
)

// labFlags make a network, and processes that end with the first of them, whatever ends that.
var labFlags = []string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"}

// inNetwork runs the rest of a test in a network of its own: another process of this binary
// does, for which it returns a lab; here it returns nil when that has ended well. The test is
// skipped where such networks cannot be made.
func inNetwork(t *testing.T) *lab {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a minute, and three etcd: make nightly-kills")
	}
	etcd := filepath.Dir(enginetest.Program(t, "etcd", "etcd-*/etcd"))
	if os.Getenv(inLab) == "" {
		for _, program := range []string{"unshare", "nsenter", "setpriv", "ip", "bash"} {
			if _, err := exec.LookPath(program); err != nil {
				t.Skipf("there is no %s, to make machines with", program)
			}
		}
		if out, err := exec.CommandContext(t.Context(), "unshare", append(labFlags, "ip", "link", "set", "lo", "up")...).CombinedOutput(); err != nil {
			t.Skipf("networks cannot be made here, which takes root: %v: %s", err, out)
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "unshare", append(labFlags, self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1", "-test.timeout=80m")...)
		cmd.Env = append(os.Environ(), inLab+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Fatal(err)
		}
		return nil
	}
	l := &lab{t: t, dir: t.TempDir(), etcd: etcd, used: 10, booted: map[string]*labMachine{}}
	l.must("ip link set lo up; ip link add br0 type bridge; ip addr add " + labHost + "/24 dev br0; ip link set br0 up")
	return l
}

// must runs a shell's script among the clients, and returns what it prints.
func (l *lab) must(script string) string {
	l.t.Helper()
	out, err := l.try(script)
	if err != nil {
		l.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

func (l *lab) try(script string) (string, error) {
	cmd := exec.CommandContext(l.t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = l.dir
	cmd.Env = append(os.Environ(), "PATH="+l.etcd+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tenured runs a command of it that ends with a status, and returns what it says.
func (l *lab) tenured(status int, args ...string) (stdout, stderr string) {
	l.t.Helper()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(l.t.Context(), "tenured", args...)
	cmd.Dir = l.dir
	cmd.Stdout, cmd.Stderr = &out, &said
	_ = cmd.Run() // its status is looked at
	if got := cmd.ProcessState.ExitCode(); got != status {
		l.t.Fatalf("tenured %q ended with %d, want %d\n%s%s", args, got, status, &out, &said)
	}
	return out.String(), said.String()
}

// wantText checks that a text has another one in it.
func wantText(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Fatalf("%q is not in\n%s", want, text)
	}
}

// A labMachine is a stand-in for one: a network, and a file system of which /etc and /var/lib
// are its own. It has a user etcd, and the programs of etcd in /mnt.
type labMachine struct {
	*enginetest.Engine
	l       *lab
	name    string
	address string
	n       int
	pid     int
	config  string // of the etcd that is to be started
}

// boot starts the next machine. Its address is that of a node of this name.
func (l *lab) boot(name string) *labMachine {
	l.t.Helper()
	l.used++
	m := &labMachine{l: l, name: name, n: l.used, address: fmt.Sprintf(labAddress, l.used), config: "etcd.yaml"}
	holder := exec.CommandContext(context.WithoutCancel(l.t.Context()), "unshare", "--net", "--mount", "--", "sh", "-euc", `
ip link set lo up
mount --bind `+l.etcd+` /mnt
mount -t tmpfs tmpfs /etc; mount -t tmpfs tmpfs /var/lib
echo root:x:0:0::/:/bin/sh >/etc/passwd; echo etcd:x:998:998::/:/bin/sh >>/etc/passwd
echo root:x:0: >/etc/group; echo etcd:x:998: >>/etc/group
mkdir -m 0700 /var/lib/tenure-etcd; chown 998:998 /var/lib/tenure-etcd
echo; exec sleep infinity`)
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	holder.Stderr = l.t.Output()
	ready, err := holder.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait() // it was killed
	})
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		l.t.Fatalf("no machine: %v", err)
	}
	m.pid = holder.Process.Pid
	l.must(fmt.Sprintf("ip link add to%[1]d type veth peer name eth0 netns %[2]d; ip link set to%[1]d master br0 up", m.n, m.pid))
	m.must(fmt.Sprintf("ip addr add %s/24 dev eth0; ip link set eth0 up", m.address))
	l.booted[name] = m
	return m
}

// inside are the words that run a program on the machine.
func (m *labMachine) inside(words ...string) []string {
	return append([]string{"nsenter", "--target", strconv.Itoa(m.pid), "--net", "--mount", "--", "env", "PATH=/mnt:" + os.Getenv("PATH")}, words...)
}

// must runs a script on the machine, as root.
func (m *labMachine) must(script string) string {
	m.l.t.Helper()
	out, err := m.try(script)
	if err != nil {
		m.l.t.Fatalf("%s: %s: %v\n%s", m.name, script, err, out)
	}
	return out
}

func (m *labMachine) try(script string) (string, error) {
	words := m.inside("bash", "-euo", "pipefail", "-c", script)
	out, err := exec.CommandContext(m.l.t.Context(), words[0], words[1:]...).CombinedOutput()
	return string(out), err
}

// install takes the folder of the node to the machine, as its unit says.
func (m *labMachine) install() {
	m.l.t.Helper()
	dir := filepath.Join(m.l.admin, m.name)
	unit, err := os.ReadFile(filepath.Join(dir, "etcd.service"))
	if err != nil {
		m.l.t.Fatal(err)
	}
	var line string
	for comment := range strings.Lines(string(unit)) {
		if text, ok := strings.CutPrefix(comment, "#   install "); ok {
			line = "install " + text
		}
	}
	m.must("cd " + dir + "; " + line)
}

// run starts its etcd, by the unit's user and line, with a file of the installed folder.
func (m *labMachine) run(config string) {
	m.l.t.Helper()
	args := m.inside("setpriv", "--reuid", "etcd", "--regid", "etcd", "--clear-groups", "etcd", "--config-file", "/etc/tenure-etcd/"+config)
	m.Engine = enginetest.NewEngine(m.l.t, args, nil, func() error {
		out, err := m.try("curl --silent --show-error --max-time 2 http://127.0.0.1:2381/health")
		if err == nil && !strings.Contains(out, `"true"`) {
			err = fmt.Errorf("it is not healthy: %s", out)
		}
		return err
	})
	m.Start()
}

// plugged plugs the machine in, or out.
func (m *labMachine) plugged(in bool) {
	m.l.t.Helper()
	m.l.must(fmt.Sprintf("ip link set to%d %s", m.n, map[bool]string{true: "up", false: "down"}[in]))
}

// newCluster writes the folder of a cluster by the command line, and starts its nodes. It
// returns the URL of the store.
func (l *lab) newCluster(names []string, flags ...string) (url string, nodes []*labMachine) {
	l.t.Helper()
	l.admin = filepath.Join(l.dir, "cluster-"+strings.Join(names, "-"))
	args := append([]string{"cluster", "init", "--dir", l.admin}, flags...)
	for _, name := range names {
		m := l.boot(name)
		nodes = append(nodes, m)
		args = append(args, name+"="+m.address)
	}
	out, _ := l.tenured(0, args...)
	for _, m := range nodes {
		m.install()
		m.run("etcd.yaml")
	}
	for _, m := range nodes {
		m.Await()
	}
	return storeOf(l.t, out), nodes
}

// storeOf returns what init prints for programs.
func storeOf(t *testing.T, out string) string {
	t.Helper()
	url, ok := strings.CutPrefix(out, "TENURE_STORE='")
	url, _, end := strings.Cut(url, "'\n")
	if !ok || !end {
		t.Fatalf("no TENURE_STORE in %q", out)
	}
	return url
}

// openURL opens a store until the test ends.
func openURL(t *testing.T, url string) driver.Store {
	t.Helper()
	at, err := storeurl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	store, err := at.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() }) // it may be of an engine that is gone
	return store
}

// clientOf makes a client until the test ends.
func clientOf(t *testing.T, store driver.Store, owner string, lease time.Duration) *tenure.Client {
	t.Helper()
	client, err := tenure.New(store, &tenure.Options{Owner: owner, LeaseDuration: lease})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 100*time.Millisecond)
		defer cancel()
		_ = client.Close(ctx) // the engine may be gone
	})
	return client
}

// eventuallyTrue waits until something is so.
func eventuallyTrue(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); pause(t.Context(), 20*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not come: %s", what)
		}
	}
}

// refuses says that nobody listens at an address.
func refuses(address string) bool {
	c, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err == nil {
		_ = c.Close() // it was only asked whether it is open
	}
	return err != nil
}
