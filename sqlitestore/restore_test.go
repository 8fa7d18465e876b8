// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/fence"
)

// use opens the file, has a client do something, and closes both, as a program does that
// is started and stopped.
func use(t *testing.T, file string, do func(c *tenure.Client)) {
	t.Helper()
	s, err := Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tenure.New(s, &tenure.Options{Owner: "app", LeaseDuration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	do(c)
	if err := errors.Join(c.Close(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// hold takes a lock, shows its token to a fence, and releases it.
func hold(t *testing.T, c *tenure.Client, gate *fence.Gate, name string) (token uint64, refused error) {
	t.Helper()
	l, err := c.Acquire(t.Context(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused = gate.Admit(t.Context(), name, l.Token())
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	return l.Token(), refused
}

// TestRestoredCopy: a copy of the file is put back. Without a raise tokens of the lost
// time are given again: the fence refuses them, or cannot tell them apart. With one, all
// locks that the copy has go on above them; and only those.
func TestRestoredCopy(t *testing.T) {
	for _, raise := range []bool{false, true} {
		file, copied := filepath.Join(t.TempDir(), "locks.db"), filepath.Join(t.TempDir(), "copy.db")
		gate := fence.NewGate(nil)
		var dead string
		use(t, file, func(c *tenure.Client) {
			if _, err := hold(t, c, gate, "x"); err != nil {
				t.Error(err)
			}
			s, err := c.OpenSession(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			l, err := s.Acquire(t.Context(), "tied", nil)
			if err != nil {
				t.Fatal(err)
			}
			dead = s.ID()
			shell(t, file, "VACUUM INTO '"+copied+"'")
			if err := errors.Join(l.Release(t.Context()), s.Close(t.Context())); err != nil {
				t.Error(err)
			}
			for range 3 { // in the lost time
				for _, name := range []string{"x", "new"} {
					if _, err := hold(t, c, gate, name); err != nil {
						t.Error(err)
					}
				}
			}
		})
		for _, part := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(file + part); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		if err := os.Rename(copied, file); err != nil {
			t.Fatal(err)
		}
		if raise {
			use(t, file, func(c *tenure.Client) {
				begun := time.Now()
				n, err := c.RaiseTokens(t.Context(), "", 1000, nil)
				if err != nil || n != (tenure.RaisedTokens{Locks: 2, Sessions: 1}) || time.Since(begun) < time.Second {
					t.Errorf("%+v, %v, after %v", n, err, time.Since(begun))
				}
			})
		}
		use(t, file, func(c *tenure.Client) {
			token, err := hold(t, c, gate, "x")
			var stale *fence.StaleError
			switch refused := errors.As(err, &stale); {
			case raise && (token != 1002 || err != nil):
				t.Errorf("token %d after the raise, and the fence says %v", token, err)
			case !raise && (token != 2 || !refused):
				t.Errorf("token %d after the restore, and the fence says %v: the harm is gone", token, err)
			}
			// What the copy does not have begins again. Nobody can help that.
			if token, _ := hold(t, c, gate, "new"); token != 1 {
				t.Errorf("token %d of a lock that the copy does not have", token)
			}
			if !raise {
				return
			}
			// Nobody waits for the session any more.
			if l, err := c.TryAcquire(t.Context(), "tied", nil); err != nil || l.Token() != 1002 {
				t.Errorf("%v, %v", l, err)
			} else if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if st, err := c.SessionStatus(t.Context(), dead); err != nil || st.State != string(driver.Closed) {
				t.Errorf("the session is %+v, %v", st, err)
			}
		})
	}
}
