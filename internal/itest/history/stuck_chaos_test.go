// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/sqlitestore"
)

const progressTimeout = 500 * time.Millisecond

// childStuck holds the lock with work that never moves again. The goroutine
// that reads the input keeps the runtime from calling it a deadlock.
func childStuck(o order) error {
	s, err := sqlitestore.Open(o.File, nil)
	if err != nil {
		return err
	}
	opts := options(o.Owner)
	opts.ProgressTimeout = progressTimeout
	opts.LeaseDuration = 2 * lease // time for its last word
	c, err := tenure.New(s, opts)
	if err != nil {
		return err
	}
	return c.Run(context.Background(), lockName, recorded, func(_ context.Context, l *tenure.Lease) error {
		l.Progress()
		say("works", l.Token())
		select {}
	})
}

// Work that is stuck loses the lock while its process lives, and the next
// holder learns why.
func TestStuckWorkLosesTheLock(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locks.db")
	stuck := mustStart(t, order{Child: "stuck", File: file, Owner: "stuck"})
	if _, err := stuck.line("works"); err != nil {
		t.Fatal(err)
	}
	s, err := sqlitestore.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := tenure.New(s, &tenure.Options{Owner: "next"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())

	const slack = 20 * time.Second
	ctx, stop := context.WithTimeout(t.Context(), progressTimeout+2*lease+slack)
	defer stop()
	begun := time.Now()
	l, err := c.Acquire(ctx, lockName, recorded)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("taken over after %v: progress timeout %v, lease %v", time.Since(begun).Round(time.Millisecond), progressTimeout, 2*lease)
	if err := syscall.Kill(stuck.cmd.Process.Pid, 0); err != nil {
		t.Errorf("the stuck process does not live: %v", err)
	}
	select {
	case <-stuck.ended:
		t.Errorf("the stuck process has ended: %v", stuck.err)
	default:
	}
	if p, _ := l.Previous(); p.Owner != "stuck" || p.Token != 1 || p.End != tenure.EndStalled || !p.Until.IsZero() {
		t.Errorf("previous %+v", p)
	}
	history, err := c.History(ctx, lockName)
	if err != nil || len(history) != 2 || history[1].End != tenure.EndStalled {
		t.Errorf("history %+v, %v", history, err)
	}
	if err := holds(history, begun, "stuck", false); err != nil {
		t.Error(err)
	}
	if err := holds(history, time.Now(), "next", true); err != nil {
		t.Error(err)
	}
	if err := l.Release(ctx); err != nil {
		t.Error(err)
	}
	if err := stuck.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	<-stuck.ended
}
