// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"database/sql"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/proc"
)

// versions names what took part.
func versions(ctx context.Context, engines []string, dynoxide string) []version {
	here := machine.Here()
	all := []version{{"Go", strings.TrimPrefix(runtime.Version(), "go")}, {"machine", here.CPU + "; " + here.System}}
	if slices.Contains(engines, "sqlite") {
		all = append(all, version{"SQLite", sqliteVersion(ctx)})
	}
	if slices.Contains(engines, "dynoxide") {
		text, err := proc.Run(ctx, "", dynoxide, "--version")
		if err != nil {
			text = err.Error()
		}
		all = append(all, version{"dynoxide", strings.TrimPrefix(strings.TrimSpace(text), "dynoxide ")})
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/anishathalye/porcupine" {
				all = append(all, version{"porcupine", m.Version})
			}
		}
	}
	return all
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
