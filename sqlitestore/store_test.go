// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestOddPaths(t *testing.T) {
	for _, name := range []string{"a b.db", "a?b=c.db", "a#b.db", "a%20b%.db", "a&mode=memory.db", "ä\xff.db", "a'b\"c;d.db", "-x.db"} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			s := mustOpen(t, name) // relative
			enginetest.Claim(t, s, held("k", "a"))
			t.Chdir(t.TempDir())
			other := mustOpen(t, filepath.Join(filepath.Dir(s.file), name))
			if got := enginetest.Get(t, other, "k"); got.Owner != "a" {
				t.Fatalf("owner %q through the absolute path", got.Owner)
			}
			if _, err := os.Lstat(s.file); err != nil || filepath.Base(s.file) != name {
				t.Fatalf("file %q: %v", s.file, err)
			}
		})
	}
}

// TestLinkedPath has two stores open one file by different names. SQLite
// would corrupt it if they had different logs.
func TestLinkedPath(t *testing.T) {
	dir := t.TempDir()
	one := mustOpen(t, filepath.Join(dir, "locks.db"))
	if err := os.Symlink(dir, filepath.Join(dir, "folder")); err != nil {
		t.Skip(err)
	}
	if err := os.Symlink("locks.db", filepath.Join(dir, "link.db")); err != nil {
		t.Skip(err)
	}
	enginetest.Claim(t, one, held("k", "a"))
	for _, name := range []string{"folder/locks.db", "link.db", "folder/link.db"} {
		two := mustOpen(t, filepath.Join(dir, name))
		if two.file != one.file {
			t.Errorf("%s leads to %q, want %q", name, two.file, one.file)
		}
		if got := enginetest.Get(t, two, "k"); got.Owner != "a" {
			t.Errorf("%s: owner %q", name, got.Owner)
		}
	}
}

// TestNoGoroutineLeft counts goroutines around the life of a store.
func TestNoGoroutineLeft(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	before := runtime.NumGoroutine()
	for _, noEvents := range []bool{false, true} {
		s, err := Open(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.watches.noEvents = noEvents
		stop, err := s.Watch(t.Context(), "a", func() {})
		if err != nil {
			t.Fatal(err)
		}
		stop()
		stop()
		if _, err := s.Watch(t.Context(), "b", func() {}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		if now := runtime.NumGoroutine(); now > before {
			buf := make([]byte, 1<<16)
			return fmt.Errorf("%d goroutines, %d before:\n%s", now, before, buf[:runtime.Stack(buf, true)])
		}
		return nil
	})
}

// TestWatchHasItsContext has the setting up of a watch take too long, as on a disk
// that does not answer: Watch returns, and nothing is left of it.
func TestWatchHasItsContext(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "locks.db"))
	s.watches.mu.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := s.Watch(ctx, "k", func() {})
		got <- err
	}()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch returned %v", err)
	}
	s.watches.mu.Unlock()
	eventually(t, func() error {
		s.watches.mu.Lock()
		defer s.watches.mu.Unlock()
		if n := len(s.watches.hints); n > 0 {
			return fmt.Errorf("%d keys are watched", n)
		}
		return nil
	})
}

// TestCloseFoldsLog checks that the last to close leaves one file behind.
func TestCloseFoldsLog(t *testing.T) {
	enginetest.MakeVerify(t)
	file := filepath.Join(t.TempDir(), "locks.db")
	for range 20 {
		s, err := Open(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		enginetest.Claim(t, s, held(fresh(), "a"))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if names, _ := filepath.Glob(file + "*"); len(names) != 1 {
			t.Fatalf("left after Close: %q", names)
		}
	}
}
