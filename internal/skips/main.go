// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// The program skips reads what `go test -json` writes and prints what `go test` does:
// a line for each package, and all that failed tests said. At the end it says, once
// each, for which reasons tests were skipped, which `go test` keeps to itself.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		os.Exit(1)
	}
}

// event is one line of `go test -json`: see `go doc cmd/test2json`.
type event struct {
	Action, Package, Test, Output string
}

// what names what an event is about: a test, or with an empty second word a package.
type what [2]string

// report gathers what tests said until it is known how they end.
type report struct {
	out     io.Writer
	said    map[what][]string
	reasons map[string]int
}

func run(in io.Reader, out io.Writer) error {
	r := &report{out: out, said: map[what][]string{}, reasons: map[string]int{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.line(line)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(r.reasons)) {
		fmt.Fprintf(out, "skipped %d: %s\n", r.reasons[reason], reason)
	}
	return nil
}

func (r *report) line(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		fmt.Fprint(r.out, line) // of the go command itself
		return
	}
	of := what{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.said[of] = append(r.said[of], e.Output)
	case "skip":
		if e.Test != "" {
			r.reasons[reason(r.said[of])]++
			delete(r.said, of)
			return
		}
		r.result(e.Package)
	case "pass":
		if e.Test == "" {
			r.result(e.Package)
		}
		r.forget(of)
	case "fail":
		if e.Test != "" {
			r.print(of)
			return
		}
		// What has not ended by itself, as after a panic or a timeout, comes first.
		for other := range r.said {
			if other[0] == e.Package && other[1] != "" {
				r.print(other)
			}
		}
		r.print(of)
	}
}

// result prints the line of a package in which nothing failed.
func (r *report) result(pkg string) {
	of := what{pkg, ""}
	for _, line := range r.said[of] {
		if strings.HasPrefix(line, "ok") {
			fmt.Fprint(r.out, line)
		}
	}
	r.forget(of)
}

func (r *report) print(of what) {
	for _, line := range r.said[of] {
		if !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(r.out, line)
		}
	}
	delete(r.said, of)
}

// forget drops what a test has said, or a package and all of its tests.
func (r *report) forget(of what) {
	delete(r.said, of)
	if of[1] != "" {
		return
	}
	for other := range r.said {
		if other[0] == of[0] {
			delete(r.said, other)
		}
	}
}

var logged = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// reason returns what a test logged last, which is what it gave to Skip.
func reason(said []string) string {
	for _, line := range slices.Backward(said) {
		if at := logged.FindString(line); at != "" {
			return strings.TrimSpace(strings.TrimPrefix(line, at))
		}
	}
	return "without a reason"
}
