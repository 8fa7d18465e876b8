// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsimple"
	"go.yaml.in/yaml/v4"
)

// platforms is the folder with what platforms take, and jobs is the page about them.
const (
	platforms = "../../docs/guides/platforms/"
	jobs      = "../../docs/guides/jobs.md"
)

// A workload is what a platform starts: the command of a container, and its environment.
type workload struct {
	command []string
	env     map[string]string
}

// decodeFile reads a file of the platforms.
func decodeFile(t *testing.T, name string, decode func([]byte, any) error, into any) {
	t.Helper()
	text, err := os.ReadFile(platforms + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := decode(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// workloads reads what the recipes start, by the platform.
func workloads(t *testing.T) map[string]workload {
	t.Helper()
	all := map[string]workload{}

	var compose struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
		}
	}
	decodeFile(t, "compose.yaml", yaml.Unmarshal, &compose)
	all["Compose"] = workload{compose.Services["scheduler"].Command, compose.Services["scheduler"].Environment}

	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Command []string
						Env     []struct{ Name, Value string }
					}
				}
			}
		}
	}
	decodeFile(t, "deployment.yaml", yaml.Unmarshal, &deployment)
	container := deployment.Spec.Template.Spec.Containers[0]
	env := map[string]string{}
	for _, e := range container.Env {
		env[e.Name] = e.Value
	}
	all["Kubernetes"] = workload{container.Command, env}

	var task struct {
		ContainerDefinitions []struct {
			Command     []string
			Environment []struct{ Name, Value string }
		}
	}
	decodeFile(t, "ecs-task.json", json.Unmarshal, &task)
	env = map[string]string{}
	for _, e := range task.ContainerDefinitions[0].Environment {
		env[e.Name] = e.Value
	}
	all["ECS"] = workload{task.ContainerDefinitions[0].Command, env}

	var nomad struct {
		Job struct {
			Name  string `hcl:",label"`
			Group struct {
				Name  string `hcl:",label"`
				Count int    `hcl:"count"`
				Task  struct {
					Name   string `hcl:",label"`
					Config struct {
						Command string   `hcl:"command"`
						Args    []string `hcl:"args"`
						Rest    hcl.Body `hcl:",remain"`
					} `hcl:"config,block"`
					Env struct {
						Store string `hcl:"TENURE_STORE"`
					} `hcl:"env,block"`
					Rest hcl.Body `hcl:",remain"`
				} `hcl:"task,block"`
			} `hcl:"group,block"`
			Rest hcl.Body `hcl:",remain"`
		} `hcl:"job,block"`
	}
	if err := hclsimple.DecodeFile(platforms+"scheduler.nomad.hcl", nil, &nomad); err != nil {
		t.Fatal(err)
	}
	config := nomad.Job.Group.Task.Config
	all["Nomad"] = workload{append([]string{config.Command}, config.Args...), map[string]string{"TENURE_STORE": nomad.Job.Group.Task.Env.Store}}
	return all
}

// A running container has said something.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	mu   sync.Mutex
	said bytes.Buffer
}

func (r *running) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.Write(b)
}

func (r *running) saying(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(r.said.String(), text)
}

// run starts the workload in the container, with another store.
func (c *container) run(w workload, store string) *running {
	c.t.Helper()
	r := &running{t: c.t}
	r.cmd = c.command([]string{"TENURE_STORE=" + store}, w.command...)
	r.cmd.Stdout, r.cmd.Stderr = r, r
	begin(c.t, r.cmd)
	return r
}

// signal sends a signal to the container's first process, as a platform does.
func (r *running) signal(sig syscall.Signal) {
	r.t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", r.cmd.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		r.t.Fatalf("the container has the processes %q", children)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		r.t.Fatal(err)
	}
}

// What each platform's recipe starts, in the image of the release: of two replicas one is
// active; when it is stopped, it ends its work, and the other is active; when that is killed,
// another one is active after the lease. The platforms themselves are not here.
func TestContainers(t *testing.T) {
	needs(t, "unshare", "chroot", "nsenter")
	l := newLAN(t)
	store := l.postgres()
	image := unpack(t, l)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(image.root, "usr/local/bin/scheduler"), "./testdata/scheduler")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for platform, w := range workloads(t) {
		t.Run(platform, func(t *testing.T) {
			if len(w.command) == 0 || w.env["TENURE_STORE"] == "" {
				t.Fatalf("it starts %q with %q", w.command, w.env)
			}
			// Each one has a table of its own, so that they do not contend.
			store := store + "&table=" + strings.ToLower(platform)
			if out, err := image.command(nil, "/usr/local/bin/tenure", "table", "create", "--store", store).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			inner := *image
			inner.t = t
			first := inner.run(w, store)
			eventually(t, time.Minute, "the first replica is active", func() bool { return first.saying("active 1\n") })
			second := inner.run(w, store)
			select {
			case <-time.After(2 * time.Second):
			case <-t.Context().Done():
			}
			if second.saying("active") {
				t.Error("two replicas are active")
			}
			first.signal(syscall.SIGTERM)
			eventually(t, time.Minute, "the second replica is active", func() bool { return second.saying("active 2\n") })
			if !first.saying("stopped 1\n") {
				t.Error("the second one is active before the first one has stopped")
			}
			second.signal(syscall.SIGKILL)
			third := inner.run(w, store)
			eventually(t, 90*time.Second, "after a kill the third replica is active", func() bool { return third.saying("active 3\n") })
			third.signal(syscall.SIGTERM)
			eventually(t, time.Minute, "the third replica has stopped", func() bool { return third.saying("stopped 3\n") })
		})
	}
}

// command returns the folder with the release's command.
func commandHere(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	output(t, dir, "tar", "xzf", only(t, "_amd64.tar.gz"), "--strip-components=1")
	return dir
}

// twice runs a script twice at once in a lan, with the release's command and a program beside
// it that says when it begins and ends, and checks that they take turns.
func twice(t *testing.T, l *lan, program, script string, env ...string) {
	t.Helper()
	dir := t.TempDir()
	work := "#!/bin/sh\necho begin >>" + dir + "/log\nsleep 2\necho end >>" + dir + "/log\n"
	if err := os.WriteFile(filepath.Join(dir, program), []byte(work), 0o700); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + commandHere(t) + ":" + os.Getenv("PATH")
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "nsenter", "--target", strconv.Itoa(l.pid), "--net", "--", "bash", "-euo", "pipefail", "-c", script)
			cmd.Dir = dir
			cmd.Env = append([]string{path, "HOME=" + dir, "USER=me"}, env...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	both.Wait()
	log, err := os.ReadFile(dir + "/log")
	if err != nil || string(log) != "begin\nend\nbegin\nend\n" {
		t.Errorf("it ran as %q, %v", log, err)
	}
}

// Two replicas start with their migrations, behind a pooler that pools transactions.
func TestMigrations(t *testing.T) {
	needs(t, "nsenter", "pgbouncer")
	l := newLAN(t)
	direct := l.postgres()
	dir, err := os.MkdirTemp("", "tenure-pooler-") //nolint:usetesting // the pooler's user reaches this folder
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := "[databases]\n* = host=" + gateway + " user=postgres\n[pgbouncer]\nlisten_addr = " + gateway +
		"\nlisten_port = 6432\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n"
	if err := os.WriteFile(dir+"/pgbouncer.ini", []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	output(t, "/", "chown", "-R", "postgres:", dir)
	l.serve(6432, "setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--", "pgbouncer", "--quiet", dir+"/pgbouncer.ini")
	script := changed(t, part(t, jobs, "## Migrations behind a pooler", "sh")[0], "postgres://app@pooler:6432/app?", "postgres://postgres@"+gateway+":6432/postgres?sslmode=disable&")
	output(t, "/", "nsenter", "--target", strconv.Itoa(l.pid), "--net", "--", commandHere(t)+"/tenure", "table", "create", "--store", direct)
	twice(t, l, "migrate", script)
}

// Two jobs of CI deploy at once.
func TestCIJob(t *testing.T) {
	needs(t, "nsenter")
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Run string
				Env map[string]string
			}
		}
	}
	decodeFile(t, "github-deploy.yaml", yaml.Unmarshal, &workflow)
	l := newLAN(t)
	store := l.postgres()
	output(t, "/", "nsenter", "--target", strconv.Itoa(l.pid), "--net", "--", commandHere(t)+"/tenure", "table", "create", "--store", store)
	ran := 0
	for _, step := range workflow.Jobs["deploy"].Steps {
		if step.Env["TENURE_STORE"] != "" {
			twice(t, l, "deploy", step.Run, "TENURE_STORE="+store, "GITHUB_RUN_ID=1")
			ran++
		}
	}
	if ran != 1 {
		t.Errorf("%d steps have a store", ran)
	}
}

// Two runs of Terraform on one state: without the lock the second one would fail, since the
// state is locked.
func TestTerraform(t *testing.T) {
	needs(t, "nsenter")
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Skip("there is no terraform, and no package of it: the command is that of any other program")
	}
	l := newLAN(t)
	store := l.postgres()
	tenure := commandHere(t)
	output(t, "/", "nsenter", "--target", strconv.Itoa(l.pid), "--net", "--", tenure+"/tenure", "table", "create", "--store", store)
	dir := t.TempDir()
	const plan = "resource \"terraform_data\" \"x\" {\n  triggers_replace = timestamp()\n  provisioner \"local-exec\" {\n    command = \"sleep 3\"\n  }\n}\n"
	if err := os.WriteFile(dir+"/main.tf", []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	script := part(t, jobs, "## Terraform", "sh")[0]
	apply := func(script string) (string, error) {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "nsenter", "--target", strconv.Itoa(l.pid), "--net", "--", "bash", "-euc", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+tenure+":"+os.Getenv("PATH"), "TENURE_STORE="+store, "USER=me", "CHECKPOINT_DISABLE=1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := apply("terraform init -input=false"); err != nil {
		t.Skipf("terraform does not work here: %v: %s", err, out)
	}
	atOnce := func(script string) (failed int) {
		var both sync.WaitGroup
		ends := make(chan string, 2)
		for range 2 {
			both.Go(func() {
				if out, err := apply(script); err != nil {
					ends <- out
				}
			})
		}
		both.Wait()
		close(ends)
		for out := range ends {
			failed++
			t.Logf("%s", out)
		}
		return failed
	}
	if n := atOnce(script); n != 0 {
		t.Errorf("%d runs of two fail", n)
	}
	_, bare, _ := strings.Cut(script, " -- ")
	if n := atOnce(bare); n != 1 {
		t.Errorf("without the lock %d runs of two fail, so this shows nothing", n)
	}
}
