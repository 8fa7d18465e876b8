// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tenurelock/tenure/driver"
)

// inspect examines a server that the store may refuse, and does something there.
func (s *Store) inspect(ctx context.Context, do func(context.Context, link, *server) error) error {
	if err := s.life.Ready(ctx); err != nil {
		return err
	}
	conn, err := s.connect(ctx, func(ctx context.Context, l link) error {
		server, err := s.examine(ctx, l)
		if err != nil {
			return err
		}
		return do(ctx, l, server)
	})
	if err != nil {
		return err
	}
	return conn.Close()
}

// Create makes the table and its view, or sees that there is a table that can be used. It implements
// [driver.Provisioner].
func (s *Store) Create(ctx context.Context, o driver.CreateOptions) (did string, err error) {
	statements, err := Schema(s.place.name, s.place.database)
	if err != nil {
		return "", driver.Unsupported(err)
	}
	if o.Print {
		return strings.Join(statements, ";\n") + ";", nil
	}
	did = "exists already"
	err = s.inspect(ctx, func(ctx context.Context, l link, d *server) error {
		if err := d.refused(); err != nil {
			return driver.Unfit(err)
		}
		if d.table.engine != "" {
			return driver.Unfit(d.table.refused())
		}
		did = "was created"
		for _, statement := range statements {
			if err := l.exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("table %q: %w", s.place, err)
	}
	return fmt.Sprintf("table %q %s", s.place, did), nil
}

// Policy returns the statements that grant a user what it needs. It implements [driver.Granter].
func (s *Store) Policy(_ context.Context, o driver.PolicyOptions) (text, note string, err error) {
	if o.Role == "" {
		return "", "", driver.Unsupported(errors.New("no user is named: write --role NAME, or USER@ in the URL"))
	}
	name, host, found := strings.Cut(o.Role, "@")
	if !found {
		host = "%"
	}
	if strings.ContainsAny(o.Role, "'\"`\\\x00") {
		return "", "", driver.Unsupported(fmt.Errorf("user %.80q: the name must have no quotes and backslashes", o.Role))
	}
	rights := strings.Join(Rights, ", ")
	if o.ReadOnly {
		rights = "SELECT"
	}
	user := "'" + name + "'@'" + host + "'"
	return fmt.Sprintf("GRANT %s ON %s TO %s;\nGRANT SELECT, SHOW VIEW ON %s TO %s;\n", rights, s.place.quoted(), user, s.place.view().quoted(), user),
		"for the store to see all replicas of a server, also: on MySQL GRANT REPLICATION CLIENT ON *.* TO " + user +
			" and GRANT SELECT ON performance_schema.threads TO " + user + ", on MariaDB GRANT SLAVE MONITOR ON *.* TO " + user, nil
}

// described is a server and its table for programs.
type described struct {
	Table       string           `json:"table"`
	Server      string           `json:"server"`
	Flush       string           `json:"innodb_flush_log_at_trx_commit"`
	SyncBinlog  string           `json:"sync_binlog"`
	BinaryLog   bool             `json:"log_bin"`
	ReadOnly    bool             `json:"read_only"`
	Source      string           `json:"replicates_from"`
	Replicas    *int             `json:"replicas"` // nil: the user may not see them
	Replication string           `json:"replication"`
	Findings    []driver.Finding `json:"findings"`
}

// Describe returns what the table and its server are like. It implements [driver.Provisioner].
func (s *Store) Describe(ctx context.Context, _ driver.Timing) (out driver.Description, err error) {
	err = s.inspect(ctx, func(_ context.Context, _ link, d *server) error {
		if d.table.engine == "" {
			return d.table.refused()
		}
		is := &described{
			Table: s.place.String(), Server: d.name() + " " + d.number(), Flush: d.is["innodb_flush_log_at_trx_commit"],
			SyncBinlog: d.is["sync_binlog"], BinaryLog: d.on("log_bin"), ReadOnly: !isOff(d.is["read_only"]), Source: d.source,
			Replication: d.kind(), Findings: s.findings(d),
		}
		replicas := "unknown"
		if !d.blind {
			is.Replicas, replicas = &d.replicas, fmt.Sprint(d.replicas)
		}
		out.Object, out.Findings = is, is.Findings
		out.Add("table", is.Table, "table")
		out.Add("server", is.Server, "server")
		out.Add("encryption", d.is["ssl_cipher"], "encryption")
		out.Add("flush at commit", is.Flush, "durability")
		out.Add("sync_binlog", is.SyncBinlog, "")
		out.Add("binary log", driver.OnOff(is.BinaryLog), "")
		out.Add("replication", is.Replication, "replication")
		out.Add("replicas", replicas, "replicas")
		out.Add("connections", d.is["threads_connected"]+" of "+d.is["max_connections"], "connections")
		return nil
	})
	return out, err
}
