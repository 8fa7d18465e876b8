// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// versions returns the command of the newest tag before the tree, and the one of the release.
// Without a tag both are the release's.
func versions(t *testing.T) (older, newer string) {
	t.Helper()
	newer = command(t) + "/tenure"
	tags := strings.Fields(output(t, shell(`git -c versionsort.suffix=- tag --list 'v[0-9]*' \
		--merged HEAD --no-contains HEAD --sort=-version:refname`)))
	if len(tags) == 0 {
		t.Log("there is no tag before the tree: its command runs beside itself")
		return newer, newer
	}
	clone := t.TempDir()
	output(t, shell("git clone --quiet --shared --branch "+tags[0]+" ../.. "+clone+"; cd "+clone+
		"; GOWORK=$PWD/go.work CGO_ENABLED=0 go build -o older ./cmd/tenure"))
	return clone + "/older", newer
}

// beside is a store that two versions share, and one of its locks.
type beside struct {
	t           *testing.T
	store, lock string
}

func (b *beside) command(program string, args ...string) *exec.Cmd {
	cmd := inside(program, args...)
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

// wait starts a program that waits for the lock, and returns a function that waits until it holds
// it with a token.
func (b *beside) wait(program, owner string) (*exec.Cmd, func(token int)) {
	b.t.Helper()
	said := filepath.Join(b.t.TempDir(), "said")
	cmd := b.command(program, "run", "--lease", "3s", "--owner", owner, b.lock, "--",
		"sh", "-c", "echo $TENURE_TOKEN >"+said+"; exec sleep 600")
	begin(b.t, cmd)
	return cmd, func(token int) {
		b.t.Helper()
		eventually(b.t, time.Minute, fmt.Sprintf("%s holds with token %d", owner, token), func() bool {
			got, _ := os.ReadFile(said)
			return string(got) == fmt.Sprintf("%d\n", token)
		})
	}
}

// history returns the tokens of the lock's terms, as the program reads them.
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
	slices.Sort(tokens)
	return tokens
}

// Two versions contend for the locks of one file, and of one table: each holds while the other
// is refused, hands over, takes over from the other in order, when it is asked, and after a
// SIGKILL, and reads what the other has written.
func TestVersionsBesideEachOther(t *testing.T) {
	older, newer := versions(t)
	for _, store := range []string{"sqlite:" + filepath.Join(t.TempDir(), "locks.db"), postgres(t)} {
		for _, pair := range [][2]string{{older, newer}, {newer, older}} {
			first, second := pair[0], pair[1]
			kind, _, _ := strings.Cut(store, ":")
			t.Run(kind+" "+filepath.Base(first)+" first", func(t *testing.T) {
				b := &beside{t, store, t.Name()}
				if kind == "postgres" {
					b.must(0, first, "table", "create")
					b.must(0, second, "table", "create") // finds it, and is content
				}
				one, began := b.wait(first, "one")
				began(1)
				b.must(75, second, "run", "--wait", "0", b.lock, "--", "true")

				_, began = b.wait(second, "two")
				b.must(0, second, "status", b.lock)
				_ = one.Process.Signal(syscall.SIGTERM)
				began(2) // in order

				three, began := b.wait(first, "three")
				b.must(0, first, "step-down", b.lock, "--reason", "its turn", "--to", "three")
				began(3) // when the other one was asked

				four, began := b.wait(second, "four")
				_ = three.Process.Kill()
				began(4) // after a kill
				b.must(0, first, "step-down", b.lock, "--reason", "the end")
				_ = four.Wait()

				for _, reader := range pair {
					if tokens := b.history(reader); !slices.Equal(tokens, []int{1, 2, 3, 4}) {
						t.Errorf("%s reads the tokens %v", filepath.Base(reader), tokens)
					}
				}
				b.must(0, first, "once", "--slot", "7", b.lock+" once", "--", "true")
				out := b.must(0, second, "once", "--slot", "7", b.lock+" once", "--", "false")
				if strings.Contains(out, "exit status") {
					t.Errorf("a slot that is done is run again: %s", out)
				}
			})
			if older == newer {
				break
			}
		}
	}
}
