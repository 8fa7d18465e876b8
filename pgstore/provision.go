// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurelock/tenure/driver"
)

// Create makes the table, or sees that there is one which can be used. It implements
// [driver.Provisioner].
func (s *Store) Create(ctx context.Context, o driver.CreateOptions) (did string, err error) {
	if o.Print {
		text, err := schema(s.Table(), s.guard)
		return text + ";", driver.Unsupported(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*diagnosisPatience)
	defer cancel()
	d, err := s.Inspect(ctx)
	if err != nil {
		return "", err
	}
	did = "exists already"
	if !d.Exists {
		if wrong := said(problemsOf(d.serverProblems)); len(wrong) > 0 {
			return "", driver.Unfit(fmt.Errorf("table %q was not created, since it could not be used: %s", d.Table,
				strings.Join(wrong, "; ")))
		}
		if err := s.create(ctx); err != nil {
			return "", err
		}
		did = "was created"
		if d, err = s.Inspect(ctx); err != nil {
			return "", err
		}
	}
	if wrong := d.wrong(); len(wrong) > 0 {
		return "", driver.Unfit(fmt.Errorf("table %q %s, and cannot be used: %s", d.Table, did, strings.Join(wrong, "; ")))
	}
	return fmt.Sprintf("table %q %s", d.Table, did), nil
}

func (s *Store) create(ctx context.Context) error {
	engine, err := s.engine(ctx)
	if err == nil {
		err = createTable(ctx, s.pool, s.Table(), engine, s.guard)
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case "42501":
		return fmt.Errorf("the role may not create tables there: have a role that may do so run what tenure table "+
			"create --print prints: %w", err)
	case "3F000":
		return fmt.Errorf("create the schema first, or leave it out of table=: %w", err)
	case "25006":
		return fmt.Errorf("the server is a standby, or read-only: name the primary, or all servers of the "+
			"cluster: %w", err)
	}
	return err
}

// wrong is what [Description.Problems] returns, for a sentence.
func (d *Description) wrong() []string { return said(d.Problems()) }

// said are problems for a sentence.
func said(problems []error) (all []string) {
	for _, err := range problems {
		all = append(all, strings.TrimPrefix(err.Error(), "postgres: "))
	}
	return all
}

// Describe returns what the table and its server are like. It implements
// [driver.Provisioner].
func (s *Store) Describe(ctx context.Context, _ driver.Timing) (driver.Description, error) {
	d, findings, err := s.diagnose(ctx)
	if err != nil {
		return driver.Description{}, err
	}
	wrong := d.wrong()
	if !d.Exists {
		return driver.Description{}, errors.New("postgres: " + strings.Join(wrong, "; "))
	}
	for _, problem := range wrong {
		findings = append(findings, driver.Bad("table", "%s", problem))
	}
	d.Findings = findings
	if d.Engine != "" {
		out := driver.Description{Object: d, Findings: findings}
		out.Add("table", d.Table, "table")
		out.Add("server", d.Engine, "server")
		return out, nil
	}
	var may []string
	if d.MayRead {
		may = append(may, "read")
	}
	if d.MayWrite {
		may = append(may, "write")
	}
	out := driver.Description{Object: d, Findings: findings}
	out.Add("table", d.Table, "table")
	out.Add("the role may", strings.Join(may, ", "), "role")
	out.Add("server", "PostgreSQL "+d.version(), "encryption")
	out.Add("encoding", d.Encoding, "")
	out.Add("fsync", driver.OnOff(d.Fsync), "")
	out.Add("full_page_writes", driver.OnOff(d.FullPageWrites), "durability")
	out.Add("standbys", fmt.Sprintf("%d (%d synchronous)", d.Standbys, d.Synchronous), "")
	out.Add("waits for", d.SynchronousNames, "replication")
	if d.Settings != "" {
		out.Add("guard", d.Settings, "guard")
		out.Add("life of the server", d.Life, "life")
	}
	out.Add("autovacuum", driver.OnOff(d.Autovacuum), "")
	out.Add("oldest transaction", d.OldestTransaction.Round(time.Millisecond).String(), "vacuum")
	out.Add("connections", fmt.Sprintf("%d of %d", d.Connections, d.MaxConnections), "connections")
	return out, nil
}

// MarshalJSON writes durations in seconds.
func (d *Description) MarshalJSON() ([]byte, error) {
	type plain Description
	return json.Marshal(struct {
		*plain
		SenderTimeout     float64 `json:"wal_sender_timeout_seconds"`
		CheckInterval     float64 `json:"client_connection_check_interval_seconds"`
		OldestTransaction float64 `json:"oldest_transaction_seconds"`
	}{(*plain)(d), d.SenderTimeout.Seconds(), d.CheckInterval.Seconds(), d.OldestTransaction.Seconds()})
}

// Policy returns the statements that grant a role what it needs. It implements
// [driver.Granter].
func (s *Store) Policy(_ context.Context, o driver.PolicyOptions) (text, note string, err error) {
	if o.Role == "" {
		return "", "", driver.Unsupported(errors.New("no role is named: write --role NAME, or USER@ in the URL"))
	}
	if text, err = Policy(s.Table(), o.Role); err != nil {
		return "", "", driver.Unsupported(err)
	}
	if o.ReadOnly {
		text = strings.Replace(text, strings.Join(Rights, ", ")+" ON", "SELECT ON", 1)
	}
	if g := s.guard; g != nil {
		may := "SELECT, UPDATE"
		if o.ReadOnly {
			may = "SELECT"
		}
		text += ";\nGRANT " + may + " ON " + quoted(s.Table()+lifeSuffix) + " TO " + pgx.Identifier{o.Role}.Sanitize()
		if !g.Watchdog {
			text += ";\nGRANT pg_read_all_stats TO " + pgx.Identifier{o.Role}.Sanitize()
		}
	}
	return text + ";\n", "", nil
}
