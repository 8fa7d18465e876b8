// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// sessionReads is a store that counts the reads of sessions.
type sessionReads struct {
	driver.Store
	n atomic.Int64
}

func (s *sessionReads) Get(ctx context.Context, key string, how driver.Consistency) (driver.Record, error) {
	if strings.HasPrefix(key, driver.SessionPrefix) {
		s.n.Add(1)
	}
	return s.Store.Get(ctx, key, how)
}

// A look at many locks under a session does not read the session for each. When
// it was closed its locks are free, though their records say nothing of that.
func TestSessionsAreReadOnce(t *testing.T) {
	const locks = 20
	ctx := context.WithoutCancel(t.Context())
	store := &sessionReads{Store: memstore.New()}
	open := func() *tenure.Client {
		c, err := tenure.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(ctx) })
		return c
	}
	s, err := open().OpenSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range locks {
		l, err := s.Acquire(ctx, fmt.Sprint("job", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-l.Context().Done()
			_ = l.Release(ctx) // its session is closed
		}()
	}
	shows := func(state string, most int64) {
		t.Helper()
		before := store.n.Load()
		rows, err := look(ctx, open(), nil)
		if err != nil || len(rows) != locks {
			t.Fatalf("%d rows: %v", len(rows), err)
		}
		for _, r := range rows {
			if r.state != state || r.Session != s.ID() {
				t.Errorf("%s is %s, want %s, under session %q, want %q", r.Name, r.state, state, r.Session, s.ID())
			}
			if r.Until.IsZero() == (state == stateFree) {
				t.Errorf("%s, %s, ended at %v", r.Name, state, r.Until)
			}
		}
		if n := store.n.Load() - before; n < 1 || n > most {
			t.Errorf("%d reads of the session, want %d at most", n, most)
		}
	}
	shows(stateHeld, 1)
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	shows(stateFree, 2) // again, for when it was closed
}
