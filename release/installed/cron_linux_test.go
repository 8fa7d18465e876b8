// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Two machines with cron and the guide's crontab, but for the minute and the store: each
// minute is begun on one of them, and once. Then the command is killed in the middle, with
// everything of it: the next minutes go on, and the one that was lost is told.
func TestCrontab(t *testing.T) {
	needs(t, "debootstrap", "nsenter")
	table := indented(t, jobs, "## A cron job on several hosts")
	l := newLAN(t)
	store := l.postgres()
	a, b := l.withCommand("a", store), l.withCommand("b", store)
	table = changed(t, table, "dynamodb://locks?region=eu-central-1", store)
	table = changed(t, table, "5 3 * * *", "* * * * *")
	for _, m := range []*machine{a, b} {
		m.write("/usr/local/bin/report", "#!/bin/sh\necho $TENURE_SLOT $TENURE_TOKEN >>/var/ran\n[ ! -e /var/hang ] || { echo $$ >/var/hangs; exec sleep 600; }\n", 0o755)
		m.write("/etc/hang", "", 0o600)
	}
	a.must("tenure table create")
	for _, m := range []*machine{a, b} {
		m.write("/var/table", table, 0o600)
		m.must("crontab /var/table; systemctl restart cron")
	}
	ran := func() (slots []int) {
		for _, m := range []*machine{a, b} {
			text, _ := os.ReadFile(m.file("/var/ran"))
			for line := range strings.Lines(string(text)) {
				slot, err := strconv.Atoi(strings.Fields(line)[0])
				if err != nil {
					t.Fatalf("a report runs for %q", line)
				}
				slots = append(slots, slot)
			}
		}
		slices.Sort(slots)
		return slots
	}
	eventually(t, 4*time.Minute, "two minutes were run", func() bool { return len(ran()) >= 2 })

	// Whichever machine comes next, hangs, and is hit in the middle.
	for _, m := range []*machine{a, b} {
		m.must("touch /var/hang")
	}
	var hit *machine
	eventually(t, 2*time.Minute, "a report hangs", func() bool {
		for _, m := range []*machine{a, b} {
			if _, err := os.Stat(m.file("/var/hangs")); err == nil {
				hit = m
			}
		}
		return hit != nil
	})
	lost := ran()[len(ran())-1]
	for _, m := range []*machine{a, b} {
		m.must("rm /var/hang")
	}
	hit.must("pkill -KILL --full 'tenure once'")
	eventually(t, 30*time.Second, "the report has ended with its tenure", func() bool {
		_, err := hit.try("pgrep -x sleep")
		return err != nil
	})
	eventually(t, 4*time.Minute, "two minutes more were run", func() bool { return len(ran()) >= 5 })

	slots := ran()
	for i := range slots[1:] {
		if slots[i+1] == slots[i] {
			t.Errorf("slot %d was begun twice: %v", slots[i], slots)
		}
	}
	var shown struct {
		Runs []struct {
			Slot  int    `json:"slot"`
			State string `json:"state"`
		} `json:"runs"`
	}
	out := b.must("tenure once nightly --show --json")
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	states := map[int]string{}
	for _, r := range shown.Runs {
		states[r.Slot] = r.State
	}
	for _, slot := range slots[:len(slots)-1] { // the last one may be running
		want := "done"
		if slot == lost {
			want = "unknown"
		}
		if states[slot] != want {
			t.Errorf("the run of slot %d is %q, want %q: %s", slot, states[slot], want, out)
		}
	}
}

// The guide's unit and timer, likewise, with the timer's time in seconds. And the service of
// which one instance is active: it moves when it is asked to, and when its process is killed;
// what the unit does after that, it has done.
func TestSystemd(t *testing.T) {
	needs(t, "debootstrap", "nsenter")
	l := newLAN(t)
	store := l.postgres()
	a, b := l.withCommand("a", store), l.withCommand("b", store)
	a.must("tenure table create")
	both := []*machine{a, b}

	units := part(t, jobs, "## A systemd timer", "ini")
	units[0] = changed(t, units[0], "dynamodb://locks?region=eu-central-1", store)
	units[0] = changed(t, units[0], "--cron '5 3 * * *'", "--cron '* * * * *'")
	units[1] = changed(t, units[1], "*-*-* 03:05:00", "*-*-* *:*:00\nAccuracySec=1s")
	for _, m := range both {
		m.write("/usr/local/bin/report", "#!/bin/sh\necho $TENURE_SLOT >>/var/ran\n", 0o755)
		m.write("/etc/systemd/system/nightly.service", units[0], 0o644)
		m.write("/etc/systemd/system/nightly.timer", units[1], 0o644)
		m.must("systemd-analyze verify nightly.service nightly.timer; systemctl daemon-reload; systemctl start nightly.timer")
	}
	ran := func() []string {
		var all []string
		for _, m := range both {
			text, _ := os.ReadFile(m.file("/var/ran"))
			all = append(all, strings.Fields(string(text))...)
		}
		return all
	}

	unit := part(t, jobs, "## A service with one active instance", "ini")[0]
	unit = changed(t, unit, "dynamodb://locks?region=eu-central-1", store)
	for _, m := range both {
		m.write("/usr/local/bin/scheduler", "#!/bin/sh\necho active $TENURE_TOKEN >>/var/active\nexec sleep 3600\n", 0o755)
		m.write("/usr/local/bin/standby", "#!/bin/sh\necho standby $SERVICE_RESULT $(pgrep -x sleep) >>/var/standby\n", 0o755)
		m.write("/etc/systemd/system/scheduler.service", unit, 0o644)
		m.must("systemd-analyze verify scheduler.service; systemctl daemon-reload; systemctl start scheduler")
	}
	leader := func(not *machine) (found *machine) {
		eventually(t, 90*time.Second, "another machine is active", func() bool {
			for _, m := range both {
				if _, err := m.try("pgrep -x sleep"); err == nil && m != not {
					found = m
				}
			}
			return found != nil
		})
		return found
	}
	first := leader(nil)
	first.must(`tenure step-down scheduler --reason "reboot"`)
	second := leader(first)

	begin := time.Now()
	second.must("kill -KILL $(systemctl show --property=MainPID --value scheduler)")
	third := leader(second)
	t.Logf("%s after the kill another machine is active; the lease is 15 s", time.Since(begin).Round(100*time.Millisecond))
	standby, err := os.ReadFile(second.file("/var/standby"))
	if lines := strings.Split(strings.TrimSpace(string(standby)), "\n"); err != nil || lines[len(lines)-1] != "standby signal" {
		t.Errorf("after the kill the unit has done %q, %v", standby, err)
	}
	tokens := regexp.MustCompile(`active (\d+)`).FindAllStringSubmatch(a.read("/var/active")+b.read("/var/active"), -1)
	seen := map[string]bool{}
	for _, token := range tokens {
		if seen[token[1]] {
			t.Errorf("two were active under token %s: %v", token[1], tokens)
		}
		seen[token[1]] = true
	}
	eventually(t, time.Minute, "the unit that was killed waits again", func() bool { _, err := second.try("systemctl is-active scheduler"); return err == nil })
	third.must("systemctl stop scheduler")
	if out := third.must("systemctl show --property=Result --value scheduler"); out != "success\n" {
		t.Errorf("a unit that was stopped ends with %s", out)
	}

	eventually(t, 4*time.Minute, "two minutes were run by the timers", func() bool { return len(ran()) >= 2 })
	slots := ran()
	slices.Sort(slots)
	if len(slices.Compact(slices.Clone(slots))) != len(slots) {
		t.Errorf("slots were begun twice: %q", slots)
	}
}

// withCommand boots a machine with the command of the release, which knows the store.
func (l *lan) withCommand(name, store string) *machine {
	l.t.Helper()
	m := l.boot(name)
	archive, err := os.ReadFile(only(l.t, "_amd64.tar.gz"))
	if err != nil {
		l.t.Fatal(err)
	}
	m.write("/root/tenure.tar.gz", string(archive), 0o600)
	m.must("tar xzf tenure.tar.gz; install tenure_*/tenure /usr/local/bin/")
	m.env = []string{"TENURE_STORE=" + store}
	return m
}

func (m *machine) read(path string) string {
	text, _ := os.ReadFile(m.file(path))
	return string(text)
}

// changed replaces what a guide leaves to its reader, and which is there.
func changed(t *testing.T, text, from, to string) string {
	t.Helper()
	if !strings.Contains(text, from) {
		t.Fatalf("the guide has no %q:\n%s", from, text)
	}
	return strings.ReplaceAll(text, from, to)
}

// indented returns the first block below a heading that is marked by its indentation.
func indented(t *testing.T, page, heading string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	var block strings.Builder
	for line := range strings.Lines(below) {
		if code, is := strings.CutPrefix(line, "    "); is {
			fmt.Fprint(&block, code)
		} else if block.Len() > 0 {
			break
		}
	}
	return block.String()
}
