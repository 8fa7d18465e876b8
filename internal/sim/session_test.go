// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"os"
	"testing"
)

func TestSessions(t *testing.T) {
	var ghosts, closed, opened int
	for seed := range uint64(3000) {
		shape := func(c *Config) { c.Sessions, c.Requests = true, false }
		tally, err := RunSeed(seed, shape, nil)
		ghosts, closed, opened = ghosts+tally.Ghosts, closed+tally.Closed, opened+tally.Sessions
		if err != nil {
			tr := &Trace{}
			_, err = RunSeed(seed, shape, tr)
			os.WriteFile("/tmp/s6.txt", []byte(tr.Text(0)), 0o600)
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%d sessions, %d closed by others, %d ghosts", opened, closed, ghosts)
}
