// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"go.yaml.in/yaml/v4"
)

// two boots two machines with the release's command, which share a database.
func two(t *testing.T) (both []*machine, store string) {
	t.Helper()
	store = postgres(t)
	program, err := os.ReadFile(command(t) + "/tenure")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		m := boot(t, name, "TENURE_STORE="+store)
		m.write("/usr/local/bin/tenure", string(program))
		m.write("/usr/local/bin/report", "#!/bin/sh\necho $TENURE_SLOT >>/var/ran\n[ ! -e /var/hang ] || exec sleep 600\n")
		m.must("touch /var/ran")
		both = append(both, m)
	}
	both[0].must("tenure table create")
	return both, store
}

// ran returns the slots that were begun on the machines, and fails if one was begun
// twice.
func ran(t *testing.T, both []*machine) (slots []string) {
	t.Helper()
	for _, m := range both {
		slots = append(slots, strings.Fields(m.must("cat /var/ran"))...)
	}
	slices.Sort(slots)
	if n := len(slots); n != len(slices.Compact(slices.Clone(slots))) {
		t.Fatalf("a slot was begun twice: %q", slots)
	}
	return slots
}

// Two machines with cron and the guide's crontab, but for the minute and the store: each minute is
// begun on one of them, and once. Then the command is killed in the middle, with all its
// processes: the next minutes go on, and the lost one is reported.
func TestCrontab(t *testing.T) {
	both, store := two(t)
	table := shown(t, jobs, "## A cron job on several hosts", "")[0]
	table = changed(t, table, "dynamodb://locks?region=eu-central-1", store)
	table = changed(t, table, "5 3 * * *", "* * * * *")
	for _, m := range both {
		m.must("touch /var/hang")
		m.write("/var/table", table)
		m.must("crontab /var/table; systemctl restart cron")
	}
	eventually(t, 3*time.Minute, "a report hangs", func() bool { return len(ran(t, both)) == 1 })
	lost := ran(t, both)[0]
	for _, m := range both {
		m.must("rm /var/hang; pkill -KILL --full ^/usr/local/bin/tenure || true")
	}
	eventually(t, 5*time.Minute, "more minutes were run", func() bool { return len(ran(t, both)) == 4 })
	for _, m := range both {
		m.must("! pgrep -x sleep") // the report has ended with its term
	}
	var list struct {
		Runs []struct {
			Slot  json.Number
			State string
		}
	}
	out := both[0].must("tenure once nightly --show --json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	states := map[string]string{}
	for _, r := range list.Runs {
		states[string(r.Slot)] = r.State
	}
	if slots := ran(t, both); states[lost] != "unknown" || states[slots[1]] != "done" || states[slots[2]] != "done" {
		t.Errorf("of %q the first was lost: %s", slots, out)
	}
}

// The guide's unit and timer, likewise. And the service with one active instance: it
// moves when it is asked to, and when its process is killed; the unit's later actions
// have happened too.
func TestSystemd(t *testing.T) {
	both, store := two(t)
	unit := shown(t, jobs, "## A service with one active instance", "ini")[0]
	timed := shown(t, jobs, "## A systemd timer", "ini")
	for _, m := range both {
		m.write("/usr/local/bin/scheduler", "#!/bin/sh\necho active $TENURE_TOKEN >>/var/active\nexec sleep 3600\n")
		m.write("/usr/local/bin/standby", "#!/bin/sh\necho standby $SERVICE_RESULT $(pgrep -x sleep) >>/var/standby\n")
		m.write("/etc/systemd/system/scheduler.service", changed(t, unit, "dynamodb://locks?region=eu-central-1", store))
		nightly := changed(t, timed[0], "dynamodb://locks?region=eu-central-1", store)
		m.write("/etc/systemd/system/nightly.service", changed(t, nightly, "--cron '5 3 * * *'", "--cron '* * * * *'"))
		m.write("/etc/systemd/system/nightly.timer", changed(t, timed[1], "*-*-* 03:05:00", "*-*-* *:*:00\nAccuracySec=1s"))
		m.must("systemctl daemon-reload; systemd-analyze verify nightly.service nightly.timer scheduler.service")
		m.must("systemctl start nightly.timer scheduler")
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
	second.must("kill -KILL $(systemctl show --property=MainPID --value scheduler)")
	third := leader(second)
	if said := second.must("tail -n 1 /var/standby"); said != "standby signal\n" {
		t.Errorf("after the kill the unit has done %q", said)
	}
	second.eventually("systemctl is-active scheduler") // the unit that was killed waits again
	out := third.must("systemctl stop scheduler; systemctl show --property=Result --value scheduler")
	if out != "success\n" {
		t.Errorf("a unit that was stopped ends with %s", out)
	}
	tokens := strings.Fields(both[0].must("cat /var/active") + both[1].must("cat /var/active"))
	slices.Sort(tokens)
	if n := len(tokens) / 2; n < 3 || len(slices.Compact(tokens)) != n+1 {
		t.Errorf("two were active under one token: %q", tokens)
	}
	eventually(t, 4*time.Minute, "two minutes were run by the timers", func() bool { return len(ran(t, both)) >= 2 })
}

// What the guide says of a lock on two machines, as it stands, but for the database.
func TestTwoMachines(t *testing.T) {
	both, store := two(t)
	steps := shown(t, installing, "## A lock on two machines", "sh")
	both[1].must(changed(t, steps[0], "postgres://tenure@db-1/locks?sslmode=verify-full", store))
	both[0].must("systemd-run --quiet --unit=first --setenv=TENURE_STORE='" + store + "' " + steps[1])
	both[0].eventually("tenure status nightly -q --exit-code")
	out, err := both[1].try(steps[2])
	if err == nil || err.Error() != "exit status 75" || !strings.Contains(out, `held by "`+both[0].name) {
		t.Errorf("the second machine ends with %v, and says %s", err, out)
	}
	both[0].must("systemctl stop first")
	if out := both[1].must(steps[2]); !strings.HasSuffix(out, "mine\n") {
		t.Errorf("when the first one has stopped, the second one says %s", out)
	}
}

// platform reads a file of the platforms.
func platform(t *testing.T, name string) (text []byte, decoded any) {
	t.Helper()
	text, err := os.ReadFile("../../docs/guides/platforms/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(name, ".hcl") {
		if err := yaml.Unmarshal(text, &decoded); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return text, decoded
}

// in is what is at the path of keys and indexes.
func in(value any, path ...any) any {
	for _, p := range path {
		if i, is := p.(int); is {
			value = value.([]any)[i] //nolint:forcetypeassert // the file is as the test says
		} else {
			value = value.(map[string]any)[p.(string)] //nolint:forcetypeassert // likewise
		}
	}
	return value
}

// running is a running container, with its output.
type running struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	said bytes.Buffer
}

func (r *running) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.Write(b)
}

func (r *running) saying(text string) func() bool {
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return strings.Contains(r.said.String(), text)
	}
}

// signal sends a signal to the container's first process, as a platform does.
func (r *running) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	var pid int
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", r.cmd.Process.Pid))
	if _, scan := fmt.Sscan(string(children), &pid); err != nil || scan != nil {
		t.Fatalf("the container has the processes %q, %v", children, err)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// What the platforms' recipes start, in the image of the release: of two replicas one is active;
// when it is stopped, it ends its work, and the other is active; when that is killed, another one
// is active after the lease. The platforms themselves are not here.
func TestContainers(t *testing.T) {
	compose, composed := platform(t, "compose.yaml")
	deployment, deployed := platform(t, "deployment.yaml")
	task, ecs := platform(t, "ecs-task.json")
	nomad, _ := platform(t, "scheduler.nomad.hcl")
	parsed, wrong := hclsyntax.ParseConfig(nomad, "scheduler.nomad.hcl", hcl.InitialPos)
	if wrong.HasErrors() {
		t.Fatal(wrong)
	}
	found := regexp.MustCompile(`(?s)config \{.*command = (".*?").*args    = \[(.*?)\]`).FindSubmatch(nomad)
	if parsed == nil || found == nil {
		t.Fatal("the job of Nomad has no command")
	}
	var args any
	if err := yaml.Unmarshal([]byte("["+string(found[1])+", "+string(found[2])+"]"), &args); err != nil {
		t.Fatal(err)
	}
	command := in(composed, "services", "scheduler", "command")
	for platform, other := range map[string]any{
		"Kubernetes": in(deployed, "spec", "template", "spec", "containers", 0, "command"),
		"ECS":        in(ecs, "containerDefinitions", 0, "command"),
		"Nomad":      args,
	} {
		if fmt.Sprint(other) != fmt.Sprint(command) {
			t.Errorf("%s starts %q, and Compose %q: run both", platform, other, command)
		}
	}
	for _, text := range [][]byte{compose, deployment, task, nomad} {
		if !bytes.Contains(text, []byte("TENURE_STORE")) {
			t.Errorf("it names no store: %s", text)
		}
	}

	root, store := pulled(t), postgres(t)
	output(t, shell("CGO_ENABLED=0 go build -o "+root+"/usr/local/bin/scheduler ./testdata/scheduler"))
	output(t, contained(root, store, "/usr/local/bin/tenure", "table", "create"))
	start := func() *running {
		r := &running{cmd: contained(root, store, strings.Fields(strings.Trim(fmt.Sprint(command), "[]"))...)}
		r.cmd.Stdout, r.cmd.Stderr = r, r
		begin(t, r.cmd)
		return r
	}
	first := start()
	eventually(t, time.Minute, "the first replica is active", first.saying("active 1\n"))
	second := start()
	eventually(t, time.Minute, "the second replica waits", second.saying("held by"))
	first.signal(t, syscall.SIGTERM)
	eventually(t, time.Minute, "the second replica is active", second.saying("active 2\n"))
	if !first.saying("stopped 1\n")() {
		t.Error("the second one is active before the first one has stopped")
	}
	second.signal(t, syscall.SIGKILL)
	third := start()
	eventually(t, 90*time.Second, "after a kill the third replica is active", third.saying("active 3\n"))
}

// Two runs at once of what a guide shows take turns: migrations behind a pooler of transactions, a
// job of CI, Terraform. The guarded program is replaced by one which says when it runs.
func TestTurns(t *testing.T) {
	store := postgres(t)
	tenure := command(t)
	output(t, inside(tenure+"/tenure", "table", "create", "--store", store))
	dir, err := os.MkdirTemp("", "tenure-pooler-") //nolint:usetesting // the pooler's user reaches this folder
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const config = "[databases]\n* = host=127.0.0.1 user=postgres\n[pgbouncer]\n" +
		"listen_addr = 127.0.0.1\nlisten_port = 6432\nunix_socket_dir =\n" +
		"auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n"
	if err := os.WriteFile(dir+"/pgbouncer.ini", []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	output(t, exec.CommandContext(t.Context(), "chown", "-R", "postgres:", dir))
	serve(t, 6432, "setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--",
		"pgbouncer", "--quiet", dir+"/pgbouncer.ini")
	_, workflow := platform(t, "github-deploy.yaml")
	pooled := changed(t, shown(t, jobs, "## Migrations behind a pooler", "sh")[0],
		"postgres://app@pooler:6432/app?", changed(t, store, ":5432", ":6432")+"&")
	for program, script := range map[string]string{
		"migrate":   pooled,
		"deploy":    in(workflow, "jobs", "deploy", "steps", 1, "run").(string), //nolint:forcetypeassert // it is a script
		"terraform": shown(t, jobs, "## Terraform", "sh")[0],
	} {
		t.Run(program, func(t *testing.T) {
			dir := t.TempDir()
			const work = "#!/bin/sh\necho begin >>log\nsleep 2\necho end >>log\n"
			if err := os.WriteFile(filepath.Join(dir, program), []byte(work), 0o700); err != nil {
				t.Fatal(err)
			}
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					cmd := inside("bash", "-euo", "pipefail", "-c", script)
					cmd.Dir = dir
					cmd.Env = []string{
						"PATH=" + dir + ":" + tenure + ":" + os.Getenv("PATH"), "HOME=" + dir, "USER=me",
						"TENURE_STORE=" + store, "GITHUB_RUN_ID=1",
					}
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Errorf("%v: %s", err, out)
					}
				})
			}
			both.Wait()
			if log, err := os.ReadFile(dir + "/log"); err != nil || string(log) != "begin\nend\nbegin\nend\n" {
				t.Errorf("it ran as %q, %v", log, err)
			}
		})
	}
}
