// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestNotReplaced makes usual changes to the files of an open store: none of
// them is a replacement, and the store goes on.
func TestNotReplaced(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "locks.db")
	s := mustOpen(t, file)
	if _, err := s.Watch(t.Context(), "k", func() {}); err != nil {
		t.Fatal(err)
	}
	rec := enginetest.Claim(t, s, held("k", "a"))
	// A goroutine checks all the time, as the store does after the kernel's events.
	stop, looked := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				looked <- n
				return
			default:
				_ = s.check()
				n++
			}
		}
	}()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []struct {
		name string
		do   func()
	}{
		{"vacuum", func() { shell(t, file, "VACUUM") }},
		{"checkpoint", func() { shell(t, file, "PRAGMA wal_checkpoint(TRUNCATE)") }},
		{"restart of the log", func() { shell(t, file, "PRAGMA wal_checkpoint(RESTART)") }},
		{"journal mode", func() {
			c := dialTest(t, file)
			_ = c.run("PRAGMA busy_timeout = 0; PRAGMA journal_mode = DELETE") // is refused
			_ = c.close()
		}},
		{"chmod", func() {
			for _, suffix := range []string{"", "-wal", "-shm"} {
				must(os.Chmod(file+suffix, 0o640))
			}
		}},
		{"chown", func() { must(os.Chown(file, os.Getuid(), os.Getgid())) }},
		{"times", func() { must(os.Chtimes(file, time.Now(), time.Now())) }},
		{"a backup's link, and its end", func() {
			must(os.Link(file, file+".backup"))
			must(os.Remove(file + ".backup"))
		}},
		{"a copy beside it", func() { must(exec.Command("cp", "-a", file, file+".copy").Run()) }},
		{"written over in place", func() { must(exec.Command("sh", "-c", `cat "$0" > "$0.same" && cat "$0.same" > "$0"`, file).Run()) }},
		{"vacuum into", func() { shell(t, file, "VACUUM INTO '"+file+".into'") }},
		{"truncated index", func() { must(exec.Command("touch", file+"-shm").Run()) }},
		{"another process, killed", func() {
			c := start(t, "open", file, nil)
			<-c.out
			_ = c.cmd.Process.Kill()
			<-c.ended
		}},
		{"another process, which ends", func() {
			c := start(t, "open", file, nil)
			<-c.out
			_ = c.stdin.Close()
			<-c.ended
		}},
		{"other stores", func() {
			for range 20 {
				other, err := Open(file, nil)
				must(err)
				must(other.Close())
			}
		}},
		{"the notify file", func() { must(os.Remove(file + notifySuffix)) }},
		{"many other files", func() {
			for i := range 200 {
				name := fmt.Sprint(file, ".", i)
				must(os.WriteFile(name, nil, 0o600))
				must(os.Rename(name, name+"x"))
				must(os.Remove(name + "x"))
			}
		}},
	} {
		what.do()
		if isReplaced(s) {
			t.Fatalf("%s: taken for a replacement: %v", what.name, s.check())
		}
		if err := persist(func() (err error) {
			beat := next(rec)
			if beat, err = s.Swap(t.Context(), rec, beat); err == nil {
				rec = beat
			}
			return err
		}); err != nil {
			t.Fatalf("%s: %v", what.name, err)
		}
	}
	close(stop)
	if n := <-looked; n == 0 || isReplaced(s) {
		t.Errorf("%d looks, %v", n, s.check())
	}
}

func init() { children["beat"] = childBeat }

// childBeat renews a lock whenever a line comes in, and prints the outcome; and,
// at once, that the store was replaced.
func childBeat(file string) error {
	s, err := Open(file, nil)
	if err != nil {
		return err
	}
	rec, _, err := s.Claim(context.Background(), held("k", "child"))
	if err != nil {
		return err
	}
	// The store goes on without an inotify instance.
	if _, err := s.Watch(context.Background(), "k", func() {}); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "held")
	scan := bufio.NewScanner(os.Stdin)
	for scan.Scan() {
		now, err := s.Swap(context.Background(), rec, next(rec))
		fmt.Fprintln(os.Stdout, "replaced", errors.Is(err, driver.ErrReplaced), isReplaced(s))
		if err == nil {
			rec = now
		}
	}
	return s.Close()
}

// TestReplacedWithoutEvents has no inotify instance to itself: the next call finds
// out.
func TestReplacedWithoutEvents(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	none := func(cmd *exec.Cmd) {
		cmd.Args = []string{"sh", "-c", `echo 0 > /proc/sys/user/max_inotify_instances && exec "$0"`, os.Args[0]}
		cmd.Path = "/bin/sh"
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
	}
	try := exec.Command("true")
	none(try)
	try.Args = []string{"sh", "-c", "echo 0 > /proc/sys/user/max_inotify_instances"}
	if out, err := try.CombinedOutput(); err != nil {
		t.Skipf("no user namespace here: %v: %s", err, out)
	}
	c := start(t, "beat", file, none)
	beat := func(want string) {
		t.Helper()
		if _, err := io.WriteString(c.stdin, "beat\n"); err != nil {
			t.Fatal(err)
		}
		if line := <-c.out; line != want {
			t.Fatalf("%q, want %q", line, want)
		}
	}
	if line := <-c.out; line != "held" {
		t.Fatal(line)
	}
	beat("replaced false false")
	if err := errors.Join(os.Remove(file), os.Remove(file+"-wal"), os.Remove(file+"-shm")); err != nil {
		t.Fatal(err)
	}
	beat("replaced true true")
	// Closing it does the new file no harm.
	s := mustOpen(t, file)
	rec := enginetest.Claim(t, s, held("k", "successor"))
	_ = c.stdin.Close()
	<-c.ended
	enginetest.Swap(t, s, rec, next(rec))
}
