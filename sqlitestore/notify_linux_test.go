// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestWakeOfAnotherProcess: a release in one process is a hint in another, long before
// its next poll.
func TestWakeOfAnotherProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	s.watches.period = time.Hour
	hints := make(chan struct{}, 100)
	if _, err := s.Watch(t.Context(), "k", func() { hints <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	notifier := start(t, "notify", file, nil)
	for range 10 {
		if _, err := fmt.Fprintln(notifier.stdin, "go"); err != nil {
			t.Fatal(err)
		}
		<-notifier.out
		select {
		case <-hints:
		case <-time.After(10 * time.Second):
			t.Fatal("no hint")
		}
		drain(hints)
	}
}

func init() { children["notify"] = childNotify }

// childNotify claims and releases for each line that it reads.
func childNotify(file string) error {
	s, err := Open(file, nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for scan := bufio.NewScanner(os.Stdin); scan.Scan(); {
		rec, _, err := s.Claim(ctx, held("k", "notifier"))
		if err != nil {
			return err
		}
		if _, err := s.Swap(ctx, rec, released(rec)); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "released")
	}
	return s.Close()
}

// TestNotifyLost takes the notify file away in every way that there is: writes go on,
// and so do hints.
func TestNotifyLost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	notify := file + notifySuffix
	watcher, writer := mustOpen(t, file), mustOpen(t, file)
	hints := make(chan struct{}, 1000)
	if _, err := watcher.Watch(t.Context(), "k", func() { hints <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
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
		{"untouched", func() {}},
		{"removed", func() { must(os.Remove(notify)) }},
		{"moved away", func() { must(os.Rename(notify, notify+".old")) }},
		{"replaced", func() {
			must(os.WriteFile(notify+".new", nil, 0o600))
			must(os.Rename(notify+".new", notify))
		}},
		{"truncated", func() { must(os.Truncate(notify, 0)) }},
		{"longer", func() { must(os.Truncate(notify, 1<<20)) }},
	} {
		what.do()
		rec := enginetest.Claim(t, writer, held("k", "a"))
		drain(hints)
		enginetest.Swap(t, writer, rec, released(rec))
		eventually(t, func() error {
			if len(hints) == 0 {
				return fmt.Errorf("no hint with the notify file %s", what.name)
			}
			return nil
		})
	}
}

func drain(hints chan struct{}) {
	for len(hints) > 0 {
		<-hints
	}
}

// TestNotifySlots checks that a hint wakes only the watchers of its key, and that
// none is lost when a second key is released before the first was read.
func TestNotifySlots(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	var seen slots
	if _, err := seen.look(file); err != nil {
		t.Fatal(err)
	}
	s.notify([]*write{{key: "a", wake: true}, {key: "b", wake: true}, {key: "c"}})
	s.notify([]*write{{key: "a", wake: true}})
	changed, err := seen.look(file)
	if err != nil {
		t.Fatal(err)
	}
	if !changed("a") || !changed("b") || changed("c") {
		t.Errorf("changed: a %t, b %t, c %t; want true, true, false", changed("a"), changed("b"), changed("c"))
	}
	if changed, _ := seen.look(file); changed("a") {
		t.Error("a changed twice")
	}
	for i := range 10_000 {
		s.notify([]*write{{key: strconv.Itoa(i), wake: true}})
	}
	if info, err := os.Stat(file + notifySuffix); err != nil || info.Size() > int64(notifySize) {
		t.Errorf("the notify file has %d bytes (%v), at most %d are wanted", info.Size(), err, notifySize)
	}
}

// TestEarlyWatch has a watch, and a change, before the kernel is asked for events.
func TestEarlyWatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s, err := Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	hints := make(chan struct{}, 1000)
	if _, err := s.Watch(t.Context(), "k", func() { hints <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	rec := enginetest.Claim(t, s, held("k", "a"))
	enginetest.Swap(t, s, rec, released(rec))
	<-hints
}

// TestEventsFail has the source fail while it is in use.
func TestEventsFail(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "locks.db"))
	s.watches.period = leastPollPeriod
	hints := make(chan struct{}, 1000)
	if _, err := s.Watch(t.Context(), "k", func() { hints <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	s.watches.mu.Lock()
	s.watches.kernel.close()
	s.watches.mu.Unlock()
	<-hints // whatever was missed in between
	rec := enginetest.Claim(t, s, held("k", "a"))
	drain(hints)
	enginetest.Swap(t, s, rec, released(rec))
	<-hints
}

func init() { children["free"] = childFree }

// childFree takes and releases one lock after the other, as long as its input
// lasts.
func childFree(file string) error {
	s, err := Open(file, nil)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		close(ended)
	}()
	if _, err := s.Watch(context.Background(), "k0", func() {}); err != nil {
		return err
	}
	ctx := context.Background()
	for i := 0; ; i++ {
		select {
		case <-ended:
			fmt.Fprintln(os.Stdout, "released", i)
			return s.Close()
		default:
		}
		rec, _, err := s.Claim(ctx, held(fmt.Sprint("k", i), "a"))
		if err != nil {
			return err
		}
		if _, err := s.Swap(ctx, rec, released(rec)); err != nil {
			return err
		}
	}
}

// TestNotifySwapped has a user with write permission only for the folder replace
// the notify file all the time, while another process releases locks: nothing
// hangs, and no other file is written.
func TestNotifySwapped(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	// The replacement may be the notify file of another database.
	const secret = notifyHeader + "the precious content of somebody else's file"
	const foreign = "the precious content of somebody else's file"
	for name, plant := range map[string]func(evil, victim string) error{
		"Symlink":   func(evil, victim string) error { return os.Symlink(victim, evil) },
		"Dangling":  func(evil, victim string) error { return os.Symlink(victim+".new", evil) },
		"HardLink":  func(evil, victim string) error { return os.Link(victim, evil) },
		"OtherFile": func(evil, _ string) error { return os.WriteFile(evil, []byte(foreign), 0o600) },
		"FIFO":      func(evil, _ string) error { return syscall.Mkfifo(evil, 0o666) },
		"Folder":    func(evil, _ string) error { return os.Mkdir(evil, 0o777) },
		"Socket": func(evil, _ string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: evil, Net: "unix"})
			if err == nil {
				l.SetUnlinkOnClose(false)
				err = l.Close()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			file, evil, victim := filepath.Join(folder, "l.db"), filepath.Join(folder, "evil"), filepath.Join(folder, "victim")
			if err := errors.Join(os.WriteFile(victim, []byte(secret), 0o600), plant(evil, victim)); err != nil {
				t.Skip(err)
			}
			c := start(t, "free", file, nil)
			eventually(t, func() error { _, err := os.Stat(file + notifySuffix); return err })
			swaps := 0
			swap := func() {
				t.Helper()
				if err := unix.Renameat2(unix.AT_FDCWD, evil, unix.AT_FDCWD, file+notifySuffix, unix.RENAME_EXCHANGE); err != nil {
					t.Fatal(err)
				}
				swaps++
			}
			for begun := time.Now(); time.Since(begun) < time.Second; {
				swap()
			}
			if swaps%2 == 0 {
				swap() // and it stays there
			}
			_ = c.stdin.Close()
			lines := c.wait(t)
			if len(lines) != 1 || !strings.HasPrefix(lines[0], "released ") {
				t.Errorf("child: %q", lines)
			}
			t.Log(lines, swaps, "swaps")
			for _, other := range []string{victim, file + notifySuffix} {
				if info, err := os.Lstat(other); err != nil || !info.Mode().IsRegular() {
					continue
				}
				if got, err := os.ReadFile(other); err != nil || string(got) != secret && string(got) != foreign {
					t.Errorf("%s was written: %q, %v", filepath.Base(other), got, err)
				}
			}
			if _, err := os.Lstat(victim + ".new"); err == nil {
				t.Error("a file was made at the end of a link")
			}
		})
	}
}
