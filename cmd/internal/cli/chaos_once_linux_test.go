// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/once"
)

// An hour of a crontab's line on three hosts, as fast as it goes: for each minute each
// of them starts tenure once with the time of its own clock, 14 s early to 44 s late, and
// some are killed with all that they have started. A job is begun at most once for each
// slot; it is begun for each, unless the host that had the slot was killed before its job
// could begin: the others say so then, or, if they had found it running and were gone, the
// ledger does.
func TestOnceOnThreeHosts(t *testing.T) {
	enginetest.MakeVerify(t)
	eachStore(t, onceOnThreeHosts)
}

func onceOnThreeHosts(t *testing.T, s *harness) {
	slots := 60
	const hosts = 3
	first := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	client, err := tenure.New(s.store(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.WithoutCancel(t.Context()))
	kills, lost, worked := 0, 0, map[int]bool{}
	for minute := range slots {
		at := first.Add(time.Duration(minute) * time.Minute)
		all := make([]*process, hosts)
		for _, host := range rand.Perm(hosts) {
			now := at.Add(rand.N(58*time.Second) - 14*time.Second)
			cmd := exec.Command("env", hostEntry(host), "tenure", "once", "--lease", "4s",
				"--owner", fmt.Sprintf("host-%d", host),
				"--cron", "* * * * *", "--tz", "UTC", "--now", now.Format(time.RFC3339), "job", "--",
				"sh", "-c", fmt.Sprintf(
					`echo "$TENURE_SLOT %d" >>"$DIR/begun"; sleep 0.1; echo "$TENURE_SLOT" >>"$DIR/ended"`, host))
			all[host] = s.run(cmd)
		}
		victims := map[int]bool{}
		if minute%3 == 0 { // one or two of the hosts crash
			for range 1 + rand.IntN(2) {
				time.Sleep(rand.N(250 * time.Millisecond))
				victim := rand.IntN(hosts)
				victims[victim] = true
				s.crash(victim)
				kills++
			}
		}
		told := false
		for host, p := range all {
			status := p.status()
			text := p.stderr.String()
			told = told || status == 73 || status == 75 && strings.Contains(text, "not known how it ended")
			switch {
			case status == 0 || victims[host]:
			case status == 73: // a machine that is so slow that the lease was lost
				t.Logf("minute %d, host %d: %s", minute, host, text)
				victims[host] = true
			case status == 75 && strings.Contains(text, "not known how it ended") && len(victims) > 0:
			default:
				t.Errorf("minute %d, host %d: status %d", minute, host, status)
			}
			if strings.Contains(text, "before this one") {
				t.Errorf("minute %d, host %d: a slot was left out: %s", minute, host, text)
			}
		}
		slot := strconv.FormatInt(once.Minute(at), 10)
		var begun []string
		for line := range strings.Lines(s.read("begun")) {
			if name, host, _ := strings.Cut(strings.TrimSpace(line), " "); name == slot {
				begun = append(begun, host)
			}
		}
		switch {
		case len(begun) > 1:
			t.Errorf("minute %d was begun by the hosts %v", minute, begun)
		case len(begun) == 0:
			lost++
			if owner := unended(t, client, "job", once.Minute(at)); !told && !victims[owner] {
				t.Errorf("minute %d was not begun, and nobody says so; %v were killed, the ledger has host %d",
					minute, victims, owner)
			}
		default:
			host, _ := strconv.Atoi(begun[0])
			worked[host] = true
		}
	}
	if n := len(strings.Fields(s.read("begun"))) / 2; n+lost != slots {
		t.Errorf("%d were begun and %d lost, of %d slots", n, lost, slots)
	}
	if len(worked) < 2 {
		t.Errorf("of the hosts only %v has worked", worked)
	}
	t.Logf("%d slots, %d kills: %d had ended, %d were lost before their work had begun", slots, kills,
		len(strings.Fields(s.read("ended"))), lost)
}

// unended returns the host that has begun a slot without an end, by the ledger, or -1.
func unended(t *testing.T, client *tenure.Client, name string, slot int64) int {
	t.Helper()
	status, err := once.Show(t.Context(), client, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range status.Runs {
		if run.Slot == slot && (run.State == once.StateRunning || run.State == once.StateUnknown) {
			host, err := strconv.Atoi(strings.TrimPrefix(run.Owner, "host-"))
			if err != nil {
				t.Fatal(err)
			}
			return host
		}
	}
	return -1
}

func hostEntry(host int) string { return fmt.Sprintf("TENURE_TEST_HOST=%d", host) }

// crash kills all processes of a host: tenure, its guardian, and the command.
func (s *harness) crash(host int) {
	for range 3 { // what is started meanwhile
		for _, pid := range s.left(markName+"="+s.mark, hostEntry(host)) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone is gone
		}
	}
}
