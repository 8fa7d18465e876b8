// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// asMain makes the test's program the command.
const asMain = "TENURE_TEST_FAILOVER"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command is the program with the arguments, in a process group of its own, and the folder
// in which it makes its own.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, tmp string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tmp = t.TempDir()
	cmd = exec.Command(program, args...)
	cmd.Env = append(os.Environ(), asMain+"=1", "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, tmp
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v, %v", dir, left, err)
	}
}

// The leader is killed and its lease runs out, the next one steps down when it is asked, and
// the history says so.
func TestShow(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	cmd, tmp := command(t, "-lease", "10s") // long: the machine may be busy
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	t.Logf("%s%s", out, &stderr)
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%v, stderr %q", err, &stderr)
	}
	checkEmpty(t, tmp)

	// Each of these lines is a consequence of the one before.
	rest, names := string(out), map[string]bool{}
	for _, step := range []string{
		`(web-\d)  is killed; the others .* its lease of 10s is over`,
		`(web-\d)  leads under token 2`,
		`(web-\d)  is asked to step down; .*`,
		`(web-\d)  stops its work: asked by "show" to step down: the next one's turn`,
		`(web-\d)  leads under token 3`,
		`(web-\d)  stops its work: the show is over`,
	} {
		at := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{3}  ` + step + `$`).FindStringSubmatchIndex(rest)
		if at == nil {
			t.Fatalf("no line %q in %q", step, rest)
		}
		names[rest[at[2]:at[3]]] = true
		rest = rest[at[1]:]
	}
	if len(names) != 3 {
		t.Errorf("led: %v, want all three", names)
	}
	at := `\d\d:\d\d:\d\d\.\d{3}`
	if !regexp.MustCompile(`\n\nThe history of the lock:\n` +
		`token 1  web-\d  ` + at + ` to unknown       expired\n` +
		`token 2  web-\d  ` + at + ` to ` + at + `  stepped down\n` +
		`token 3  web-\d  ` + at + ` to ` + at + `  released\n$`).MatchString(rest) {
		t.Errorf("the history is %q", rest)
	}
}

// However the show ends, its processes end with it.
func TestNothingIsLeft(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		stderr string
	}{
		{"killed", syscall.SIGKILL, ""},
		{"terminated", syscall.SIGTERM, "failover: terminated signal received\n"},
		{"hung up", syscall.SIGHUP, "failover: hangup signal received\n"},
		{"unread", syscall.SIGPIPE, "failover: broken pipe signal received\n"},
		{"interrupted", syscall.SIGINT, "failover: interrupt signal received\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd, tmp := command(t)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			group := -cmd.Process.Pid
			stuck := time.AfterFunc(time.Minute, func() {
				t.Error("its processes have not ended")
				_ = syscall.Kill(group, syscall.SIGKILL)
			})
			defer stuck.Stop()
			lines := bufio.NewReader(stdout)
			for line := ""; !strings.Contains(line, "leads under"); {
				if line, err = lines.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			to := cmd.Process.Pid
			if c.signal == syscall.SIGINT {
				to = group // as a terminal does
			}
			if err := syscall.Kill(to, c.signal); err != nil {
				t.Fatal(err)
			}
			// The output ends when none of the processes has it.
			if _, err := io.Copy(io.Discard, lines); err != nil {
				t.Error(err)
			}
			err = cmd.Wait()
			if c.signal == syscall.SIGKILL {
				return // its folder stays
			}
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || stderr.String() != c.stderr {
				t.Errorf("it ends with %v, stderr %q; want status 1 and %q", err, &stderr, c.stderr)
			}
			checkEmpty(t, tmp)
		})
	}
}

func TestSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		env  string
		want string
	}{
		"an argument":                {[]string{"now"}, "", `^failover: unexpected argument "now": there is only the flag -lease\n$`},
		"a lease that cannot be":     {[]string{"-lease", "1us"}, "", `^failover: .*lease`},
		"no folder":                  {nil, "TMPDIR=/nowhere", `^failover: .*/nowhere`},
		"a process that cannot open": {[]string{"web-1", filepath.Join("nowhere", "x.db")}, "", `^failover: .*nowhere`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, tmp := command(t, c.args...)
			cmd.Env = append(cmd.Env, c.env)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !regexp.MustCompile(c.want).MatchString(stderr.String()) {
				t.Errorf("it ends with %v, stderr %q; want status 1 and %q", err, &stderr, c.want)
			}
			checkEmpty(t, tmp)
		})
	}
}
