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

// serviceFile is what a run with -service writes.
const serviceFile = "service.json"

// publishService writes what was found of the clients of the service.
func (r *report) publishService(ctx context.Context, stdout io.Writer) error {
	if err := r.serviceComplete(); err != nil {
		return fmt.Errorf("nothing is written: %w", err)
	}
	dir, err := proc.ModuleDir(ctx, thisModule)
	if err != nil {
		return err
	}
	return page.Publish(r, r.serviceTables(), "", stdout, filepath.Join(dir, serviceFile), "")
}

// serviceTables is what it prints.
func (r *report) serviceTables() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Made on %s, in %.0f s, with a lease of %v where the row does not say.\n\n| | |\n| --- | --- |\n%s| DynamoDB engine | %s |\n",
		r.Date, r.Took, usualLease, r.Machine.Rows(), r.Engine)
	for _, s := range clients {
		if s.replicas() == 1 {
			fmt.Fprintf(&b, "| %s client | %s |\n", s.client(), r.Libraries[s.name])
		}
	}
	b.WriteString("\n")
	thrown := clientRows()
	link := func(of row) string {
		if slices.ContainsFunc(rows, func(r row) bool { return r.id == of.id }) {
			return "faults.md" + of.anchored()
		}
		return of.anchored()
	}
	r.table(&b, thrown, clients, link, func(s subject) string { return s.title })
	b.WriteString("\nWhat is thrown at these clients alone:\n")
	for _, row := range serviceRows {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n**Pass:** %s\n", row.title, row.how, row.rule)
	}
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
