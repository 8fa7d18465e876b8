// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurelock/tenure/driver"
)

const (
	// diagnosisPatience bounds the questions about a server, all of them together.
	diagnosisPatience = 10 * time.Second
	// longTransaction is the age above which a transaction is warned of, and connectionsLevel
	// the part of max_connections above which they are.
	longTransaction  = 10 * time.Minute
	connectionsLevel = 0.8
)

// Diagnose examines the server, and the rights of the role. It leaves out what makes the table
// unusable: [Store.Inspect] reports such problems, which keep a store from opening. It
// implements [driver.Diagnoser].
func (s *Store) Diagnose(ctx context.Context, _ driver.Timing) []driver.Finding {
	_, all, err := s.diagnose(ctx)
	if err != nil {
		return nil // each call reports it
	}
	return all
}

// role has properties of the role that [Store.Inspect] does not ask for.
type role struct {
	name  string
	super bool
}

// diagnose returns the description of the table and its server, and their assessment.
func (s *Store) diagnose(ctx context.Context) (*Description, []driver.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, diagnosisPatience)
	defer cancel()
	d, err := s.Inspect(ctx)
	if err != nil {
		return nil, nil, err
	}
	if d.Engine != "" {
		f := driver.Warn("server", "%s: Tenure was not tested with it, and does not examine it", d.Engine)
		return d, []driver.Finding{f.Advise("use PostgreSQL, or test it yourself")}, nil
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, nil, s.failed(err)
	}
	defer conn.Release()
	encryption := encryption(conn.Conn().PgConn().Conn(), s.pool.Config().ConnConfig.TLSConfig)
	var r role
	// By the protocol that every pooler passes on.
	err = conn.QueryRow(ctx, "SELECT current_user::text, rolsuper FROM pg_roles WHERE rolname = current_user",
		pgx.QueryExecModeExec).Scan(&r.name, &r.super)
	if err != nil {
		return nil, nil, s.failed(err)
	}
	return d, append([]driver.Finding{encryption}, d.findings(r)...), nil
}

// encryption examines the connection itself: with sslmode=prefer it may be encrypted or not.
func encryption(conn net.Conn, config *tls.Config) driver.Finding {
	host := "" // a socket's
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		host = tcp.IP.String()
	}
	_, is := conn.(*tls.Conn)
	f := driver.Encrypted(is, "write sslmode=verify-full in the URL", host)
	if is && !driver.Near(host) && config != nil && config.InsecureSkipVerify && config.VerifyPeerCertificate == nil {
		return driver.OK(f.Check, "%s, and the server's certificate is not checked", f.Finding).
			Advise("another server could impersonate it: write sslmode=verify-full in the URL, and " +
				"sslrootcert= if needed")
	}
	return f
}

// findings assesses a server.
func (d *Description) findings(r role) []driver.Finding {
	all := []driver.Finding{driver.OK("server", "PostgreSQL %s", d.version())}
	switch {
	case d.Exists && len(d.Elsewhere) > 0:
		all = append(all, driver.Warn("table", "%s is used, but the database also has %s: a program whose "+
			"URL names no schema is refused",
			d.Table, strings.Join(d.Elsewhere, " and ")).
			Advise("make sure that no program uses another one, and drop it: see docs/guides/postgres.md"))
	case d.Exists:
		all = append(all, driver.OK("table", "%s is the only table of that name in the database", d.Table))
	}
	all = append(all, d.role(r)...)
	all = append(all, d.durability(), d.replication())
	all = append(all, d.guardFindings()...)
	if d.CheckInterval > 0 && d.SynchronousNames != "" {
		all = append(all, driver.Warn("replication", "client_connection_check_interval is %v: a broken "+
			"connection ends the wait of its commit "+
			"for the standby, and the lock counts as held although a fail-over would lose it", d.CheckInterval).
			Advise("ALTER ROLE %s SET client_connection_check_interval = 0", pgx.Identifier{r.name}.Sanitize()))
	}
	return append(all, d.vacuum()...)
}

func (d *Description) version() string {
	const major = 10000
	return fmt.Sprintf("%d.%d", d.Version/major, d.Version%major)
}

func (d *Description) role(r role) []driver.Finding {
	name := pgx.Identifier{r.name}.Sanitize()
	f := driver.OK("role", "%s can read and write table %s", name, d.Table)
	switch {
	case !d.Exists || !d.MayRead:
		f = driver.OK("role", "%s may connect", name)
	case !d.MayWrite:
		f = driver.Bad("role", "%s can read table %s, but not write it: no lock can be taken, renewed or "+
			"released", name, d.Table).
			Advise("grant it what tenure table policy prints")
	case r.super:
		f = driver.Warn("role", "%s is a superuser: no permission protects it from mistakes", name).
			Advise("name another role in the URL, and grant it what tenure table policy prints")
	}
	if d.Sees {
		return []driver.Finding{f}
	}
	return []driver.Finding{f, driver.OK("role", "%s cannot see the activity of other roles: their transactions "+
		"and connections are not counted below, "+
		"nor is it known which standbys are synchronous", name).
		Advise("to examine the server, GRANT pg_read_all_stats TO %s", name)}
}

// durability says whether a crash loses confirmed writes.
func (d *Description) durability() driver.Finding {
	switch {
	case !d.Fsync:
		return driver.Bad("durability", "fsync is off: a crash of the machine loses or corrupts confirmed "+
			"writes, and tokens are granted twice").
			Advise("switch it on, and check that the data are intact")
	case !d.FullPageWrites:
		return driver.Bad("durability", "full_page_writes is off: a crash of the machine may corrupt the "+
			"table").Advise("switch it on")
	}
	return driver.OK("durability", "confirmed writes are on the disk")
}

// replication says what a fail-over would lose.
func (d *Description) replication() driver.Finding {
	const check = "replication"
	standbys := driver.Counted(d.Standbys, "standby")
	switch {
	case d.SynchronousNames == "" && d.Standbys == 0:
		return driver.OK(check, "no standby is connected").
			Advise("if the disk of this server is lost, so are the locks; before you restore a " +
				"backup, see docs/guides/postgres.md")
	case d.SynchronousNames == "" && d.guard != nil:
		return driver.OK(check, "%s, and none is synchronous: a failover loses the last confirmed writes", standbys)
	case d.SynchronousNames == "" && d.Asynchronous > 0 && !d.accepted:
		return driver.Bad(check, "%v", errAsynchronous)
	case d.SynchronousNames == "":
		return driver.Warn(check, "%s, and none is synchronous: a failover loses the last confirmed writes, "+
			"and grants tokens twice", standbys).
			Advise("promote none; or set synchronous_standby_names, or create a guarded table: see docs/guides/postgres.md")
	case !d.Sees:
		return driver.OK(check, "synchronous_standby_names is %q", d.SynchronousNames)
	case d.Synchronous == 0:
		return driver.Bad(check, "synchronous_standby_names is %q, and none of them is connected: every "+
			"write waits", d.SynchronousNames).
			Advise("start the standby; leases end meanwhile")
	}
	return driver.OK(check, "%s, a write waits for %q, %d connected", standbys, d.SynchronousNames, d.Synchronous)
}

// vacuum says what keeps the table from staying small, and the server from
// accepting connections.
func (d *Description) vacuum() (all []driver.Finding) {
	if !d.Autovacuum {
		all = append(all, driver.Warn("vacuum", "autovacuum is off: each heartbeat leaves a dead row "+
			"behind, and the table grows without end").
			Advise("switch it on"))
	}
	old := driver.OK("vacuum", "no transaction keeps dead rows for long")
	if d.OldestTransaction > longTransaction {
		old = driver.Warn("vacuum", "a transaction has run for %v: until it ends, vacuum cannot remove the dead "+
			"rows of heartbeats, which become slow",
			d.OldestTransaction.Round(time.Second)).
			Advise("find it in pg_stat_activity by xact_start; set idle_in_transaction_session_timeout")
	}
	full := driver.OK("connections", "%d of %d are in use", d.Connections, d.MaxConnections)
	if float64(d.Connections) > connectionsLevel*float64(d.MaxConnections) {
		full.Level, full.Advice = driver.LevelWarn, "a process that gets none cannot take or renew a lock: "+
			"raise max_connections, lower pool_max_conns= in the URLs, or use a pooler"
	}
	return append(all, old, full)
}
