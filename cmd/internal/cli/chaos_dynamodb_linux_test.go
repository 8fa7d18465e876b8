// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"math/rand/v2"
	"strings"
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

// TestDynamoDBGoesAway has every request fail while a command runs, one that
// takes no notice of being told to stop: it is killed, and whoever comes when
// DynamoDB is back takes the lock over.
func TestDynamoDBGoesAway(t *testing.T) {
	t.Parallel()
	s := newTableScene(t)
	w := s.wire()
	p := s.start("run", "--lease", "5s", "job", "--", "sh", "-c", `trap "" TERM; echo >"$DIR/up"; while :; do sleep 0.1; done`)
	s.await("the command", func() bool { return s.read("up") != "" })
	w.SetFault(func(string) enginetest.Fault { return enginetest.Refuse })
	if status := p.status(); status != 73 {
		t.Errorf("status %d, want 73", status)
	}
	if text := p.stderr.String(); !strings.Contains(text, "it was killed") {
		t.Errorf("said %q", text)
	}
	// Who opens the store now is told at once.
	late := s.start("run", "job", "--", "true")
	if status := late.status(); status != 69 {
		t.Errorf("without DynamoDB: status %d, want 69: %s", status, late.stderr.String())
	}
	w.SetFault(nil)
	if next := s.start("run", "--lease", "15s", "job", "--", "sh", "-c", `[ "$TENURE_TOKEN" = 2 ]`); next.status() != 0 {
		t.Errorf("afterwards: status %d: %s", next.status(), next.stderr.String())
	}
}

// TestLostReplies has a fifth of all writes be applied without their reply, or
// with an answer of 500 in its place, while many contend: nobody takes another
// one's write for its own, nor its own for another one's.
func TestLostReplies(t *testing.T) {
	s := newTableScene(t)
	w := s.wire()
	w.SetFault(func(operation string) enginetest.Fault {
		switch n := rand.IntN(10); {
		case operation != "UpdateItem" || n > 1:
			return enginetest.Pass
		case n == 0:
			return enginetest.Answer500
		}
		return enginetest.DropReply
	})
	for i, p := range s.contend("15s") { // longer than the slowest machine needs for a heartbeat
		if status := p.status(); status != 0 {
			t.Errorf("process %d ended with status %d: %s", i, status, p.stderr.String())
		}
	}
	if n := s.checkCounter(); n != contenders {
		t.Errorf("the counter is %d, want %d", n, contenders)
	}
	if w.Counts()["UpdateItem"] < 2*contenders {
		t.Error("the requests did not come this way")
	}
}
