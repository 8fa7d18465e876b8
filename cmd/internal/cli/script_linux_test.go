// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tenurelock/tenure/cmd/internal/cli"
	"github.com/tenurelock/tenure/cmd/internal/guard"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestMain makes this binary the command tenure, and its guardian.
func TestMain(m *testing.M) {
	if guard.IsGuardian() {
		guard.Main()
	}
	// By default a program with the race detector rests for a second at its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	// What is ignored here, as SIGHUP is under nohup, would be ignored by the commands
	// of the scripts, which send it. What is caught is not.
	if strings.HasSuffix(os.Args[0], ".test") {
		enginetest.DefaultSignals()
	}
	testscript.Main(m, map[string]func(){
		"tenure": func() { os.Exit(cli.Main(os.Args[1:])) },
		"worker": program(worker),
		"keeper": program(keeper),
		"deface": program(deface),

		"inscribe":  program(inscribe),
		"inscribed": program(inscribed),
	})
}

// TestScripts runs what a shell would, from the command line to the exit
// status: see testdata.
func TestScripts(t *testing.T) {
	help, err := filepath.Abs("help")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			setForEveryStore(env)
			env.Setenv("HELP", help)
			env.Setenv("STORE", "sqlite:"+filepath.Join(env.WorkDir, "locks.db"))
			return os.Mkdir(home, 0o755)
		},
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		Condition: onStore("sqlite"),
	})
}

// runStoreScripts runs the scripts of a store's own folder, and those of testdata that are
// for any store. Commands are those that its own scripts have besides.
func runStoreScripts(t *testing.T, store string, commands map[string]func(*testscript.TestScript, bool, []string), setup func(*testscript.Env) error) {
	t.Helper()
	files, err := filepath.Glob("testdata/" + store + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, name := range []string{"status_of_child", "held", "lead", "ledgers", "once", "operator", "status"} {
		files = append(files, "testdata/"+name+".txtar")
	}
	all := map[string]func(*testscript.TestScript, bool, []string){"exits": exits}
	maps.Copy(all, commands)
	testscript.Run(t, testscript.Params{
		Files:               files,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			setForEveryStore(env)
			env.Setenv("HOME", env.WorkDir)
			return setup(env)
		},
		Cmds:      all,
		Condition: onStore(store),
	})
}

// setForEveryStore sets what a script finds in its environment on any store.
func setForEveryStore(env *testscript.Env) {
	env.Setenv("GORACE", os.Getenv("GORACE"))
	env.Setenv("LONG", strings.Repeat("n", 10<<10))
	env.Setenv("CONTROL", "a\nb")
	env.Setenv("HIDDEN", "a\u200bb")
	env.Setenv("HOSTILE", hostile)
}

// onStore returns the condition that has the name of the store on which a
// script runs.
func onStore(store string) func(string) (bool, error) {
	return func(name string) (bool, error) {
		if !slices.Contains([]string{"sqlite", "dynamodb", "etcd", "kubernetes", "postgres", "zookeeper"}, name) {
			return false, fmt.Errorf("unknown condition %q", name)
		}
		return name == store, nil
	}
}

// exits runs a program and compares its exit status:
//
//	exits STATUS PROGRAM [ARG...]
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	status := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		status = exit.ExitCode()
	}
	if status != want {
		ts.Fatalf("exit status %d, want %d", status, want)
	}
}
