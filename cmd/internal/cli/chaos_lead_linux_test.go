// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestLeadersFailOver has three processes campaign, kills the leader, and ends
// the next one politely.
func TestLeadersFailOver(t *testing.T) { eachStore(t, leadersFailOver) }

func leadersFailOver(t *testing.T, s *scene) {
	candidates := map[string]*process{}
	for i := range 3 {
		name := fmt.Sprintf("n%d", i)
		candidates[name] = s.start("lead", "--lease", "5s", "--owner", name, "job", "--",
			"sh", "-c", `echo "$TENURE_TOKEN $TENURE_OWNER" >>"$DIR/leaders"; exec sleep 60`)
	}
	last := 0
	// On a machine that is very busy a term may end before its command has begun:
	// tokens rise, but not by one.
	leader := func(term int) *process {
		var lines []string
		s.await(fmt.Sprintf("leader %d", term), func() bool {
			lines = strings.SplitAfter(s.read("leaders"), "\n")
			return len(lines) > term
		})
		token, name := 0, ""
		if _, err := fmt.Sscan(lines[term-1], &token, &name); err != nil || token <= last {
			t.Fatalf("leader %d is %q after token %d: %v", term, lines[term-1], last, err)
		}
		last = token
		p := candidates[name]
		if p == nil {
			t.Fatalf("leader %d is %q, who is gone", term, name)
		}
		delete(candidates, name)
		return p
	}
	first := leader(1)
	first.signal(syscall.SIGKILL)
	second := leader(2)
	second.signal(syscall.SIGTERM)
	if status := second.status(); status != 143 {
		t.Errorf("the leader that was ended politely has status %d, want 143", status)
	}
	third := leader(3)
	third.signal(syscall.SIGTERM)
	third.status()
	if n := strings.Count(s.read("leaders"), "\n"); n != 3 {
		t.Errorf("%d terms, want 3:\n%s", n, s.read("leaders"))
	}
}
