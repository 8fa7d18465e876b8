// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// theScript returns the script of the guide that holds a lock around a command.
func theScript(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"bash", "curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s: apt-get install %[1]s", program)
		}
	}
	path, err := filepath.Abs(filepath.Join(deployment, "hold"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// scripted is a run of the script.
type scripted struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
}

// begin runs the script against a replica, which also listens on TCP.
func begin(t *testing.T, f *fleet, url string, args ...string) *scripted {
	t.Helper()
	s := &scripted{cmd: exec.Command(theScript(t), args...)} //nolint:noctx // it ends by itself, or is killed below
	s.cmd.Env = append(os.Environ(), "TENURED_URL="+url, "TENURED_TOKEN="+f.token)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.err
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL); _ = s.cmd.Wait() }) // it may have ended
	return s
}

// end waits for it, and returns the exit status.
func (s *scripted) end() int {
	_ = s.cmd.Wait() // the status says it
	return s.cmd.ProcessState.ExitCode()
}

func TestShellScript(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	theScript(t)
	f := newFleet(t, 1, "--lease", "8s", "--drain", "0s", "--listen", "127.0.0.1:0")
	r := f.all[0]
	url := secondAddress(t, r)
	c := f.caller(r)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()

	t.Run("the command's status", func(t *testing.T) {
		s := begin(t, f, url, "job", "sh", "-c", "echo at work; exit 3")
		if status := s.end(); status != 3 || s.out.String() != "at work\n" {
			t.Fatalf("status %d, %q, %q", status, &s.out, &s.err)
		}
		a, err := c.call(ctx, http.MethodGet, "/v1/status?name=job", nil)
		if err != nil || !bytes.Contains(a.Body, []byte(`"state":"released"`)) ||
			!bytes.Contains(a.Body, []byte("exit status 3")) {
			t.Errorf("%v: %s", err, a.Body)
		}
	})

	t.Run("asked to stop", func(t *testing.T) {
		begun := filepath.Join(f.dir, "begun")
		s := begin(t, f, url, "asked", "sh", "-c", `trap 'exit 0' TERM; touch "$0"; while :; do sleep 0.1; done`, begun)
		awaitFile(t, begun)
		a, err := c.call(ctx, http.MethodPost, "/v1/requests",
			map[string]any{"name": "asked", "kind": "step-down", "reason": "test"})
		if err != nil || a.Status != http.StatusOK {
			t.Errorf("%v: %d %s", err, a.Status, a.Body)
		}
		if status := s.end(); status != 0 {
			t.Errorf("status %d, %q", status, &s.err)
		}
	})

	t.Run("the service is away", func(t *testing.T) {
		work := filepath.Join(f.dir, "work")
		s := begin(t, f, url, "job", "sh", "-c", `while :; do date +%s.%N >>"$0"; sleep 0.05; done`, work)
		awaitFile(t, work)
		if err := r.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		status := s.end()
		if err := r.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if status != 73 || s.err.String() != "hold: the lock expired\n" {
			t.Errorf("status %d, %q", status, &s.err)
		}
		h, err := c.acquire(ctx, "job", "next", 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		granted := float64(h.first.UnixNano()) / 1e9
		text, err := os.ReadFile(work)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Fields(string(text))
		var last float64
		if _, err := fmt.Sscan(lines[len(lines)-1], &last); err != nil {
			t.Fatal(err)
		}
		if last >= granted {
			t.Errorf("the command was at work %.2f s after the next holder had begun", last-granted)
		}
		if err := h.release(ctx); err != nil {
			t.Error(err)
		}
	})
}

// secondAddress returns the address of TCP beside the socket of a replica.
func secondAddress(t *testing.T, r *replica) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("%s.%d.log", r.socket, r.starts))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range listening.FindAllSubmatch(text, -1) {
		if bytes.HasPrefix(m[1], []byte("http")) {
			return string(m[1])
		}
	}
	t.Fatalf("it listens on no other address: %s", text)
	return ""
}

// awaitFile waits until there is a file.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); pause(t.Context(), 10*time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Fatalf("there is no %s", path)
}
