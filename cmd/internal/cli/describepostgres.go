// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/pgstore"
)

// onPostgres shows the table, and its server.
func (f *describeTableCmd) onPostgres(a atDatabase) error {
	d, findings, err := a.look()
	if err != nil {
		return err
	}
	if !d.Exists {
		return a.failed(errors.New("postgres: " + strings.Join(problems(d), "; ")))
	}
	return f.show(a.console, postgresJSONOf(d, findings), postgresText(d, findings), findings)
}

func postgresText(d *pgstore.Description, findings []doctor.Finding) string {
	t := tableLines{findings: findings}
	onOff := func(on bool) string {
		if on {
			return "on"
		}
		return "off"
	}
	var may []string
	if d.MayRead {
		may = append(may, "read")
	}
	if d.MayWrite {
		may = append(may, "write")
	}
	t.line("table", d.Table, "table")
	t.line("the role may", strings.Join(may, ", "), "role")
	t.line("server", fmt.Sprintf("PostgreSQL %d.%d", d.Version/10000, d.Version%10000), "encryption")
	t.line("encoding", d.Encoding, "")
	t.line("fsync", onOff(d.Fsync), "")
	t.line("full_page_writes", onOff(d.FullPageWrites), "durability")
	t.line("standbys", fmt.Sprintf("%d, of which %d are synchronous", d.Standbys, d.Synchronous), "")
	t.line("waits for", d.SynchronousNames, "replication")
	t.line("autovacuum", onOff(d.Autovacuum), "")
	t.line("oldest transaction", d.OldestTransaction.Round(time.Millisecond).String(), "vacuum")
	t.line("connections", fmt.Sprintf("%d of %d", d.Connections, d.MaxConnections), "connections")
	return t.String()
}

// postgresJSON is a description as --json has it.
type postgresJSON struct {
	Table             string           `json:"table"`
	MayRead           bool             `json:"may_read"`
	MayWrite          bool             `json:"may_write"`
	Unlogged          bool             `json:"unlogged"`
	MissingColumns    []string         `json:"missing_columns"`
	ServerVersion     int              `json:"server_version_num"`
	Encoding          string           `json:"encoding"`
	Standby           bool             `json:"standby"`
	Fsync             bool             `json:"fsync"`
	FullPageWrites    bool             `json:"full_page_writes"`
	Standbys          int              `json:"standbys"`
	Synchronous       int              `json:"synchronous_standbys"`
	SynchronousNames  string           `json:"synchronous_standby_names"`
	CheckInterval     float64          `json:"client_connection_check_interval_seconds"`
	OldestTransaction float64          `json:"oldest_transaction_seconds"`
	Autovacuum        bool             `json:"autovacuum"`
	Connections       int              `json:"connections"`
	MaxConnections    int              `json:"max_connections"`
	Findings          []doctor.Finding `json:"findings"`
}

func postgresJSONOf(d *pgstore.Description, findings []doctor.Finding) postgresJSON {
	return postgresJSON{
		Table: d.Table, MayRead: d.MayRead, MayWrite: d.MayWrite, Unlogged: d.Unlogged, MissingColumns: append([]string{}, d.Missing...),
		ServerVersion: d.Version, Encoding: d.Encoding, Standby: d.Standby, Fsync: d.Fsync, FullPageWrites: d.FullPageWrites,
		Standbys: d.Standbys, Synchronous: d.Synchronous, SynchronousNames: d.SynchronousNames, CheckInterval: d.CheckInterval.Seconds(),
		OldestTransaction: d.OldestTransaction.Seconds(), Autovacuum: d.Autovacuum, Connections: d.Connections, MaxConnections: d.MaxConnections,
		Findings: findings,
	}
}
