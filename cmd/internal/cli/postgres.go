// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/pgstore"
)

// atDatabase is a command on a table of PostgreSQL under way.
type atDatabase struct {
	*tableRun
	url storeurl.Postgres
}

// look returns what the table and its server are like, and what is to be thought of it.
func (a atDatabase) look() (*pgstore.Description, []doctor.Finding, error) {
	d, findings, err := doctor.Postgres{Options: a.url.Options, Pool: a.url.Pool}.Look(a.ctx)
	if err != nil {
		return nil, nil, a.failed(storeurl.BriefPostgres(err))
	}
	for _, problem := range problems(d) {
		findings = append(findings, doctor.Finding{Check: "table", Level: doctor.Bad, Finding: problem})
	}
	return d, findings, nil
}

// problems are what makes the table unusable.
func problems(d *pgstore.Description) (all []string) {
	for _, err := range d.Problems() {
		all = append(all, strings.TrimPrefix(err.Error(), "postgres: "))
	}
	return all
}

// onPostgres makes the table, or sees that there is one which can be used.
func (f *createTableCmd) onPostgres(a atDatabase) error {
	if f.Print {
		text, err := pgstore.Schema(a.url.Table)
		if err != nil {
			return usage("%w", err)
		}
		return a.print([]byte(text + ";\n"))
	}
	d, _, err := a.look()
	if err != nil {
		return err
	}
	did := "exists already"
	if !d.Exists {
		if err := a.create(); err != nil {
			return a.failed(storeurl.BriefPostgres(err))
		}
		did = "was created"
		if d, _, err = a.look(); err != nil {
			return err
		}
	}
	if wrong := problems(d); len(wrong) > 0 {
		return failed(statusBad, fmt.Errorf("table %q %s, and cannot be used: %s", d.Table, did, strings.Join(wrong, "; ")))
	}
	a.console.say("table %q %s", d.Table, did)
	return nil
}

func (a atDatabase) create() error {
	ctx, cancel := context.WithTimeout(a.ctx, describePatience)
	defer cancel()
	pool, err := a.url.Pool(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	err = pgstore.CreateTable(ctx, pool, a.url.Table)
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch e.Code {
		case "42501":
			err = fmt.Errorf("the role may not create tables there: have one who may run what tenure table create --print prints: %w", err)
		case "3F000":
			err = fmt.Errorf("create the schema first, or leave it out of table=: %w", err)
		case "25006":
			err = fmt.Errorf("the server is a standby, or read-only: name the primary, or all servers of the cluster: %w", err)
		}
	}
	return err
}

// onPostgres prints the statements that grant a role what it needs.
func (f *policyCmd) onPostgres(a atDatabase) error {
	role := a.url.User
	if f.Role != nil {
		if role = *f.Role; role == "" {
			return usage("--role is empty: name the role, or leave the flag out")
		}
	}
	if role == "" {
		return usage("no role is named: write --role NAME, or USER@ in the URL")
	}
	text, err := pgstore.Policy(a.url.Table, role)
	if err != nil {
		return usage("%w", err)
	}
	if f.ReadOnly {
		text = strings.Replace(text, strings.Join(pgstore.Rights, ", ")+" ON", "SELECT ON", 1)
	}
	return a.print([]byte(text + ";\n"))
}
