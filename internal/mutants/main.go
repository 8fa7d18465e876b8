// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Mutants breaks one rule of the code at a time, and sees that a test finds it:
//
//	go run ./internal/mutants [PART-OF-A-NAME...]
//
// Each mutant is a file testdata/mutants/*.txt beside the tests that must find it; [parse]
// says what is in it. It is compiled in the place of the right code by the -overlay of the
// go command, so that the tree stays as it is. The exit status is 1 if one was not found.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

func main() {
	all, err := load(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
	begun, found, tried := time.Now(), 0, 0
	var mu sync.Mutex
	var running sync.WaitGroup
	places := make(chan struct{}, runtime.NumCPU())
	for _, m := range all {
		if !m.named(os.Args[1:]) {
			continue
		}
		tried++
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			err := m.run()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Printf("NOT FOUND %s: %s\n%v\n", m.name, m.rule, err)
				return
			}
			found++
			fmt.Printf("found     %s: %s\n", m.name, m.rule)
		})
	}
	running.Wait()
	fmt.Printf("%d of %d mutants found in %v\n", found, tried, time.Since(begun).Round(time.Second))
	if found < tried || tried == 0 {
		os.Exit(1)
	}
}

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
		case strings.Contains(text, "[build failed]"), !strings.Contains(text, f.says):
			return fmt.Errorf("%s: does not say %q:\n%s", f.command, f.says, text[max(0, len(text)-3000):])
		}
	}
	return nil
}
