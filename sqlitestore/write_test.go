// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// class is what an error says to the layer above.
func class(err error) string {
	return fmt.Sprintf("not applied %t, permanent %t", errors.Is(err, driver.ErrNotApplied), errors.Is(err, driver.ErrPermanent))
}

const (
	passes    = "not applied true, permanent false"
	permanent = "not applied true, permanent true"
	unknown   = "not applied false, permanent false"
)

func wantError(t *testing.T, err error, wantClass, wantText string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if got := class(err); got != wantClass {
		t.Errorf("%v: %s, want %s", err, got, wantClass)
	}
	if text := err.Error(); !strings.Contains(text, wantText) || strings.Contains(text, "\n") {
		t.Errorf("%q: want one line with %q", text, wantText)
	}
}

// TestLocked has another program hold the file in each way that there is.
func TestLocked(t *testing.T) {
	for _, begin := range []string{"BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"} {
		t.Run(begin, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "locks.db")
			s := mustOpen(t, file)
			rec := enginetest.Claim(t, s, held("k", "a"))
			other := dialTest(t, file)
			defer func() { _ = other.close() }()
			if err := other.run(begin); err != nil {
				t.Fatal(err)
			}
			_, _, err := s.Claim(t.Context(), held("free", "a"))
			wantError(t, err, passes, "locked by another writer")
			_, err = s.Swap(t.Context(), rec, next(rec))
			wantError(t, err, passes, file)
			wantError(t, s.Delete(t.Context(), rec), passes, "locked by another writer")
			// Reads, and claims that a read answers, go on.
			enginetest.Get(t, s, "k")
			_, _, err = s.Claim(t.Context(), held("k", "b"))
			if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || conflict.Current.Owner != "a" {
				t.Errorf("claim of a held lock: %v, want a conflict", err)
			}
			if err := other.run("ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			enginetest.Swap(t, s, rec, next(rec))
		})
	}
}

// TestFull fills the database up to its limit.
func TestFull(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	rec := enginetest.Claim(t, s, held("k", "a"))
	atMost := func(pages int) {
		t.Helper()
		onWriter(t, s, false, func(c *conn) error { return c.run(fmt.Sprint("PRAGMA max_page_count = ", pages)) })
	}
	atMost(1) // what it has now at least
	big := next(rec)
	big.Data = make([]byte, driver.MaxDataLen)
	_, err := s.Swap(t.Context(), rec, big)
	wantError(t, err, passes, "no space left")
	if got := enginetest.Get(t, s, "k"); got.Version != rec.Version {
		t.Errorf("version %q, want %q", got.Version, rec.Version)
	}
	rec = enginetest.Swap(t, s, rec, next(rec)) // a heartbeat needs no space
	atMost(1_000_000)
	enginetest.Swap(t, s, rec, big)
}

// onWriter has the connection that writes do something.
func onWriter(t *testing.T, s *Store, durable bool, do func(*conn) error) {
	t.Helper()
	if err := s.submit(t.Context(), &write{durable: durable, apply: do}); err != nil {
		t.Fatal(err)
	}
}

// TestDurable: which swaps a power loss must not undo.
func TestDurable(t *testing.T) {
	rec := held("k", "a")
	taken, attached, changed := next(rec), next(rec), next(rec)
	taken.Token++
	attached.Session = "s"
	changed.Data = []byte("x")
	for name, tt := range map[string]struct {
		prev, next driver.Record
		want       bool
	}{
		"a takeover":                {rec, taken, true},
		"new data":                  {rec, changed, true},
		"attached to a session":     {rec, attached, true},
		"a heartbeat":               {rec, next(rec), false},
		"a request under a session": {attached, next(attached), false},
		"released from a session":   {attached, released(rec), false},
	} {
		if got := durable(tt.prev, tt.next); got != tt.want {
			t.Errorf("%s: durable %v, want %v", name, got, tt.want)
		}
	}
}

// TestCommitFails has COMMIT itself fail: the outcome is reported as unknown,
// and the next write can use the connection.
func TestCommitFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	shell(t, file, "CREATE TABLE parent (id INTEGER PRIMARY KEY)")
	shell(t, file, "CREATE TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
	violate := func(c *conn) error { return c.run("INSERT INTO child VALUES (1)") }
	onWriter(t, s, false, func(c *conn) error { // outside of a transaction
		return errors.Join(c.run(sqlRollback), c.run("PRAGMA foreign_keys = ON"), c.run(sqlBegin))
	})
	err := s.submit(t.Context(), &write{apply: violate})
	if err == nil || errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), "outcome unknown") {
		t.Fatalf("%v (%s): want an unknown outcome", err, class(err))
	}
	enginetest.Claim(t, s, held("k", "a"))
}

// hold occupies the writer until release is called.
func (s *Store) hold(t *testing.T) (release func()) {
	t.Helper()
	began, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.submit(t.Context(), &write{apply: func(*conn) error {
			close(began)
			<-end
			return nil
		}})
	}()
	<-began
	return func() {
		t.Helper()
		close(end)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestContext cancels writes that wait and a write that is under way.
func TestContext(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "locks.db"))
	rec := enginetest.Claim(t, s, held("k", "a"))
	ctx, cancel := context.WithCancel(t.Context())

	release := s.hold(t)
	errs := make(chan error, 2)
	go func() {
		_, err := s.Swap(ctx, rec, next(rec))
		errs <- err
	}()
	go func() { errs <- s.Delete(ctx, rec) }()
	cancel()
	for range 2 {
		err := <-errs
		wantError(t, err, passes, "canceled")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not match context.Canceled", err)
		}
	}
	release()

	ctx, cancel = context.WithCancel(t.Context())
	began, end := make(chan struct{}), make(chan struct{})
	go func() {
		errs <- s.submit(ctx, &write{apply: func(c *conn) error {
			close(began)
			<-end
			_, err := c.exec("UPDATE tenure_records SET owner = 'late'")
			return err
		}})
	}()
	<-began
	cancel()
	err := <-errs
	wantError(t, err, unknown, "outcome unknown")
	close(end)
	eventually(t, func() error {
		if got := enginetest.Get(t, s, "k"); got.Owner != "late" {
			return errors.New("the write that was under way has not been made")
		}
		return nil
	})
	wantError(t, s.Delete(ctx, rec), passes, "canceled")
	if got := enginetest.Get(t, s, "k"); got.Version != rec.Version {
		t.Errorf("version %q: a cancelled write was made", got.Version)
	}
}

// TestBatchMates has one write of a transaction fail: the others are made.
func TestBatchMates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	shell(t, file, "CREATE TRIGGER poison BEFORE INSERT ON tenure_records WHEN new.name = 'k3' BEGIN SELECT raise(ABORT, 'poison'); END")
	var batch []*write
	for i := range 6 {
		w := &write{ctx: t.Context(), done: make(chan error, 1)}
		w.apply = func(c *conn) (err error) {
			_, _, w.answer, err = claim(c, held(fmt.Sprint("k", i%5), "a"))
			return err
		}
		batch = append(batch, w)
	}
	c := dialTest(t, file)
	defer func() { _ = c.close() }()
	s.commit(c, batch)
	for i, w := range batch {
		switch err := <-w.done; {
		case i == 3:
			wantError(t, err, permanent, "poison")
		case i == 5: // the key of the first
			if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) {
				t.Errorf("the second claim of k0: %v, want a conflict", err)
			}
		case err != nil:
			t.Errorf("k%d: %v", i, err)
		}
	}
}

// TestWaitsForAnotherWriter has another process write at the same time: a write waits for
// it, for a while, and is joined by writes that have come meanwhile.
func TestWaitsForAnotherWriter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	other := dialTest(t, file)
	defer func() { _ = other.close() }()
	lock := func(sql string) {
		if err := other.run(sql); err != nil {
			t.Error(err)
		}
	}
	// open opens a store that pauses by calling wait, and has the other process write.
	open := func(t *testing.T, wait func(try int) bool) *Store {
		s := mustOpen(t, file)
		s.yield = wait
		lock("BEGIN IMMEDIATE")
		return s
	}
	t.Run("ends", func(t *testing.T) {
		var s *Store
		second := make(chan error, 1)
		s = open(t, func(try int) bool {
			if try < 2 {
				return true
			}
			lock("ROLLBACK")
			go func() {
				_, _, err := s.Claim(t.Context(), held("second", "a"))
				second <- err
			}()
			return true
		})
		enginetest.Claim(t, s, held("first", "a"))
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
	t.Run("goes on", func(t *testing.T) {
		tries := 0
		s := open(t, func(try int) bool { tries++; return true })
		_, _, err := s.Claim(t.Context(), held("third", "a"))
		wantError(t, err, passes, "locked by another writer")
		if tries != busyTries {
			t.Errorf("%d pauses, want %d", tries, busyTries)
		}
		lock("ROLLBACK")
	})
	t.Run("nobody waits for it any more", func(t *testing.T) {
		ctx, gone := context.WithCancel(t.Context())
		s := open(t, func(int) bool { gone(); return true })
		_, _, err := s.Claim(ctx, held("fourth", "a"))
		if err == nil {
			t.Error("no error")
		}
		lock("ROLLBACK")
		enginetest.Claim(t, s, held("fifth", "a")) // the writer has done with the fourth
		if _, err := s.Get(t.Context(), "fourth", driver.Strong); !errors.Is(err, driver.ErrNotFound) {
			t.Errorf("%v, want that it was never written", err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		s := mustOpen(t, file)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s.pause(busyTries) {
			t.Error("a closed store waits for another writer")
		}
	})
}

// TestCloseWaits closes a store while a write is under way.
func TestCloseWaits(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "locks.db"))
	release := s.hold(t)
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	<-s.closing
	eventually(t, func() error {
		if len(s.readers) != 0 {
			return errors.New("Close does not close the reading connections")
		}
		return nil
	})
	for range 1000 {
		runtime.Gosched()
	}
	select {
	case err := <-closed:
		t.Errorf("Close returned (%v) before the write had ended", err)
	default:
	}
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, _, err := s.Claim(t.Context(), held("k", "a")); !errors.Is(err, driver.ErrClosed) || !errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("after Close: %v", err)
	}
}

// TestCorruptPage overwrites a page of a database between two opens of it.
func TestCorruptPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	damage(t, file, 4096, 8192) // the root of the table
	s := mustOpen(t, file)
	_, _, err := s.Claim(t.Context(), held("k1", "a"))
	wantError(t, err, permanent, "corrupt")
	if _, err = s.List(t.Context(), "", ""); !errors.Is(err, driver.ErrPermanent) {
		t.Errorf("list: %v", err)
	}
}

// TestUnreadableColumns plants one wrong value after the other.
func TestUnreadableColumns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	text := func(member string) string { return `record = '{"lease":"20s",` + member + `}'` }
	for _, c := range []struct{ set, want string }{
		{"state = 'Held'", "column state is"},
		{"state = ''", "column state is"},
		{"state = 'held '", "column state is"},
		{"owner = 'a' || char(0)", "column owner has"},
		{"owner = ''", "column owner is"},
		{"token = 0", "column token is"},
		{"token = -1", "column token is"},
		{"version = ''", "column version is"},
		{"state = 'resting'", "its text has no session"},
		{"record = ''", "not a JSON object"},
		{"record = 'null'", "not a JSON object"},
		{"record = '[]'", "not a JSON object"},
		{"record = '{}'", "has no lease"},
		{"record = record || 'x'", "more text"},
		{"record = CAST(x'7bff7d' AS TEXT)", "not UTF-8"},
		{`record = '{"lease":"0s"}'`, "lease is"},
		{`record = '{"lease":"-1s"}'`, "lease is"},
		{`record = '{"lease":20}'`, "lease is"},
		{text(`"heartbeat":"-1s"`), "heartbeat is"},
		{text(`"session":"s1"`), "column state is"},
		{text(`"session":null`), "session is null"},
		{text(`"drift":-0.1`), "drift is"},
		{text(`"drift":1`), "drift is"},
		{text(`"bell":1`), "bell is"},
		{text(`"host":"\u0000"`), "host has"},
		{text(`"since":"yesterday"`), "since is"},
		{text(`"until":""`), "until is"},
		{text(`"token":1`), "is a column"},
		{text(`"prev":{"token":-1}`), "prev.token is"},
		{text(`"prev":1`), "prev cannot be read"},
		{text(`"prev":{"asked":"x"}`), "prev.asked cannot"},
		{text(`"requests":""`), "requests is"},
		{text(`"requests":null`), "requests is"},
		{text(`"requests":{}`), "requests is"},
		{text(`"requests":[null]`), "requests cannot"},
		{text(`"requests":[{"id":"q","kind":1}]`), "requests.kind is"},
		{text(`"requests":[{"id":"q","kind":"step_down"}`), "not a JSON object"},
		{text(`"requests":[{"id":"q"},{"id":7}]`), "requests.id is"},
		{text(`"requests":[{"id":"q","at":"now"}]`), "requests.at is"},
		{text(`"requests":[{"id":"q","reason":"\u0000"}]`), "requests.reason has"},
		{text(`"asked":""`), "asked cannot"},
		{text(`"asked":null`), "asked is null"},
		{text(`"asked":[]`), "asked cannot"},
		{text(`"asked":{"id":7,"kind":"free"}`), "asked.id is"},
		{text(`"asked":{"id":"q","kind":"free","at":3}`), "asked.at is"},
	} {
		set := c.set
		rec := enginetest.Claim(t, s, held("k", "a"))
		shell(t, file, "UPDATE tenure_records SET "+set)
		_, err := s.Get(t.Context(), "k", driver.Strong)
		if !errors.Is(err, driver.ErrUnreadable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Get: %v", set, err)
		}
		_, _, err = s.Claim(t.Context(), held("k", "b"))
		if !errors.Is(err, driver.ErrUnreadable) || !errors.Is(err, driver.ErrNotApplied) {
			t.Errorf("%s: Claim: %v", set, err)
		}
		wrong := rec
		wrong.Version = "another"
		_, err = s.Swap(t.Context(), wrong, next(rec))
		if !errors.Is(err, driver.ErrUnreadable) || !errors.Is(err, driver.ErrNotApplied) {
			t.Errorf("%s: Swap: %v", set, err)
		}
		page, err := s.List(t.Context(), "", "")
		if err != nil || len(page.Records) != 0 || !errors.Is(page.Unreadable["k"], driver.ErrUnreadable) {
			t.Errorf("%s: List: %+v, %v", set, page, err)
		}
		shell(t, file, "DELETE FROM tenure_records")
	}
}

// TestSync checks which writes outlive a power loss from their answer on. What
// the disk does about it is beyond a test.
func TestSync(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "locks.db"))
	const normal, full = 1, 2
	check := func(what string, want int64) {
		t.Helper()
		var got int64
		// A write like a heartbeat would switch the mode, so the write is one
		// that asks for what is there.
		onWriter(t, s, s.sync == syncFull, func(c *conn) error {
			const sql = "PRAGMA synchronous"
			delete(c.stmts, sql) // its answer is from when it was prepared
			return c.query(sql, func(row []sqldriver.Value) bool { got = row[0].(int64); return false })
		})
		if got != want {
			t.Errorf("%s: synchronous is %d, want %d", what, got, want)
		}
	}
	rec := enginetest.Claim(t, s, held("k", "a"))
	check("claim", full)
	rec = enginetest.Swap(t, s, rec, next(rec))
	check("heartbeat", normal)
	data := next(rec)
	data.Data = []byte("checkpoint")
	rec = enginetest.Swap(t, s, rec, data)
	check("data", full)
	asked := next(rec)
	asked.Requests = []driver.Request{{ID: "q", Kind: driver.StepDown}}
	rec = enginetest.Swap(t, s, rec, asked)
	check("request", normal)
	reserved := released(rec)
	reserved.State = driver.Reserved
	rec = enginetest.Swap(t, s, rec, reserved)
	check("reservation", normal)
	past := held("tenure/history/k/1", "a")
	past.State = driver.Past
	enginetest.Claim(t, s, past)
	check("history", full)
	enginetest.Swap(t, s, rec, released(rec))
	check("release", normal)
	rec = enginetest.Claim(t, s, held("k", "b"))
	rec = enginetest.Swap(t, s, rec, next(rec))
	check("heartbeat", normal)
	taken := next(rec)
	taken.Token++
	rec = enginetest.Swap(t, s, rec, taken)
	check("takeover", full)
	if err := s.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	check("delete", normal)
}
