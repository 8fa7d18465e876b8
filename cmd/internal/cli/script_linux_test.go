// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tenurelock/tenure/cmd/internal/cli"
	"github.com/tenurelock/tenure/cmd/internal/scripts"
)

// TestMain makes this binary the command tenure, and its guardian.
func TestMain(m *testing.M) {
	// They wait for leases to run out, mostly, and would leave the processors idle.
	_ = flag.Set("test.parallel", "6") // without it all takes longer
	scripts.Main(m, map[string]func(){
		"tenure":  func() { os.Exit(cli.Main(os.Args[1:])) },
		"worker":  scripts.Program(worker),
		"session": scripts.Program(session),
		"deface":  scripts.Program(deface),
		"spoil":   scripts.Program(spoil),
		"scrape":  scripts.Program(scrape),
		"manager": scripts.Program(manager),

		"inscribe":  scripts.Program(inscribe),
		"inscribed": scripts.Program(inscribed),
	})
}

// TestScripts runs what a shell would, from the command line to the exit
// status: see testdata.
func TestScripts(t *testing.T) {
	t.Parallel()
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
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"exits": scripts.Exits},
		Condition: onStore("sqlite"),
	})
}

// runStoreScripts runs the scripts of a store's own folder, and the scripts of testdata that
// hold, read and act: drivertest covers what a store does for the others. Commands are the
// additional commands of the store's own scripts.
func runStoreScripts(
	t *testing.T, store string, commands map[string]func(*testscript.TestScript, bool, []string),
	setup func(*testscript.Env) error,
) {
	t.Helper()
	files, err := filepath.Glob("testdata/" + store + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	names := []string{"status_of_child", "operator"}
	if store != "s3" { // where leases are longer by default
		names = append(names, "held", "status")
	}
	for _, name := range names {
		files = append(files, "testdata/"+name+".txtar")
	}
	all := map[string]func(*testscript.TestScript, bool, []string){"exits": scripts.Exits}
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
		if !slices.Contains([]string{"sqlite", "dynamodb", "etcd", "kubernetes", "mysql", "postgres", "redis", "s3", "zookeeper"}, name) {
			return false, fmt.Errorf("unknown condition %q", name)
		}
		return name == store, nil
	}
}
