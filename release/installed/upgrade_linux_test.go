// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// versions builds the command of the newest tag before the tree, and the tree's own. Without a
// tag both are the tree's own.
func versions(t *testing.T) (older, newer string) {
	t.Helper()
	dir := t.TempDir()
	build := func(revision, name string) string {
		clone := filepath.Join(dir, "clone-"+name)
		output(t, "../..", "git", "clone", "--quiet", "--shared", ".", clone)
		output(t, clone, "git", "checkout", "--quiet", "--detach", revision)
		program := filepath.Join(dir, name)
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s", "-o", program, "./cmd/tenure")
		cmd.Dir = clone
		cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(clone, "go.work"), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", revision, err, out)
		}
		return program
	}
	head := strings.TrimSpace(output(t, "../..", "git", "rev-parse", "HEAD"))
	newer = build(head, "newer")
	// A tag of the tree itself is not before it.
	tags := strings.Fields(output(t, "../..", "git", "-c", "versionsort.suffix=-", "tag", "--list", "v[0-9]*",
		"--merged", head, "--no-contains", head, "--sort=-version:refname"))
	if len(tags) == 0 {
		t.Log("there is no tag before the tree: its command runs beside itself")
		return newer, newer
	}
	t.Logf("the version before is %s", tags[0])
	return build(tags[0], "older"), newer
}

// A tenancy is tenure run, of some version, that holds a lock or waits for it.
type tenancy struct {
	t   *testing.T
	cmd *exec.Cmd
	out string // the file with what it says
}

// wait starts a program that waits for the lock, and says its token when it has it.
func (b *beside) wait(program, owner string) *tenancy {
	b.t.Helper()
	held := &tenancy{t: b.t, out: filepath.Join(b.t.TempDir(), "out")}
	file, err := os.Create(held.out)
	if err != nil {
		b.t.Fatal(err)
	}
	held.cmd = b.command(program, "run", "--lease", "3s", "--owner", owner, b.lock, "--", "sh", "-c", "echo began $TENURE_TOKEN; exec sleep 600")
	held.cmd.Stdout, held.cmd.Stderr = file, file
	begin(b.t, held.cmd)
	_ = file.Close()
	return held
}

// began waits until the program has the lock with the token.
func (h *tenancy) began(token int) {
	h.t.Helper()
	var said []byte
	defer func() {
		if h.t.Failed() {
			h.t.Logf("it says %q", said)
		}
	}()
	eventually(h.t, time.Minute, fmt.Sprintf("%s holds with token %d", h.cmd.Args, token), func() bool {
		said, _ = os.ReadFile(h.out)
		return strings.Contains(string(said), fmt.Sprintf("began %d\n", token))
	})
}

// beside is one store that two versions share, and one of its locks.
type beside struct {
	t           *testing.T
	lan         *lan
	store, lock string
}

func (b *beside) command(program string, args ...string) *exec.Cmd {
	inside := []string{"--target", strconv.Itoa(b.lan.pid), "--net", "--", program}
	cmd := exec.CommandContext(context.WithoutCancel(b.t.Context()), "nsenter", append(inside, args...)...)
	cmd.Env = append(os.Environ(), "TENURE_STORE="+b.store)
	return cmd
}

// must runs a program to its end, with the status.
func (b *beside) must(status int, program string, args ...string) string {
	b.t.Helper()
	cmd := b.command(program, args...)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != status {
		b.t.Errorf("%s %q ends with %d, want %d: %s", filepath.Base(program), args, got, status, out)
	}
	return string(out)
}

// Two versions contend for the locks of one file, and of one table: each holds while the other
// is refused, hands over, takes over from the other in order, when it is asked, and after a
// SIGKILL, and reads what the other has written.
func TestVersionsBesideEachOther(t *testing.T) {
	needs(t, "git", "nsenter")
	older, newer := versions(t)
	pairs := [][2]string{{older, newer}, {newer, older}}
	if older == newer {
		pairs = pairs[:1]
	}
	l := newLAN(t)
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			store := "sqlite:" + filepath.Join(t.TempDir(), "locks.db")
			if kind == "postgres" {
				store = l.postgres()
				b := &beside{t, l, store, ""}
				b.must(0, older, "table", "create")
				b.must(0, newer, "table", "create") // finds it, and is content
			}
			for _, pair := range pairs {
				first, second := pair[0], pair[1]
				t.Run(filepath.Base(first)+" first", func(t *testing.T) {
					b := &beside{t, l, store, t.Name()}
					one := b.wait(first, "one")
					one.began(1)
					b.must(75, second, "run", "--wait", "0", b.lock, "--", "true")

					two := b.wait(second, "two")
					b.must(0, second, "status", b.lock)
					_ = one.cmd.Process.Signal(syscall.SIGTERM)
					two.began(2) // in order

					three := b.wait(first, "three")
					b.must(0, first, "step-down", b.lock, "--reason", "its turn", "--to", "three")
					three.began(3) // when the other one was asked

					four := b.wait(second, "four")
					_ = three.cmd.Process.Kill()
					four.began(4) // after a kill
					b.must(0, first, "step-down", b.lock, "--reason", "the end")
					_ = four.cmd.Wait()

					for _, reader := range pair {
						tokens := b.history(reader)
						if fmt.Sprint(tokens) != "[4 3 2 1]" && fmt.Sprint(tokens) != "[1 2 3 4]" {
							t.Errorf("%s reads the tokens %v", filepath.Base(reader), tokens)
						}
					}

					b.must(0, first, "once", "--slot", "7", b.lock+" once", "--", "true")
					if out := b.must(0, second, "once", "--slot", "7", b.lock+" once", "--", "false"); strings.Contains(out, "exit status") {
						t.Errorf("a slot that is done is run again: %s", out)
					}
				})
			}
		})
	}
}

// history returns the tokens of the lock's tenures, as the program reads them.
func (b *beside) history(program string) (tokens []int) {
	b.t.Helper()
	out := b.must(0, program, "history", b.lock, "--json")
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var tenure struct{ Token int }
		if err := d.Decode(&tenure); err != nil {
			b.t.Fatalf("%v: %s", err, out)
		}
		tokens = append(tokens, tenure.Token)
	}
	return tokens
}
