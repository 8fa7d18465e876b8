// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Mutants breaks one rule of the code at a time, and sees that a test finds it:
//
//	go run ./internal/mutants [PART-OF-A-NAME...]
//	go run ./internal/mutants -random N [-seed S] [PACKAGE...]
//
// Each mutant is a file testdata/mutants/*.txt beside the tests that must find it; [parse]
// says what is in it. It is compiled in the place of the right code by the -overlay of the
// go command, so that the tree stays as it is. The exit status is 1 if one was not found.
//
// With -random it changes N places of each package by random operators instead, and lists
// those that no test of the package finds.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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
	} else {
		fmt.Printf("seed %d\n", *seed)
		folders := flag.Args()
		if len(folders) == 0 {
			folders = slices.Sorted(maps.Keys(randomly))
		}
		for _, folder := range folders {
			var some []*mutant
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
	if found, tried := runAll(all); *n == 0 && (found < tried || tried == 0) {
		os.Exit(1)
	}
}

// runAll runs mutants, one on each processor, and says what has become of each.
func runAll(all []*mutant) (found, tried int) {
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
				return // a random one that does not compile
			case err != nil:
				fmt.Printf("NOT FOUND %s: %s\n%v\n", m.name, m.rule, err)
			default:
				found++
				fmt.Printf("found     %s: %s\n", m.name, m.rule)
			}
			tried++
		})
	}
	running.Wait()
	fmt.Printf("%d of %d mutants found in %v\n", found, tried, time.Since(begun).Round(time.Second))
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
func (m *mutant) run() error {
	folder, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	replace := map[string]string{}
	for path, text := range m.source {
		file := filepath.Join(folder, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		if path, err = filepath.Abs(path); err != nil {
			return err
		}
		replace[path] = file
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	overlay := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		return err
	}
	for _, f := range m.finds {
		cmd := exec.Command("sh", "-c", f.command)
		cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -vet=off -overlay="+overlay)
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
