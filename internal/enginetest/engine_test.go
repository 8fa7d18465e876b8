// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"runtime"
	"testing"
)

// skipper notes why a test is skipped.
type skipper struct {
	testing.TB
	why string
}

func (s *skipper) Helper() {}

func (s *skipper) Skipf(format string, args ...any) {
	s.why = fmt.Sprintf(format, args...)
	runtime.Goexit() // as Skipf does
}

// TestSkipsNameTheTarget: whoever is told that an engine is missing is told of a command that
// brings it.
func TestSkipsNameTheTarget(t *testing.T) {
	t.Setenv(Required, "")
	t.Setenv("TENURE_TEST_NONE", "")
	why := func(f func(testing.TB)) string {
		s, done := &skipper{TB: t}, make(chan struct{})
		go func() {
			defer close(done)
			f(s)
		}()
		<-done
		return s.why
	}
	for name, command := range map[string]string{"etcd": "make verify", "kubernetes": "make kubernetes"} {
		want := fmt.Sprintf(`%s is not running: %s starts it, and so does eval "$(scripts/engines up %[1]s)"`, name, command)
		if got := why(func(t testing.TB) { Shared(t, "TENURE_TEST_NONE", name) }); got != want {
			t.Errorf("%q; want %q", got, want)
		}
		want = fmt.Sprintf("%s is not installed: %s installs it, and so does scripts/engines install %[1]s", name, command)
		if got := why(func(t testing.TB) { Program(t, name, "none-*/none") }); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
