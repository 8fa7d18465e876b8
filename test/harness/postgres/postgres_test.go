// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package postgres

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/wait"
)

// TestLosses: a failover loses what was answered last, whichever way the last primary became a standby, and nothing of
// what had spread before. The old primary takes writes after the promotion, and does not learn of it.
func TestLosses(t *testing.T) {
	enginetest.MakeVerify(t)
	if _, err := launcher.PostgresProgram("pg_rewind"); err != nil {
		enginetest.Missing(t, "postgres", "scripts/setup installs it: "+err.Error())
	}
	dir, ctx := t.TempDir(), t.Context()
	must.Do(errors.Join(os.Chmod(filepath.Dir(dir), 0o711), os.Chmod(dir, 0o711))) // for the servers' user
	if err := must.Try(func() {
		s := Start(ctx, dir, 2)
		defer s.Close()
		for _, name := range []string{"rewound", "copied"} {
			old := s.members[s.primary]
			has := func(m *member, table string) bool {
				return m.ask(ctx, "SELECT to_regclass('"+table+"_"+name+"') IS NOT NULL") == "t"
			}
			old.ask(ctx, "CREATE TABLE first_"+name+" ()")
			must.Do(wait.Until(ctx, "it spreads", func() bool {
				return !slices.ContainsFunc(s.members, func(m *member) bool { return !has(m, "first") })
			}))
			s.Lag()
			old.ask(ctx, "CREATE TABLE last_"+name+" ()")
			s.Promote(ctx)
			old.ask(ctx, "CREATE TABLE later_"+name+" ()")
			must.Do(wait.Until(ctx, "the old primary misses its standbys", func() bool {
				return old.ask(ctx, "SELECT count(*) FROM pg_stat_replication") == "0"
			}))
			s.Rejoin(ctx)
			for i, m := range s.members {
				if !has(m, "first") || has(m, "last") || has(m, "later") {
					t.Errorf("%s: server %d has lost something else", name, i)
				}
			}
		}
	}); err != nil {
		t.Error(err)
	}
}
