// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"runtime"
	"strings"
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
		{"", "etcd", "skip: NAME is not there: make verify has it, or scripts/engines run NAME starts it"},
		{"", "kubernetes", "skip: NAME is not there: make nightly-NAME has it, or scripts/engines run NAME starts it"},
		{"1", "etcd", "fail: NAME is not there, and TENURE_REQUIRE_ENGINES=1 requires it: " +
			"scripts/engines run NAME starts it"},
		{"1", "kubernetes", "skip: NAME is not there: make nightly-NAME has it, or scripts/engines run NAME starts it"},
		{"1 kubernetes", "kubernetes", "fail: NAME is not there, and TENURE_REQUIRE_ENGINES=1 NAME requires it: " +
			"scripts/engines run NAME starts it"},
	} {
		t.Setenv(Required, c.required)
		if got, want := why(c.name), strings.ReplaceAll(c.want, "NAME", c.name); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
