// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
)

// skipper notes why a test is skipped, or fails.
type skipper struct {
	testing.TB
	why string
}

func (s *skipper) Helper() {}

func (s *skipper) Skipf(format string, args ...any) {
	s.why = "skip: " + fmt.Sprintf(format, args...)
	runtime.Goexit() // as Skipf does
}

func (s *skipper) Fatalf(format string, args ...any) {
	s.why = "fail: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// A test without its engine is skipped, and its reason names the engine and a command that
// brings it; it fails where the engine is required.
func TestMissing(t *testing.T) {
	why := func(name string) string {
		s, done := &skipper{TB: t}, make(chan struct{})
		go func() {
			defer close(done)
			Shared(s, "TENURE_TEST_NONE", name)
		}()
		<-done
		return s.why
	}
	for _, c := range []struct{ required, name, want string }{
		{"", "etcd", `skip: etcd is not there: make verify has it, or scripts/engines run etcd starts it`},
		{"", "kubernetes", `skip: kubernetes is not there: make nightly-kubernetes has it, or scripts/engines run kubernetes starts it`},
		{"1", "etcd", `fail: etcd is not there, and TENURE_REQUIRE_ENGINES=1 requires it: scripts/engines run etcd starts it`},
		{"1", "kubernetes", `skip: kubernetes is not there: make nightly-kubernetes has it, or scripts/engines run kubernetes starts it`},
		{"1 kubernetes", "kubernetes", `fail: kubernetes is not there, and TENURE_REQUIRE_ENGINES=1 kubernetes requires it: scripts/engines run kubernetes starts it`},
	} {
		t.Setenv(Required, c.required)
		if got := why(c.name); got != c.want {
			t.Errorf("%q; want %q", got, c.want)
		}
	}
}

// TestStop: all processes of a server hang, and are gone once it is killed, also one that has
// gone to another folder.
func TestStop(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are made to hang on Linux alone")
	}
	e := NewEngine(t, []string{"sh", "-c", "sleep 300 & cd /; wait"}, nil, func() error { return nil })
	e.Start()
	all := e.running().Processes
	e.until("there are two", func() bool { return len(all()) == 2 })
	e.Stop()
	if hang := all(); len(hang) != 2 || slices.Contains(slices.Collect(maps.Values(hang)), false) {
		t.Errorf("after Stop they hang: %v", hang)
	}
	e.Continue()
	e.until("they go on", func() bool { return !slices.Contains(slices.Collect(maps.Values(all())), true) })
	e.Kill()
	if left := all(); len(left) > 0 {
		t.Errorf("after Kill there are %v", left)
	}
}
