// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// testLimit is how long a test waits for what takes a few seconds.
const testLimit = time.Minute

// command returns this program with the arguments, and the folder that its
// temporary files are in.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, tmp string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	t.Cleanup(cancel)
	tmp = t.TempDir()
	cmd = exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "TMP="+tmp)
	return cmd, tmp
}

// checkClean wants that nothing is left of a demo.
func checkClean(t *testing.T, tmp string, pids []int) {
	t.Helper()
	left, err := os.ReadDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("left in the folder for temporary files: %v", left)
	}
	if len(pids) == 0 {
		t.Error("no process was seen")
	}
	for _, pid := range pids {
		awaitGone(t, pid)
	}
}

// awaitGone waits until there is no such process.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(testLimit)
	for alive(pid) {
		if time.Now().After(deadline) {
			t.Errorf("process %d is left", pid)
			return
		}
		<-tick.C
	}
}

func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil || p.Signal(syscall.Signal(0)) != nil {
		return false
	}
	if runtime.GOOS != "linux" {
		return true
	}
	// An orphan that has ended may stay a zombie for as long as process 1 likes.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

// pidsIn returns the process ids of the replicas that the lines of --json name.
func pidsIn(t *testing.T, lines []byte) (reports []report, pids []int) {
	t.Helper()
	for line := range bytes.Lines(lines) {
		var r report
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("no JSON: %s: %v", line, err)
		}
		reports = append(reports, r)
		if r.Kind == started {
			pids = append(pids, r.PID)
		}
	}
	return reports, pids
}

func TestDemoInPipe(t *testing.T) {
	t.Parallel()
	cmd, tmp := command(t, "demo")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	begin := time.Now()
	out, err := cmd.Output()
	if err != nil || stderr.String() != "" {
		t.Fatalf("%v; standard error: %s; standard output:\n%s", err, stderr.String(), out)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	if bytes.Contains(out, []byte("\x1b")) {
		t.Error("escape sequences in a pipe")
	}
	rows := regexp.MustCompile(`(?m)^ +(\d+)  (replica-\d) \(pid (\d+)\) .* s +(?:[0-9.]+ s|\?)   (.*)$`).FindAllStringSubmatch(string(out), -1)
	var pids []int
	var got []string
	for _, r := range rows {
		pid, _ := strconv.Atoi(r[3])
		pids = append(pids, pid)
		got = append(got, r[1]+" "+r[4])
	}
	if want := []string{"1 expired", "2 stepped down", "3 released"}; !slices.Equal(got, want) {
		t.Errorf("the table says %q, want %q, in:\n%s", got, want, out)
	}
	for _, want := range []string{"replica-", "token 1", "SIGKILL", "after the kill; the lease is 3 s", "hand-over in", "docs/reference/guarantees.md"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	checkClean(t, tmp, pids)
}

func TestDemoJSON(t *testing.T) {
	t.Parallel()
	cmd, tmp := command(t, "demo", "--lease", "2s", "--json")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	reports, pids := pidsIn(t, out)
	if last := reports[len(reports)-1]; last.Kind != passed {
		t.Errorf("the last line is %+v", last)
	}
	if tenures, err := check(2*time.Second, reports); err != nil || len(tenures) != 3 {
		t.Errorf("%d tenures in the reports: %v", len(tenures), err)
	}
	checkClean(t, tmp, pids)
}

func TestDemoKeepsFolder(t *testing.T) {
	t.Parallel()
	cmd, tmp := command(t, "demo", "--lease", "2s", "--keep")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	_, file, found := strings.Cut(string(out), "tenure history demo --store sqlite:")
	file = strings.TrimSpace(file)
	if !found || !strings.HasPrefix(file, tmp) {
		t.Fatalf("the output does not tell the file:\n%s", out)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// On a store that is named the demo has a lock of its own, and takes all of its
// records away.
func TestDemoOnAStore(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
			t.Parallel()
			url := "sqlite:" + filepath.Join(t.TempDir(), "shared.db")
			args := []string{"demo", "--lease", "2s", "--store", url}
			if keep {
				args = append(args, "--keep")
			}
			cmd, tmp := command(t, args...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			if !strings.Contains(string(out), " on "+url) {
				t.Errorf("the output does not tell the store:\n%s", out)
			}
			if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
				t.Errorf("left in the folder for temporary files: %v, %v", left, err)
			}
			at, err := storeurl.Parse(url)
			if err != nil {
				t.Fatal(err)
			}
			store, err := at.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			page, err := store.List(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			// The lock, and the two tenures before its last one.
			if want := map[bool]int{false: 0, true: 3}[keep]; len(page.Records) != want {
				t.Errorf("%d records are left, want %d: %v", len(page.Records), want, page.Records)
			}
		})
	}
}

func TestDemoOnNoStore(t *testing.T) {
	t.Parallel()
	for store, want := range map[string]struct {
		status int
		says   string
	}{
		"memory:":                   {64, "three processes cannot share a store in memory"},
		"nothing:":                  {64, `store scheme "nothing" is unknown`},
		"sqlite:/no/such/folder/db": {69, "/no/such/folder"},
	} {
		cmd, _ := command(t, "demo", "--store", store)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != want.status || !strings.Contains(string(out), want.says) {
			t.Errorf("%s: %v, want status %d and %q, in:\n%s", store, err, want.status, want.says, out)
		}
	}
}

// stopAt starts the demo, and sends it the signal when it has told the kind.
// It returns what it had told at its end, and how it ended.
func stopAt(t *testing.T, k kind, stop os.Signal) (out []byte, stderr, tmp string, err error) {
	t.Helper()
	cmd, tmp := command(t, "demo", "--json")
	var said strings.Builder
	cmd.Stderr = &said
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sent := false
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		out = append(append(out, lines.Bytes()...), '\n')
		if !sent && bytes.Contains(lines.Bytes(), []byte(`"kind":"`+k+`"`)) {
			sent = true
			if err := cmd.Process.Signal(stop); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = cmd.Wait()
	return out, said.String(), tmp, err
}

func TestDemoInterrupted(t *testing.T) {
	for _, k := range []kind{started, leading, killed} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			out, stderr, tmp, err := stopAt(t, k, os.Interrupt)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 130 {
				t.Errorf("%v, want exit status 130", err)
			}
			if !strings.Contains(stderr, "ended by a signal (interrupt), and cleaned up") {
				t.Errorf("standard error: %q", stderr)
			}
			_, pids := pidsIn(t, out)
			checkClean(t, tmp, pids)
		})
	}
}

// A demo that is killed cannot clean up; its replicas end all the same.
func TestReplicasEndWithTheDemo(t *testing.T) {
	t.Parallel()
	out, _, _, err := stopAt(t, waiting, os.Kill)
	if err == nil {
		t.Error("killed, and exit status 0")
	}
	_, pids := pidsIn(t, out)
	for _, pid := range pids {
		awaitGone(t, pid)
	}
}

// Where no kernel tells a replica of its parent's death, the end of its
// standard input does.
func TestReplicaEndsWithItsInput(t *testing.T) {
	t.Parallel()
	cmd, tmp := command(t, ReplicaCommand, "replica-1", freshLock, "30s")
	cmd.Env = append(cmd.Env, "TENURE_STORE=sqlite:"+filepath.Join(t.TempDir(), storeFile))
	stdin, stdout := enginetest.Start(t, cmd)
	var out bytes.Buffer
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		out.Write(append(lines.Bytes(), '\n'))
		if bytes.Contains(lines.Bytes(), []byte(`"kind":"leading"`)) {
			_ = stdin.Close()
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("exit status 0, without a demo")
	}
	if !strings.Contains(out.String(), `"kind":"released"`) {
		t.Errorf("the lock was not released:\n%s", &out)
	}
	checkClean(t, tmp, []int{cmd.Process.Pid})
}

// The reader of a pipe may leave early: tenure demo | head -1.
func TestDemoWithoutReader(t *testing.T) {
	t.Parallel()
	cmd, tmp := command(t, "demo", "--lease", "2s")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(pipe, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	_ = pipe.Close()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+int(syscall.SIGPIPE) {
		t.Errorf("%v, want exit status %d", err, 128+int(syscall.SIGPIPE))
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left in the folder for temporary files: %v, %v", left, err)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, lease := range []string{"-1s", "0s", "999ms", "61s", "1000001us"} {
		cmd, _ := command(t, "demo", "--lease="+lease)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 64 || !bytes.Contains(out, []byte("lease ")) {
			t.Errorf("--lease=%s: %v: %s", lease, err, out)
		}
	}
}

// spoiler is an output that breaks the demo at the first report of a kind.
type spoiler struct {
	plain
	at   kind
	act  func(report)
	pids []int
}

func (s *spoiler) report(r report) {
	if r.Kind == started {
		s.pids = append(s.pids, r.PID)
	}
	if r.Kind == s.at {
		s.act(r)
	}
}

func TestDemoCleansUpAfterPanic(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	s := &spoiler{plain: plain{io.Discard}, at: waiting, act: func(report) { panic("a fault of the demo") }}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = run(t.Context(), "", 2*time.Second, false, s)
	}()
	checkClean(t, tmp, s.pids)
}

func TestDemoFailsWhenAReplicaDies(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	s := &spoiler{plain: plain{io.Discard}, at: leading, act: func(r report) {
		p, err := os.FindProcess(r.PID)
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Kill()
	}}
	err := run(t.Context(), "", 2*time.Second, false, s)
	if want := "ended by itself: signal: killed"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	checkClean(t, tmp, s.pids)
}
