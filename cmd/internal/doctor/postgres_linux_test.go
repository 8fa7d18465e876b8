// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/pgstore"
)

// examinePostgres returns what the doctor says of the store of a URL.
func examinePostgres(t *testing.T, url string) (lines string, bad bool, err error) {
	t.Helper()
	at, err := storeurl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := at.Postgres()
	return examine(t, Patient{
		Engine: Postgres{Options: p.Options, Pool: p.Pool}, Open: at.Open,
		Options: options(t, tenure.Options{LeaseDuration: time.Minute}),
	})
}

// A server with a standby, at first one that is not synchronous. Its settings change.
func TestPostgresServer(t *testing.T) {
	server := enginetest.StartPostgreSQL(t, "fsync=on", "full_page_writes=on")
	conn, err := pgx.Connect(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := pgstore.CreateTable(t.Context(), conn, ""); err != nil {
		t.Fatal(err)
	}
	lines, bad, err := examinePostgres(t, server.URL)
	if bad || err != nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, "ok encryption: the connection is not encrypted, and does not leave this machine", "ok server: PostgreSQL ", "warn role: \"tenure\" is a superuser",
		"ok durability: ", "ok replication: no standby is connected; if the disk", "ok vacuum: ", "ok connections: ", "ok store: can be read and written", "ok watch: a waiter hears of a release after")
	wantNoLines(t, lines, "autovacuum is off", "client_connection_check_interval", "bad ")

	standby := server.Standby()
	lines, bad, err = examinePostgres(t, server.URL)
	if bad || err != nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, "warn replication: 1 standby, and none is synchronous: a fail-over loses what was answered last, and gives tokens twice")

	server.Configure("autovacuum", "off")
	server.Configure("client_connection_check_interval", "1s")
	server.Configure("synchronous_standby_names", standby.Name)
	at, err := storeurl.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := at.Postgres()
	for end := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) { // the sender of the standby learns of it later
		d, _, err := Postgres{Options: p.Options, Pool: p.Pool}.Look(t.Context())
		if err == nil && d.Synchronous == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the standby is not synchronous: %+v, %v", d, err)
		}
	}
	lines, bad, err = examinePostgres(t, server.URL)
	if bad || err != nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, `ok replication: 1 standby, a write waits for "standby1", 1 connected`,
		"warn replication: client_connection_check_interval is 1s: a connection that breaks ends the wait", `; ALTER ROLE "tenure" SET client_connection_check_interval = 0`,
		"warn vacuum: autovacuum is off")

	// A standby itself, on which there is nothing to take.
	lines, bad, err = examinePostgres(t, standby.URL)
	if !bad || err == nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, "bad store: cannot be opened: postgres: the server is a standby")
}

// Behind a pooler that pools transactions nobody hears of a release, but at the server.
func TestPostgresPooler(t *testing.T) {
	database := enginetest.Database(t, enginetest.PostgreSQL(t))
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := pgstore.CreateTable(t.Context(), conn, ""); err != nil {
		t.Fatal(err)
	}
	pooled := enginetest.StartPgBouncer(t, database).URL + "&default_query_exec_mode=exec"
	lines, _, err := examinePostgres(t, pooled)
	if err != nil {
		t.Errorf("%v:\n%s", err, lines)
	}
	wantLines(t, lines, "ok store: can be read and written", "warn watch: a release cannot be watched for: postgres: LISTEN is deaf here", "bad durability: fsync is off")
	for listen, want := range map[string]string{
		"off": "ok watch: this store has none",
		strings.NewReplacer("?", "%3F", "=", "%3D").Replace(database): "ok watch: a waiter hears of a release after",
	} {
		lines, _, err := examinePostgres(t, pooled+"&listen="+listen)
		if err != nil {
			t.Errorf("%v:\n%s", err, lines)
		}
		wantLines(t, lines, want)
	}
}

func TestPostgresJudgements(t *testing.T) {
	healthy := pgstore.Description{
		Table: "tenure_records", Version: 150018, Exists: true, MayRead: true, MayWrite: true, Fsync: true, FullPageWrites: true, Autovacuum: true,
		Connections: 5, MaxConnections: 100, Standbys: 1, Synchronous: 1, SynchronousNames: "a",
	}
	role := postgresRole{name: "app", sees: true}
	for _, f := range postgresFindings(&healthy, role) {
		if f.Level != OK {
			t.Errorf("a healthy server: %v", f)
		}
	}
	for _, c := range []struct {
		change func(*pgstore.Description, *postgresRole)
		want   string
	}{
		{func(d *pgstore.Description, _ *postgresRole) { d.Fsync = false }, "bad durability: fsync is off"},
		{func(d *pgstore.Description, _ *postgresRole) { d.MayRead, d.MayWrite = false, false }, `ok role: "app" may connect`},
		{func(d *pgstore.Description, _ *postgresRole) { d.Elsewhere = []string{"b.t", "c.t"} }, "is used, and the database has b.t and c.t, too"},
		{func(d *pgstore.Description, _ *postgresRole) { d.FullPageWrites = false }, "bad durability: full_page_writes is off"},
		{func(d *pgstore.Description, _ *postgresRole) {
			d.Standbys, d.Synchronous, d.SynchronousNames = 0, 0, ""
		}, "ok replication: no standby"},
		{func(d *pgstore.Description, _ *postgresRole) {
			d.Standbys, d.Synchronous, d.SynchronousNames = 2, 0, ""
		}, "warn replication: 2 standbys, and none is synchronous"},
		{func(d *pgstore.Description, _ *postgresRole) { d.Synchronous = 0 }, `bad replication: synchronous_standby_names is "a", and none of them is connected`},
		{func(d *pgstore.Description, r *postgresRole) { d.Synchronous, r.sees = 0, false }, `ok replication: synchronous_standby_names is "a"`},
		{func(_ *pgstore.Description, r *postgresRole) { r.sees = false }, `ok role: "app" does not see`},
		{func(d *pgstore.Description, _ *postgresRole) { d.CheckInterval = time.Second }, "warn replication: client_connection_check_interval is 1s"},
		{func(d *pgstore.Description, _ *postgresRole) { d.OldestTransaction = 11 * time.Minute }, "warn vacuum: a transaction has run for 11m0s"},
		{func(d *pgstore.Description, _ *postgresRole) { d.Autovacuum = false }, "warn vacuum: autovacuum is off"},
		{func(d *pgstore.Description, _ *postgresRole) { d.Connections = 81 }, "warn connections: 81 of 100"},
		{func(d *pgstore.Description, _ *postgresRole) { d.MayWrite = false }, `bad role: "app" can read table tenure_records, and not write it`},
		{func(_ *pgstore.Description, r *postgresRole) { r.super = true }, `warn role: "app" is a superuser`},
	} {
		d, r := healthy, role
		c.change(&d, &r)
		var lines strings.Builder
		for _, f := range postgresFindings(&d, r) {
			fmt.Fprintf(&lines, "%s %s: %s\n", f.Level, f.Check, f.Finding)
		}
		if !strings.Contains(lines.String(), c.want) {
			t.Errorf("want %q in:\n%s", c.want, lines.String())
		}
	}
	// The interval matters only where a commit waits.
	d := healthy
	d.SynchronousNames, d.Synchronous, d.Standbys, d.CheckInterval = "", 0, 0, time.Second
	for _, f := range postgresFindings(&d, role) {
		if f.Level != OK {
			t.Errorf("without a standby: %v", f)
		}
	}
}

// conn is a connection to somewhere.
type conn struct {
	net.Conn
	to net.Addr
}

func (c conn) RemoteAddr() net.Addr { return c.to }

func TestPostgresEncryption(t *testing.T) {
	far, near := conn{to: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}}, conn{to: &net.TCPAddr{IP: net.IPv6loopback}}
	checks := func([][]byte, [][]*x509.Certificate) error { return nil }
	for _, c := range []struct {
		conn   net.Conn
		config *tls.Config
		level  Level
		want   string
	}{
		{far, nil, Warn, "not encrypted"},
		{near, nil, OK, "does not leave this machine"},
		{conn{to: &net.UnixAddr{Net: "unix"}}, nil, OK, "does not leave this machine"},
		{tls.Client(far, &tls.Config{}), &tls.Config{InsecureSkipVerify: true}, OK, "is not checked"},
		{tls.Client(far, &tls.Config{}), &tls.Config{InsecureSkipVerify: true, VerifyPeerCertificate: checks}, OK, "is encrypted"},
		{tls.Client(far, &tls.Config{}), &tls.Config{}, OK, "is encrypted"},
	} {
		f := encrypted(c.conn, c.config)
		if f.Level != c.level || !strings.Contains(f.Finding, c.want) || strings.Contains(f.Finding, "not checked") != (c.want == "is not checked") {
			t.Errorf("%v: want %s, %q", f, c.level, c.want)
		}
	}
}
