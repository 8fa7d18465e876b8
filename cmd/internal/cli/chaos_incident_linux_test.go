// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// wire puts a proxy between the processes of the scene and DynamoDB.
func (s *scene) wire() *enginetest.Wire {
	s.t.Helper()
	e := enginetest.FullDynamoDB(s.t)
	w := enginetest.NewWire(s.t, e)
	s.url = strings.Replace(s.url, e.URL, w.URL, 1)
	return w
}

// reads tells the requests that ask for records.
func reads(operation string) bool {
	return slices.Contains([]string{"GetItem", "BatchGetItem", "Query", "Scan", "UpdateItem"}, operation)
}

// incident answers the third request for a record as if the client's key was
// unknown, and each third one after it as if it was not granted, until it is over.
// All others are answered well.
type incident struct {
	asked atomic.Int64
	over  atomic.Bool
}

func startIncident(w *enginetest.Wire) *incident {
	i := new(incident)
	w.SetFault(func(operation string) enginetest.Fault {
		if !reads(operation) {
			return enginetest.Pass
		}
		switch n := i.asked.Add(1); {
		case n == 3:
			return enginetest.Unrecognized
		case n%3 == 0 && !i.over.Load():
			return enginetest.Denied
		}
		return enginetest.Pass
	})
	return i
}

// TestStandbyOutlivesBadAnswers gives a standby, and a process that watches, answers
// that would end them if they were the first ones, after good ones. Both go on, and
// the standby leads when the leader is gone.
func TestStandbyOutlivesBadAnswers(t *testing.T) {
	t.Parallel()
	s := newTableScene(t)
	direct := s.url
	lead := func(owner string) *process {
		return s.start("lead", "--verbose", "--lease", "10s", "--refresh", "200ms", "--owner", owner, "job", "--",
			"sh", "-c", `echo "$TENURE_OWNER" >>"$DIR/leaders"; exec sleep 600`)
	}
	first := lead("first")
	s.await("the leader", func() bool { return s.read("leaders") == "first\n" })

	waits := startIncident(s.wire())
	standby := lead("standby")
	s.url = direct
	looks := startIncident(s.wire())
	watch := s.start("status", "--watch", "--refresh", "100ms")
	// until waits for what a process has said, which it must live to say.
	until := func(p *process, said string, times int) {
		t.Helper()
		s.await(said, func() bool {
			select {
			case <-p.done:
				t.Fatalf("%q ended with status %d: %s", p.cmd.Args, p.status(), p.stderr.String())
			default:
			}
			return strings.Count(p.stderr.String(), said) >= times
		})
	}
	until(watch, "the credentials are not valid here", 1)
	for _, p := range []*process{standby, watch} {
		until(p, "access is denied", 1)
	}
	waits.over.Store(true)
	looks.over.Store(true)
	until(watch, "the store answers again", 2)
	asked := waits.asked.Load()
	s.await("good answers", func() bool { return waits.asked.Load() > asked+3 })
	first.signal(syscall.SIGKILL)
	s.await("the standby to lead", func() bool { return s.read("leaders") == "first\nstandby\n" })
	watch.signal(syscall.SIGINT)
	if status := watch.status(); status != 130 {
		t.Errorf("status --watch ended with status %d, want 130", status)
	}
	standby.signal(syscall.SIGTERM)
	if status := standby.status(); status != 143 {
		t.Errorf("the standby ended with status %d, want 143", status)
	}
}
