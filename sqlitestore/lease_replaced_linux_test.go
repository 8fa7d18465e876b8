// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/sqlitestore"
)

// holderName has this test's binary hold a lock, in the test TestReplacedHolder.
const holderName = "SQLITESTORE_TEST_HOLDER"

// hold holds a lock, by the public API alone, prints when and why its lease ended,
// and answers each line with what Check says.
func hold(file string) error {
	ctx := context.Background()
	store, err := sqlitestore.Open(file, nil)
	if err != nil {
		return err
	}
	options := &tenure.Options{LeaseDuration: time.Hour}
	if os.Getenv("BEATS") != "" {
		options.HeartbeatPeriod = 300 * time.Millisecond
	}
	client, err := tenure.New(store, options)
	if err != nil {
		return err
	}
	lease, err := client.Acquire(ctx, "job", nil)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "token", lease.Token())
	go func() {
		<-lease.Context().Done()
		cause := context.Cause(lease.Context())
		fmt.Fprintln(os.Stdout, "ended", time.Now().UnixNano(), errors.Is(cause, tenure.ErrSuperseded), errors.Is(cause, tenure.ErrReplaced))
	}()
	for scan := bufio.NewScanner(os.Stdin); scan.Scan(); {
		fmt.Fprintln(os.Stdout, "check", lease.Check() == nil)
	}
	_ = client.Close(ctx)
	return store.Close()
}

// TestReplacedHolder takes the file away from under a holder in another process,
// whose lease lasts for an hour: it is told at once, or by its next heartbeat if no
// inotify instance is to be had. The successor begins on the file that is there
// then, under the same token, and goes on when the former holder ends.
func TestReplacedHolder(t *testing.T) {
	if file := os.Getenv(holderName); file != "" {
		if err := hold(file); err != nil {
			fmt.Fprintln(os.Stdout, "error", err)
		}
		return
	}
	remove := func(file string) error {
		return errors.Join(os.Remove(file), os.Remove(file+"-wal"), os.Remove(file+"-shm"))
	}
	replace := func(file string) error {
		for _, suffix := range []string{"-wal", "-shm"} {
			if err := os.Remove(file + suffix); err != nil {
				return err
			}
		}
		return os.Rename(file+".backup", file)
	}
	for name, c := range map[string]struct {
		take             func(file string) error
		noEvents, logged bool
	}{
		"Removed":  {take: remove},
		"Replaced": {take: replace},
		// Under the log of the former file, in which its locks may stand.
		"BackupMovedOver":       {take: func(file string) error { return os.Rename(file+".backup", file) }, logged: true},
		"RemovedWithoutEvents":  {take: remove, noEvents: true},
		"ReplacedWithoutEvents": {take: replace, noEvents: true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "locks.db")
			backup, err := sqlitestore.Open(file+".backup", nil)
			if err == nil {
				err = backup.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			lines, stdin := startHolder(t, file, c.noEvents)
			line := func(want string) string {
				t.Helper()
				select {
				case got := <-lines:
					if !strings.HasPrefix(got, want) {
						t.Fatalf("%q, want %q", got, want)
					}
					return strings.TrimPrefix(got, want)
				case <-time.After(20 * time.Second):
					t.Fatalf("no %q", want)
				}
				return ""
			}
			line("token 1")
			_, _ = io.WriteString(stdin, "\n")
			line("check true")
			taken := time.Now()
			if err := c.take(file); err != nil {
				t.Fatal(err)
			}
			var told int64
			var superseded, replaced bool
			if _, err := fmt.Sscan(line("ended "), &told, &superseded, &replaced); err != nil || !superseded || !replaced {
				t.Errorf("ended: superseded %t, replaced %t, %v", superseded, replaced, err)
			}
			t.Logf("told %v after it was taken away", time.Unix(0, told).Sub(taken))

			store, err := sqlitestore.Open(file, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			client, err := tenure.New(store, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Close(context.WithoutCancel(t.Context())) }()
			lease, err := client.TryAcquire(t.Context(), "job", nil)
			if c.logged && errors.Is(err, tenure.ErrHeld) {
				return
			}
			if err != nil || lease.Token() != 1 {
				t.Fatalf("the successor: %v", err)
			}
			defer func() { _ = lease.Release(context.WithoutCancel(t.Context())) }()
			_, _ = io.WriteString(stdin, "\n")
			line("check false")
			_ = stdin.Close()
			for rest := range lines {
				if strings.HasPrefix(rest, "error") {
					t.Error(rest)
				}
			}
			if err := lease.SetData(t.Context(), []byte("goes on")); err != nil || lease.Check() != nil {
				t.Errorf("the successor, after the former holder has ended: %v, %v", err, lease.Check())
			}
		})
	}
}

func startHolder(t *testing.T, file string, noEvents bool) (lines <-chan string, stdin io.WriteCloser) {
	t.Helper()
	args := []string{os.Args[0], "-test.run=^TestReplacedHolder$"}
	if noEvents {
		args = append([]string{"sh", "-c", `echo 0 > /proc/sys/user/max_inotify_instances && exec "$0" "$@"`}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), holderName+"="+file)
	if noEvents {
		cmd.Env = append(cmd.Env, "BEATS=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		if noEvents {
			t.Skipf("no user namespace here: %v", err)
		}
		t.Fatal(err)
	}
	out := make(chan string, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(out)
		for scan := bufio.NewScanner(stdout); scan.Scan(); {
			if !slices.Contains([]string{"PASS", ""}, scan.Text()) {
				out <- scan.Text()
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return out, stdin
}
