// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHandOverByCommand has three processes campaign, and asks whoever leads to
// hand over to a certain one, by the command, again and again: the child of the
// leader is stopped politely, and the one that is named leads next.
func TestHandOverByCommand(t *testing.T) { eachStore(t, handOverByCommand) }

func handOverByCommand(t *testing.T, s *scene) {
	const heartbeat = time.Second
	// The child says when it begins, when it is told to stop, and when it has.
	const child = `trap 'echo "stop $TENURE_OWNER" >>"$DIR/log"; sleep 0.1; echo "end $TENURE_OWNER" >>"$DIR/log"; exit 0' TERM
		echo "begin $TENURE_OWNER" >>"$DIR/log"; while :; do sleep 0.02; done`
	candidates := make([]*process, 3)
	for i := range candidates {
		candidates[i] = s.start("lead", "--lease", "15s", "--heartbeat", heartbeat.String(), "--owner", fmt.Sprint("n", i), "job", "--", "sh", "-c", child)
		if i == 0 {
			s.await("the first leader", func() bool { return strings.Contains(s.read("log"), "begin n0\n") })
		}
	}
	log := "begin n0\n"
	leads := "n0"
	for _, to := range []string{"n2", "n1", "n0", "n2"} {
		begun := time.Now()
		p := s.start("step-down", "job", "--to", to, "--reason", "moving on", "--by", "anna")
		if status := p.status(); status != 0 {
			t.Fatalf("step-down: status %d: %s", status, p.stderr.String())
		}
		log += fmt.Sprintf("stop %s\nend %s\nbegin %s\n", leads, leads, to)
		s.await(to+" leads", func() bool { return strings.HasSuffix(s.read("log"), "begin "+to+"\n") })
		took := time.Since(begun)
		t.Logf("from %s to %s in %v, of which its child took 0.1 s to stop: %.2f heartbeat periods", leads, to, took.Round(time.Millisecond), float64(took)/float64(heartbeat))
		leads = to
	}
	if got := s.read("log"); got != log {
		t.Errorf("the children ran like this:\n%swant:\n%s", got, log)
	}
	p := s.start("history", "job", "--limit", "5")
	p.status()
	for _, p := range candidates {
		p.signal(syscall.SIGTERM)
		p.status()
	}
}

// TestTenAskersByCommand has ten processes ask at once: one request is laid, and
// the others are told of it.
func TestTenAskersByCommand(t *testing.T) { eachStore(t, tenAskersByCommand) }

func tenAskersByCommand(t *testing.T, s *scene) {
	holder := s.start("run", "--lease", "15s", "--heartbeat", "1s", "--owner", "n0", "job", "--", "sh", "-c",
		`trap 'while [ ! -e "$DIR/told" ]; do sleep 0.02; done; exit 0' TERM; echo >"$DIR/up"; while :; do sleep 0.02; done`)
	s.await("the command", func() bool { return s.read("up") != "" })
	asker := make([]*process, 10)
	for i := range asker {
		asker[i] = s.start("step-down", "job", "--reason", fmt.Sprint("reason ", i), "--by", fmt.Sprint("asker-", i))
	}
	ended := make(chan int)
	for i, p := range asker {
		go func() {
			if p.status() == 75 {
				ended <- i
			} else {
				ended <- -1
			}
		}()
	}
	for n := range 9 {
		i := <-ended
		if i < 0 {
			t.Fatalf("after %d that were refused another one ended otherwise", n)
		}
		text := asker[i].stderr.String()
		if !strings.Contains(text, `"n0" (token 1) has been asked already: by asker-`) || !strings.Contains(text, "reason ") {
			t.Errorf("asker %d was told %q", i, text)
		}
	}
	s.write("told", "yes")
	if <-ended != -1 {
		t.Error("the tenth was refused, too")
	}
	if status := holder.status(); status != 0 {
		t.Errorf("the holder ended with %d: %s", status, holder.stderr.String())
	}
}
