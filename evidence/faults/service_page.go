// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/bed/proc"
)

// The files that a run with -service writes, and the command that the page says its part is
// made by.
const (
	serviceFile    = "service.json"
	servicePage    = "../../docs/evidence/faults.md"
	serviceCommand = "go run ./evidence/faults -service"
)

// publishService writes what was found of the clients of the service.
func (r *report) publishService(ctx context.Context, stdout io.Writer) error {
	if err := r.serviceComplete(); err != nil {
		return fmt.Errorf("nothing is written: %w", err)
	}
	dir, err := proc.ModuleDir(ctx, thisModule)
	if err != nil {
		return err
	}
	return page.Publish(r, r.serviceTables(), serviceCommand, stdout, filepath.Join(dir, serviceFile), filepath.Join(dir, servicePage))
}

// serviceTables is the part of the page.
func (r *report) serviceTables() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Made on %s, on %v, with a lease of %v where nothing else is said. %s\n\n", r.Date, r.Machine, usualLease, r.counted(clients, func(s subject) string { return s.title }))
	explain(&b, serviceRows)
	return b.String()
}

// serviceComplete returns an error if something was not looked at, or was not passed.
func (r *report) serviceComplete() error {
	var wrong []string
	for _, row := range clientRows() {
		for _, s := range clients {
			switch c := r.Cells[row.id][s.name]; {
			case c.Seen == "":
				wrong = append(wrong, fmt.Sprintf("%s was not looked at for %s", row.id, s.name))
			case c.Verdict != passed:
				wrong = append(wrong, fmt.Sprintf("%s does not pass %s: %s", s.title, row.id, c.Seen))
			}
		}
	}
	for id := range r.Cells {
		if !slices.ContainsFunc(clientRows(), func(r row) bool { return r.id == id }) {
			wrong = append(wrong, "there is no row "+id+" any more")
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return nil
}
