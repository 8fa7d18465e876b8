// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// The program of the tests is the launcher as well, with a table of engines of its own,
// which are the program again: one that listens at a port.
const (
	asLauncher = "TEST_LAUNCHER"
	asEngine   = "TEST_ENGINE" // where it listens, or what it does
	address    = "TEST_ADDRESS"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asEngine) != "":
		os.Exit(listen(os.Getenv(asEngine)))
	case os.Getenv(asLauncher) != "":
		runtime.LockOSThread() // as the program does
		os.Exit(table{
			{Name: "good", Version: "1", Variable: address, Servers: server},
			{Name: "bad", Version: "1", Servers: func(string) ([]launcher.Server, string, error) {
				never := func() error { return errors.ErrUnsupported }
				return []launcher.Server{{Args: os.Args[:1], Env: []string{asEngine + "=ends"}, Ready: never}}, "", nil
			}},
		}.main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// listen is the engine.
func listen(at string) int {
	l, err := net.Listen("tcp", at)
	if err != nil {
		fmt.Fprintln(os.Stdout, "no luck:", err)
		return 3
	}
	for {
		if conn, err := l.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, conn)
		}
	}
}

// server is the engine's.
func server(dir string) ([]launcher.Server, string, error) {
	port, err := launcher.Port()
	at := fmt.Sprintf("127.0.0.1:%d", port)
	return []launcher.Server{{
		Args: os.Args[:1], Env: []string{asEngine + "=" + at}, Dir: dir, Ready: func() error { return dial(at) },
	}}, at, err
}

func dial(at string) error {
	conn, err := net.DialTimeout("tcp", at, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// launched returns a launcher that works for the test, and has TMPDIR for itself.
func launched(t *testing.T, args ...string) (cmd *exec.Cmd, tmp string, stderr *bytes.Buffer) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	tmp, stderr = t.TempDir(), new(bytes.Buffer)
	cmd.Env = append(os.Environ(), asLauncher+"=1", "TMPDIR="+tmp)
	cmd.Stderr = stderr
	return cmd, tmp, stderr
}

// leftNothing fails the test unless the engine at the address has ended, and its data are gone.
func leftNothing(t *testing.T, at, tmp string) {
	t.Helper()
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 || dial(at) == nil {
		t.Errorf("left are %v, %v, and a connection to the engine says %v", left, err, dial(at))
	}
}

// TestRun: the command has the address of an engine, and the launcher its exit status; the
// engine ends with it.
func TestRun(t *testing.T) {
	t.Parallel()
	cmd, tmp, stderr := launched(t, "run", "good", "--", "sh", "-c", "cat; echo $"+address+"; exit 37")
	cmd.Stdin = strings.NewReader("input of ")
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != 37 {
		t.Fatalf("it ends with %v\n%s", err, stderr)
	}
	at, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "input of ")
	if _, _, err := net.SplitHostPort(at); !ok || err != nil {
		t.Errorf("the command says %q", out)
	}
	leftNothing(t, at, tmp)
}

// TestSignals: one that comes to the launcher reaches the command, and nothing is left; if
// it is SIGKILL, the engines end all the same.
func TestSignals(t *testing.T) {
	t.Parallel()
	const command = `sleep 300 >/dev/null 2>&1 & trap "kill $!; echo heard; exit" TERM HUP; echo $` + address + ` $$; wait`
	for sig, want := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGHUP: 129, syscall.SIGKILL: -1} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			if signal.Ignored(sig) {
				t.Skip("it is ignored here, as under nohup")
			}
			cmd, tmp, stderr := launched(t, "run", "good", "--", "sh", "-c", command)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var at string
			var pid int
			if _, err := fmt.Fscan(stdout, &at, &pid); err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if sig == syscall.SIGKILL {
				end := time.Now().Add(launcher.Patience)
				for dial(at) == nil && time.Now().Before(end) {
					time.Sleep(10 * time.Millisecond)
				}
				if dial(at) == nil {
					t.Error("the engine does not end")
				}
				_ = syscall.Kill(pid, syscall.SIGTERM) // nothing else ends the command
			}
			if said, err := io.ReadAll(stdout); err != nil || strings.TrimSpace(string(said)) != "heard" {
				t.Errorf("the command says %q, %v", said, err)
			}
			_ = cmd.Wait() // its status says it
			if got := cmd.ProcessState.ExitCode(); got != want {
				t.Errorf("it ends with %d, want %d\n%s", got, want, stderr)
			}
			if sig != syscall.SIGKILL {
				leftNothing(t, at, tmp)
			}
		})
	}
}

// TestBadEngine: what does not come up is named, with the end of its log, which stays; the
// command does not run, and the other engines end.
func TestBadEngine(t *testing.T) {
	t.Parallel()
	cmd, tmp, stderr := launched(t, "run", "good", "bad", "--", "echo", "runs")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || len(out) > 0 {
		t.Errorf("it says %q, %v", out, err)
	}
	want := regexp.MustCompile(`scripts/engines: bad: .*: it ended: exit status 3; its log (\S+) ends:\nno luck`)
	found := want.FindStringSubmatch(stderr.String())
	if found == nil {
		t.Fatalf("it says\n%s", stderr)
	}
	left, err := filepath.Glob(tmp + "/*/*")
	if err != nil || len(left) == 0 || !strings.HasSuffix(found[1], "/bad.log") {
		t.Errorf("left are %v, %v, and it says\n%s", left, err, stderr)
	}
	for _, file := range left {
		if !strings.HasSuffix(file, ".log") {
			t.Errorf("%s is left", file)
		}
	}
}

// TestUse: unknown names and an absent command are errors of the user's own.
func TestUse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{
		"run":                   64,
		"install mysql":         64,
		"run good --":           64,
		"run good -- ./nothing": 127,
		"help":                  0,
	} {
		cmd, _, stderr := launched(t, strings.Fields(line)...)
		_ = cmd.Run() // its status says it
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: it ends with %d, want %d\n%s", line, got, want, stderr)
		}
	}
}
