// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package tasks_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/tasks"
)

// childEnv has the test binary be a program that is a group of tasks.
const childEnv = "TENURE_TASKS_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		os.Exit(child(mode))
	}
	os.Exit(m.Run())
}

// child says on standard output what its tasks do.
func child(mode string) int {
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		return 3
	}
	group := tasks.New(client.Election(election, nil), nil)
	say := func(format string, a ...any) { fmt.Fprintf(os.Stdout, format+"\n", a...) }
	group.Always("a", func(ctx context.Context) error {
		<-ctx.Done()
		say("a stops: %v", context.Cause(ctx))
		return nil
	})
	group.Leading("l", func(ctx context.Context, _ *tenure.Lease) error {
		say("l leads")
		<-ctx.Done()
		say("l stops: %v", context.Cause(ctx))
		if mode == "hang" {
			select {}
		}
		return nil
	})
	if err := group.Run(context.Background()); err != nil {
		say("run: %v", err)
		return 1
	}
	if err := client.Close(context.Background()); err != nil {
		return 2
	}
	return 0
}

// A real SIGTERM stops a real process in order. If a task hangs, a second one
// ends it at once.
func TestRealSignals(t *testing.T) {
	for mode, want := range map[string]string{
		"polite": "l leads, l stops: signal: terminated, a stops: signal: terminated",
		"hang":   "l leads, l stops: signal: terminated",
	} {
		t.Run(mode, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+mode)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var lines []string
			for in := bufio.NewScanner(out); in.Scan(); {
				lines = append(lines, in.Text())
				if in.Text() == "l leads" || mode == "hang" && strings.HasPrefix(in.Text(), "l stops") {
					if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
						t.Error(err)
					}
				}
			}
			err = cmd.Wait()
			if got := strings.Join(lines, ", "); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if mode == "polite" && err != nil {
				t.Errorf("exit: %v", err)
			}
			if mode == "hang" {
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
					t.Errorf("exit: %v, want an end by SIGTERM", err)
				}
			}
		})
	}
}
