// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Command convert writes each lock of a trace as a module for TLC, and prints the
// modules' names.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tenurelock/tenure/internal/trace"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: convert TRACE FOLDER")
		os.Exit(64)
	}
	if err := convert(os.Args[1], os.Args[2], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "convert:", err)
		os.Exit(1)
	}
}

func convert(file, folder string, out io.Writer) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	events, err := trace.Read(f)
	if err != nil {
		return err
	}
	for i, lock := range trace.Locks(events) {
		m, err := trace.NewModule(fmt.Sprintf("Trace%d", i+1), lock, events)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, m.Name+".tla"), m.TLA, 0o644)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, m.Name+".cfg"), m.Config, 0o644)
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(out, m.Name)
	}
	return nil
}
