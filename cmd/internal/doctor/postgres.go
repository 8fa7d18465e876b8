// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurelock/tenure/pgstore"
)

// Postgres is the server of a store in PostgreSQL.
type Postgres struct {
	// Options returns those of the store.
	Options func() (pgstore.Options, error)
	// Pool returns one of so many connections at most.
	Pool func(ctx context.Context, conns int32) (*pgxpool.Pool, error)
}

const (
	// postgresPatience bounds the questions about a server, all of them together.
	postgresPatience = 10 * time.Second
	// longTransaction is the age above which a transaction is told, and connectionsLevel
	// the part of max_connections above which they are.
	longTransaction  = 10 * time.Minute
	connectionsLevel = 0.8
)

// eventualReads says that all reads are alike.
func (p Postgres) eventualReads() bool { return false }

// examine looks at the server. What makes the table unusable is told by the store, which
// does not open then.
func (p Postgres) examine(ctx context.Context, patient *Patient) {
	_, findings, err := p.Look(ctx)
	if err != nil {
		return // the store says so, too
	}
	for _, f := range findings {
		patient.Tell(f)
	}
}

// postgresRole is what is asked of the role, beside what the store asks.
type postgresRole struct {
	name        string
	super, sees bool
}

// Look returns what the table and its server are like, and what is to be thought of that,
// but for what makes the table unusable: see [pgstore.Description.Problems].
func (p Postgres) Look(ctx context.Context) (*pgstore.Description, []Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, postgresPatience)
	defer cancel()
	options, err := p.Options()
	if err != nil {
		return nil, nil, err
	}
	pool, err := p.Pool(ctx, 1)
	if err != nil {
		return nil, nil, err
	}
	defer pool.Close()
	store, err := pgstore.New(pool, &options)
	if err != nil {
		return nil, nil, err
	}
	defer store.Close() //nolint:errcheck // it has nothing to lose
	d, err := store.Describe(ctx)
	if err != nil {
		return nil, nil, err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Release()
	checked := pool.Config().ConnConfig.TLSConfig
	findings := []Finding{encrypted(conn.Conn().PgConn().Conn(), checked)}
	var role postgresRole
	// By the protocol that every pooler passes on.
	err = conn.QueryRow(ctx, "SELECT current_user::text, rolsuper, pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') FROM pg_roles WHERE rolname = current_user",
		pgx.QueryExecModeExec).Scan(&role.name, &role.super, &role.sees)
	if err != nil {
		return nil, nil, err
	}
	return d, append(findings, postgresFindings(d, role)...), nil
}

// encrypted tells whether others can read a password, and change what is sent.
func encrypted(conn net.Conn, config *tls.Config) Finding {
	near := conn.RemoteAddr().Network() == "unix"
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		near = tcp.IP.IsLoopback()
	}
	_, is := conn.(*tls.Conn)
	switch {
	case !is && near:
		return Finding{"encryption", OK, "the connection is not encrypted, and does not leave this machine", ""}
	case !is:
		return Finding{"encryption", Warn, "the connection is not encrypted", "others on the way can read and change it: write sslmode=verify-full in the URL"}
	case !near && config != nil && config.InsecureSkipVerify && config.VerifyPeerCertificate == nil:
		return Finding{"encryption", OK, "the connection is encrypted, and the server's certificate is not checked", "another server could stand in for it: write sslmode=verify-full in the URL, and sslrootcert= if need be"}
	}
	return Finding{"encryption", OK, "the connection is encrypted", ""}
}

// postgresFindings says what is to be thought of a server.
func postgresFindings(d *pgstore.Description, role postgresRole) []Finding {
	all := []Finding{{"server", OK, fmt.Sprintf("PostgreSQL %d.%d", d.Version/10000, d.Version%10000), ""}}
	if d.Exists {
		all = append(all, postgresTable(d))
	}
	all = append(all, postgresRoleFindings(d, role)...)
	all = append(all, durability(d), replication(d, role.sees))
	if d.CheckInterval > 0 && d.SynchronousNames != "" {
		all = append(all, Finding{
			"replication", Warn, fmt.Sprintf("client_connection_check_interval is %v: a connection that breaks ends the wait of its commit for the standby, and the lock is seen to be held although a fail-over would lose it", d.CheckInterval),
			fmt.Sprintf("ALTER ROLE %s SET client_connection_check_interval = 0", pgx.Identifier{role.name}.Sanitize()),
		})
	}
	return append(all, vacuum(d)...)
}

// postgresTable tells which table it is, of several of one name.
func postgresTable(d *pgstore.Description) Finding {
	if len(d.Elsewhere) == 0 {
		return Finding{"table", OK, d.Table + " is the only table of that name in the database", ""}
	}
	return Finding{
		"table", Warn, fmt.Sprintf("%s is used, and the database has %s, too: a program whose URL names no schema is refused", d.Table, strings.Join(d.Elsewhere, " and ")),
		"see that no program uses another one, and drop it: see docs/guides/postgres.md",
	}
}

func postgresRoleFindings(d *pgstore.Description, role postgresRole) []Finding {
	name := pgx.Identifier{role.name}.Sanitize()
	f := Finding{"role", OK, fmt.Sprintf("%s can read and write table %s", name, d.Table), ""}
	switch {
	case !d.Exists || !d.MayRead:
		f = Finding{"role", OK, name + " may connect", ""}
	case d.MayRead && !d.MayWrite:
		f = Finding{"role", Bad, fmt.Sprintf("%s can read table %s, and not write it: no lock can be taken, renewed or released", name, d.Table), "grant it what tenure table policy prints"}
	case role.super:
		f = Finding{"role", Warn, name + " is a superuser: the server refuses it no mistake", "name another role in the URL, and grant it what tenure table policy prints"}
	}
	if role.sees {
		return []Finding{f}
	}
	return []Finding{f, {
		"role", OK, name + " does not see what other roles do: their transactions and connections are not counted below, and not which standbys are synchronous",
		fmt.Sprintf("for an examination of the server GRANT pg_read_all_stats TO %s", name),
	}}
}

// durability tells whether a crash loses what was answered.
func durability(d *pgstore.Description) Finding {
	switch {
	case !d.Fsync:
		return Finding{"durability", Bad, "fsync is off: a crash of the machine loses or spoils what was answered, and tokens are given twice", "switch it on, and see that the data are whole"}
	case !d.FullPageWrites:
		return Finding{"durability", Bad, "full_page_writes is off: a crash of the machine may spoil the table", "switch it on"}
	}
	return Finding{"durability", OK, "what is answered is on the disk", ""}
}

// replication tells what a fail-over would lose.
func replication(d *pgstore.Description, sees bool) Finding {
	f := Finding{Check: "replication", Level: OK}
	switch {
	case d.SynchronousNames == "" && d.Standbys == 0:
		f.Finding = "no standby is connected"
		f.Advice = "if the disk of this server is lost so are the locks; before it is restored from a backup, see docs/guides/postgres.md"
	case d.SynchronousNames == "":
		f.Level, f.Finding = Warn, fmt.Sprintf("%s, and none is synchronous: a fail-over loses what was answered last, and gives tokens twice", counted(d.Standbys, "standby"))
		f.Advice = "set synchronous_standby_names, or have no automatic fail-over: see docs/guides/postgres.md"
	case !sees:
		f.Finding = fmt.Sprintf("synchronous_standby_names is %q", d.SynchronousNames)
	case d.Synchronous == 0:
		f.Level, f.Finding = Bad, fmt.Sprintf("synchronous_standby_names is %q, and none of them is connected: every write waits", d.SynchronousNames)
		f.Advice = "start the standby; leases end meanwhile"
	default:
		f.Finding = fmt.Sprintf("%s, a write waits for %q, %d connected", counted(d.Standbys, "standby"), d.SynchronousNames, d.Synchronous)
	}
	return f
}

// vacuum tells what keeps the table from staying small, and the server from taking
// connections.
func vacuum(d *pgstore.Description) []Finding {
	var all []Finding
	if !d.Autovacuum {
		all = append(all, Finding{"vacuum", Warn, "autovacuum is off: each heartbeat leaves a dead row behind, and the table grows without end", "switch it on"})
	}
	old := Finding{"vacuum", OK, "no transaction keeps dead rows for long", ""}
	if d.OldestTransaction > longTransaction {
		old.Level = Warn
		old.Finding = fmt.Sprintf("a transaction has run for %v: until it ends no vacuum takes away what heartbeats leave, and they become slow", d.OldestTransaction.Round(time.Second))
		old.Advice = "find it in pg_stat_activity by xact_start; set idle_in_transaction_session_timeout"
	}
	full := Finding{"connections", OK, fmt.Sprintf("%d of %d are in use", d.Connections, d.MaxConnections), ""}
	if float64(d.Connections) > connectionsLevel*float64(d.MaxConnections) {
		full.Level, full.Advice = Warn, "a process that gets none cannot take or renew a lock: raise max_connections, lower pool_max_conns= in the URLs, or use a pooler"
	}
	return append(all, old, full)
}
