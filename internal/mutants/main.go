// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Mutants breaks one rule of the code at a time, and sees that a test finds it:
//
//	go run ./internal/mutants [PART-OF-A-NAME...]
//	go run ./internal/mutants -random N [-seed S] [PACKAGE...]
//
// Each mutant is a file testdata/mutants/*.txt beside the tests that must find it; [parse]
// says what is in it. It is compiled in the place of the right code by the -overlay of the
// go command, and those of the clients in a copy, so that the tree stays as it is. For these
// run clients/test before. The exit status is 1 if one was not found.
//
// With -random it changes N places of each package by random operators instead, and lists
// those that no test of the package finds.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	n := flag.Int("random", 0, "how many places of each package to change at random")
	seed := flag.Uint64("seed", uint64(time.Now().Unix()), "which places")
	flag.Parse()
	var all []*mutant
	var err error
	if *n == 0 {
		all, err = load(".")
		all = slices.DeleteFunc(all, func(m *mutant) bool { return !m.named(flag.Args()) })
		if err == nil && len(all) == 0 {
			err = fmt.Errorf("no file testdata/mutants/*.txt below this folder has one of %q in its name: "+
				"run it in the root of the repository", flag.Args())
		}
	} else {
		fmt.Fprintf(os.Stdout, "seed %d\n", *seed)
		folders := flag.Args()
		if len(folders) == 0 {
			folders = slices.Sorted(maps.Keys(randomly))
		}
		for _, folder := range folders {
			var some []*mutant
			if randomly[folder] == "" {
				err = fmt.Errorf("no tests are known for %q: want one of %q", folder, slices.Sorted(maps.Keys(randomly)))
				break
			}
			if some, err = random(folder, *n, *seed); err != nil {
				break
			}
			all = append(all, some...)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
	if found, tried := runAll(os.Stdout, all); *n == 0 && found < tried {
		os.Exit(1)
	}
}

// runAll runs mutants, one on each processor, and says what has become of each.
func runAll(out io.Writer, all []*mutant) (found, tried int) {
	begun := time.Now()
	var mu sync.Mutex
	var running sync.WaitGroup
	places := make(chan struct{}, runtime.NumCPU())
	for _, m := range all {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			err := m.run()
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, errBuild) && m.finds[0].says == "":
				return // a random mutant that does not compile
			case err != nil:
				fmt.Fprintf(out, "NOT FOUND %s: %s\n%v\n", m.name, m.rule, err)
			default:
				found++
				fmt.Fprintf(out, "found     %s: %s\n", m.name, m.rule)
			}
			tried++
		})
	}
	running.Wait()
	fmt.Fprintf(out, "%d of %d mutants found in %v\n", found, tried, time.Since(begun).Round(time.Second))
	return found, tried
}

var errBuild = errors.New("it does not compile")

func (m *mutant) named(parts []string) bool {
	for _, part := range parts {
		if strings.Contains(m.name, part) {
			return true
		}
	}
	return len(parts) == 0
}

// run runs the commands that must find the mutant.
func (m *mutant) run() (err error) {
	folder, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	root, flags := ".", os.Getenv("GOFLAGS")
	if m.ofClients() {
		root = folder
		err = m.copyClients(folder)
	} else {
		var overlay string
		overlay, err = m.overlay(folder)
		flags += " -vet=off -overlay=" + overlay
	}
	if err != nil {
		return err
	}
	for _, f := range m.finds {
		cmd := exec.Command("sh", "-c", f.command)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "GOFLAGS="+flags)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		switch text := string(out); {
		case err == nil:
			return fmt.Errorf("%s: passed", f.command)
		case !errors.As(err, &exit):
			return err
		case strings.Contains(text, "[build failed]"):
			return fmt.Errorf("%s: %w:\n%s", f.command, errBuild, text)
		case !strings.Contains(text, f.says):
			return fmt.Errorf("%s: does not say %q:\n%s", f.command, f.says, text[max(0, len(text)-3000):])
		}
	}
	return nil
}

// overlay writes the changed files of Go into a folder, and returns the file that has the go
// command compile them in the place of the right ones.
func (m *mutant) overlay(folder string) (string, error) {
	replace := map[string]string{}
	for path, text := range m.source {
		right, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		replace[right] = filepath.Join(folder, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(replace[right], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(folder, "overlay.json")
	return file, os.WriteFile(file, b, 0o600)
}

// ofClients says that the mutant is one of a client in another language.
func (m *mutant) ofClients() bool {
	return len(m.edits) > 0 && strings.HasPrefix(m.edits[0].path, "clients/") && !strings.HasSuffix(m.edits[0].path, ".go")
}

// copyClients copies the clients of other languages into a folder, with the change. Those of
// TypeScript share what npm has installed.
func (m *mutant) copyClients(folder string) error {
	list, err := exec.Command("git", "ls-files", "-z", "clients").Output()
	if err != nil {
		return err
	}
	for path := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if changed, ok := m.source[path]; ok {
			text = []byte(changed)
		}
		to := filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return err
		}
	}
	installed, err := filepath.Abs("clients/typescript/node_modules")
	if err != nil {
		return err
	}
	return os.Symlink(installed, filepath.Join(folder, "clients/typescript/node_modules"))
}
