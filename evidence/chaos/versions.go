// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"database/sql"
	"runtime"
	"slices"
	"strings"

	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/proc"
)

// versions names what took part.
func versions(ctx context.Context, engines []string) []version {
	here := machine.Here()
	all := []version{{"Go", strings.TrimPrefix(runtime.Version(), "go")}, {"machine", here.CPU + "; " + here.System}}
	if slices.Contains(engines, fileEngine) {
		all = append(all, version{"SQLite", sqliteVersion(ctx)})
	}
	for _, name := range engines {
		kind, ok := servers[name]
		if !ok {
			continue
		}
		s, err := kind("")
		text := s.version
		if err == nil && text == "" {
			text, err = proc.Run(ctx, "", s.program, "--version")
		}
		if err != nil {
			text = err.Error()
		}
		if err == nil {
			text = numberIn(text)
		}
		first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
		all = append(all, version{name, first})
	}
	return all
}

// numberIn returns the first word that begins with a digit, of what a program says of its
// version.
func numberIn(text string) string {
	for _, word := range strings.Fields(text) {
		if word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return text
}

func sqliteVersion(ctx context.Context) string {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err.Error()
	}
	defer db.Close() //nolint:errcheck // in memory
	var text string
	if err := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&text); err != nil {
		return err.Error()
	}
	return text
}
