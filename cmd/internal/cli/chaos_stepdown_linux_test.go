// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"strings"
	"testing"
)

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
