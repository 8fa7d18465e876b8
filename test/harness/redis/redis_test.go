// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package redis

import (
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/test/harness/must"
)

// TestLosses: each loss loses what was answered last, and nothing of what had spread before, unless it loses all. The
// life of the server has another name then.
func TestLosses(t *testing.T) {
	enginetest.MakeVerify(t)
	if _, err := launcher.SystemProgram("redis-server"); err != nil {
		enginetest.Missing(t, "redis", "scripts/setup installs it: "+err.Error())
	}
	for _, test := range []struct {
		name       string
		setup      Setup
		before     func(*Servers)
		strike     func(*testing.T, *Servers)
		kept, lost bool
	}{
		{"fail over", Setup{Replicas: 2}, (*Servers).Lag, func(t *testing.T, s *Servers) {
			t.Helper()
			s.FailOver(t.Context())
			s.Rejoin(t.Context())
		}, true, true},
		{"isolate", Setup{Replicas: 2}, (*Servers).Isolate, func(t *testing.T, s *Servers) {
			t.Helper()
			old := s.Client()
			s.Promote(t.Context())
			must.Do(old.Set(t.Context(), "still", "taken", 0).Err())
			s.Rejoin(t.Context())
		}, true, true},
		{"power cut", Setup{Fsync: "everysec"}, nil, func(t *testing.T, s *Servers) {
			t.Helper()
			if n := s.PowerCut(t.Context(), 0); n <= 0 {
				t.Errorf("%d bytes were lost", n)
			}
		}, true, true},
		{"power cut, with always", Setup{Fsync: "always"}, nil, func(t *testing.T, s *Servers) {
			t.Helper()
			s.PowerCut(t.Context(), 0)
		}, true, false},
		{"restart", Setup{Fsync: "everysec"}, nil, func(t *testing.T, s *Servers) {
			t.Helper()
			s.Restart(t.Context(), 0)
		}, true, false},
		{"empty", Setup{}, nil, func(t *testing.T, s *Servers) {
			t.Helper()
			s.Empty(t.Context(), 0)
		}, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.setup.Dir = t.TempDir()
			if err := must.Try(func() {
				s := Start(t.Context(), test.setup)
				defer s.Close()
				must.Do(s.Client().Set(t.Context(), "first", "1", 0).Err())
				s.Spread(t.Context())
				life := s.life(t)
				if test.before != nil {
					test.before(s)
				}
				must.Do(s.Client().Set(t.Context(), "last", "1", 0).Err())
				test.strike(t, s)
				if n := must.Have(s.Client().Exists(t.Context(), "first").Result()); n == 1 != test.kept {
					t.Errorf("what was written first is there: %d", n)
				}
				if n := must.Have(s.Client().Exists(t.Context(), "last").Result()); n == 0 != test.lost {
					t.Errorf("what was written last is there: %d", n)
				}
				if s.life(t) == life {
					t.Errorf("the life of the server is still %s", life)
				}
				s.Spread(t.Context())
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

func (s *Servers) life(t *testing.T) string {
	t.Helper()
	return must.Have(s.Client().InfoMap(t.Context(), "replication").Result())["Replication"]["master_replid"]
}
