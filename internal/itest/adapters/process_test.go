// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package adapters_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/sqlitestore"
)

// lease is short, and long enough for a machine that is busy.
const lease = 2 * time.Second

// roles are what a process of the tests does, by its name. It ends when it is killed, or when
// its role returns.
var roles = map[string]func(ctx context.Context, p process){
	"gocron":    runGocron,
	"certmagic": runCertmagic,
}

// A process is what its role has in hand.
type process struct {
	dir    string // that all processes share
	name   string
	arg    string
	client *tenure.Client
}

func TestMain(m *testing.M) {
	if role, ok := roles[os.Getenv("TENURE_ADAPTERS_ROLE")]; ok {
		p := process{dir: os.Getenv("TENURE_ADAPTERS_DIR"), name: os.Getenv("TENURE_ADAPTERS_NAME"), arg: os.Getenv("TENURE_ADAPTERS_ARG")}
		store, err := sqlitestore.Open(filepath.Join(p.dir, "locks.db"), nil)
		if err == nil {
			p.client, err = tenure.New(store, &tenure.Options{LeaseDuration: lease, Owner: p.name})
		}
		if err != nil {
			fail(err)
		}
		role(context.Background(), p)
		return
	}
	os.Exit(m.Run())
}

// fail ends a process that cannot do its role.
func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// tell appends a line to the log of all processes, in one write.
func (p process) tell(format string, args ...any) {
	f, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, p.name+" "+format+"\n", args...)
		f.Close()
	}
	if err != nil {
		fail(err)
	}
}

func (p process) log() string { return filepath.Join(p.dir, "log") }

// lines returns what the processes have told, in words.
func (p process) lines(t *testing.T) (lines [][]string) {
	t.Helper()
	text, err := os.ReadFile(p.log())
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

// until waits until the condition holds for what the processes have told.
func (p process) until(t *testing.T, what string, condition func(lines [][]string) bool) {
	t.Helper()
	for begun := time.Now(); !condition(p.lines(t)); {
		if time.Since(begun) > time.Minute {
			t.Fatalf("not within a minute: %s; the processes say %v", what, p.lines(t))
		}
		<-time.After(20 * time.Millisecond)
	}
}

// start starts a process of the role, which is killed at the end of the test at the latest.
func (p process) start(t *testing.T, role, name, arg string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "TENURE_ADAPTERS_ROLE="+role, "TENURE_ADAPTERS_DIR="+p.dir, "TENURE_ADAPTERS_NAME="+name, "TENURE_ADAPTERS_ARG="+arg)
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() && said.Len() > 0 {
			t.Logf("process %s: %s", name, said.String())
		}
	})
	return c
}
