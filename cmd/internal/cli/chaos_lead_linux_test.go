// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/sqlitestore"
)

// TestLeadersFailOver has three processes campaign, kills the leader, and ends
// the next one politely.
func TestLeadersFailOver(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	candidates := map[string]*process{}
	for i := range 3 {
		name := fmt.Sprintf("n%d", i)
		candidates[name] = s.start("lead", "--lease", "1s", "--owner", name, "job", "--",
			"sh", "-c", `echo "$TENURE_TOKEN $TENURE_OWNER" >>"$DIR/leaders"; exec sleep 60`)
	}
	leader := func(token int) *process {
		var lines []string
		s.await(fmt.Sprintf("leader %d", token), func() bool {
			lines = strings.Split(strings.TrimSpace(s.read("leaders")), "\n")
			return len(lines) >= token && strings.HasPrefix(lines[token-1], fmt.Sprint(token, " n"))
		})
		name := strings.Fields(lines[token-1])[1]
		p := candidates[name]
		if p == nil {
			t.Fatalf("leader %d is %q, who is gone", token, name)
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

// TestSuperseded takes the lock away under a holder that is alive and well: an
// operator with a database shell. Another one may be at work already, so the
// command is not given the minutes that its lease would have lasted.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := s.start("run", "--lease", "10m", "--heartbeat", "200ms", "job", "--",
		"sh", "-c", `trap "" TERM; echo >"$DIR/up"; while :; do sleep 0.1; done`)
	s.await("the command", func() bool { return s.read("up") != "" })
	store, err := sqlitestore.Open(s.path("locks.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s.await("the theft", func() bool {
		prev, err := store.Get(t.Context(), "job", driver.Strong)
		if err != nil {
			t.Fatal(err)
		}
		next := prev
		next.Owner, next.Token, next.Version, next.Beat = "thief", prev.Token+1, "stolen", "stolen"
		_, err = store.Swap(t.Context(), prev, next)
		return err == nil // else a heartbeat came in between
	})
	if status := p.status(); status != 73 {
		t.Errorf("status %d, want 73", status)
	}
	if want := `(lease superseded by "thief" under token 2): it was killed`; !strings.Contains(p.stderr.String(), want) {
		t.Errorf("said %q, want %q", p.stderr.String(), want)
	}
}
