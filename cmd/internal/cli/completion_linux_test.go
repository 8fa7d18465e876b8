// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/sqlitestore"
)

// completionStore makes a store with a few locks and returns its URL.
func completionStore(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "locks.db")
	store, err := sqlitestore.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client, err := tenure.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(context.WithoutCancel(t.Context())) }()
	for i, owner := range []string{"web-1", "web-2", "db-1", "web-1", "needs quotes"} {
		other, err := tenure.New(store, &tenure.Options{Owner: owner, Label: "v" + strconv.Itoa(i%3)})
		if err != nil {
			t.Fatal(err)
		}
		l, err := other.Acquire(t.Context(), "leader", &tenure.AcquireOptions{History: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Release(t.Context()), other.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"nightly", "nightly-2", "scheduler", "needs quotes", shard.SpecName("orders")} {
		l, err := client.Acquire(t.Context(), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return "sqlite:" + file
}

// Bash itself completes, by the script that tenure prints.
func TestBashCompletes(t *testing.T) {
	t.Parallel()
	enginetest.MakeVerify(t)
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	tenure, err := exec.LookPath("tenure")
	if err != nil {
		t.Skip("only within the scripts' environment: ", err)
	}
	store := completionStore(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "data.csv"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ line, want string }{
		{"tenure ", "completion doctor every exporter help history lead man once reap release run shard status step-down " +
			"sweep table tokens"},
		{"tenure st", "status step-down"},
		{"tenure run --un", "--unless-alive"},
		{"tenure step-down --re", "--reason"},
		{"tenure step-down night", "nightly nightly-2"},
		{"tenure status nightly s", "scheduler"},
		{"tenure step-down leader --to ", "db-1 web-1 web-2"},
		{"tenure step-down leader --to we", "web-1 web-2"},
		{"tenure step-down leader --to=we", "web-1 web-2"},
		{"tenure step-down leader --to-label ", "v0 v1 v2"},
		{"tenure step-down scheduler --to web", ""},
		{"tenure step-down --to we", ""},
		{"tenure history --at 10m sch", "scheduler"},
		{"tenure exporter nightly s", "scheduler"},
		{"tenure exporter --holder l", "label"},
		{"tenure shard ", "orders"},
		{"tenure shard --re", "--refresh --resize"},
		{"tenure run --store=s", "sqlite:"},
		{"tenure run --store s", "sqlite:"},
		{"tenure run --store sqlite:da", "data.csv"},
		{"tenure run --store d", "default: dynamodb://"},
		{"tenure run --store dynamodb:", "//"},
		{"tenure table ", "create describe policy"},
		{"tenure table d", "describe"},
		{"tenure table create --s", "--sort-key --store"},
		{"tenure table --x", ""},
		{"tenure table policy x", ""},
		{"tenure completion z", "zsh"},
		{"tenure help le", "lead"},
		{"tenure run job -- cat dat", "data.csv"},
		{"tenure run job -- mapfil", "mapfile"},
		{"tenure nonsense x", ""},
	} {
		want := slices.DeleteFunc(strings.Fields(tc.want), func(s string) bool { return s == "doctor" })
		script := `source <("$TENURE" completion bash)
			COMP_LINE=$1 COMP_POINT=${#1}; _tenure 2>/dev/null; printf '%s\n' "${COMPREPLY[@]}"`
		complete := func() []string {
			cmd := exec.CommandContext(t.Context(), bash, "--norc", "-c", script, "bash", tc.line)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "TENURE="+tenure, "TENURE_STORE="+store)
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%q: %v", tc.line, err)
			}
			got := strings.Fields(string(out))
			slices.Sort(got)
			return slices.DeleteFunc(got, func(s string) bool { return s == "doctor" })
		}
		got := complete()
		// A store that does not answer at once is left out: on a busy machine, a file.
		for tries := 0; tries < 20 && !slices.Equal(got, want); tries++ {
			got = complete()
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q is completed by %q, want %q", tc.line, got, want)
		}
	}
}
