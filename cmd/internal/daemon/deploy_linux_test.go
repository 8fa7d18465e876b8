// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// deployment has the files of the guide.
const deployment = "../../../docs/guides/service"

func readDeployment(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployment, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkArgs has tenured check flags that a deployment file starts it with, whose files are
// elsewhere.
func checkArgs(t *testing.T, args []string, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	run := exec.CommandContext(t.Context(), "certify", "tenured.tenured.svc", "client")
	run.Dir = dir
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, text := range map[string]string{"tokens": "one 3q7vXb9TzK2mWp5c hold:\n", "key": strings.Repeat("k", 32)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	line := strings.Join(args, "\n")
	for there, here := range files {
		if !strings.Contains(line, there) {
			t.Errorf("%q has no %s", args, there)
		}
		line = strings.ReplaceAll(line, there, filepath.Join(dir, here))
	}
	run = exec.CommandContext(t.Context(), "tenured", append([]string{"check"}, strings.Split(line, "\n")...)...)
	run.Env = append(os.Environ(), "TENURE_STORE=memory:")
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%q: %v: %s", args, err, out)
	}
}

// The arguments in the deployment files are those that tenured takes.
func TestDeployedArguments(t *testing.T) {
	var compose struct {
		Services map[string]struct{ Command []string }
	}
	if err := yaml.Unmarshal([]byte(readDeployment(t, "compose.yaml")), &compose); err != nil {
		t.Fatal(err)
	}
	checkArgs(t, compose.Services["tenured"].Command,
		map[string]string{"/run/secrets/tokens": "tokens", "/run/secrets/page_key": "key"})

	for _, object := range strings.Split(readDeployment(t, "kubernetes.yaml"), "\n---\n") {
		var d struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct{ Containers []struct{ Args []string } }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(object), &d); err != nil {
			t.Fatal(err)
		}
		if d.Kind == "Deployment" {
			checkArgs(t, d.Spec.Template.Spec.Containers[0].Args, map[string]string{
				"/etc/tenured/tls/tls.crt": "server.pem", "/etc/tenured/tls/tls.key": "server.key",
				"/etc/tenured/secret/tokens": "tokens", "/etc/tenured/secret/page-key": "key",
			})
		}
	}

	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/tenured (.*)$`)
	starts := start.FindStringSubmatch(readDeployment(t, "tenured.service"))
	if starts == nil {
		t.Fatal("the unit starts nothing")
	}
	checkArgs(t, strings.Fields(starts[1]), map[string]string{"/etc/tenured/tokens": "tokens"})
}

// The units are such that systemd takes, and leave little open.
func TestUnit(t *testing.T) {
	checkUnit(t, deployment, "tenured")
	checkUnit(t, etcdFiles, "etcd")
}

// checkUnit has systemd read a unit, with another program in the place of its own.
func checkUnit(t *testing.T, folder, program string) {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze: it comes with systemd")
	}
	name := program + ".service"
	unit := filepath.Join(t.TempDir(), name)
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("/usr/local/bin/"+program), []byte("/bin/true")) // it looks for the program
	if err := os.WriteFile(unit, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte(name+":")) {
		t.Errorf("%v: %s", err, out)
	}
	out, err = exec.CommandContext(t.Context(), analyze,
		"security", "--offline=yes", "--threshold=20", "--no-pager", unit).CombinedOutput()
	if err != nil {
		t.Errorf("it is exposed by more than 2.0: %v: %s", err, out)
	}
}

// A manager is notified when the service is ready, and when it stops.
func TestManagerIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	told := func(want string) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(patience))
		b := make([]byte, 100)
		if n, err := c.Read(b); err != nil || string(b[:n]) != want {
			t.Errorf("told %q, %v; want %q", b[:n], err, want)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT} {
		f := newFleet(t, 1, "--drain", "0s")
		told("READY=1")
		f.all[0].stop(sig, 0)
		told("STOPPING=1")
	}
}
