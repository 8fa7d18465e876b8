// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// A server with a standby, which is asynchronous at first. Its settings change.
func TestDiagnose(t *testing.T) {
	server := enginetest.StartPostgreSQL(t, "fsync=on", "full_page_writes=on")
	conn, err := pgx.Connect(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := CreateTable(t.Context(), conn, ""); err != nil {
		t.Fatal(err)
	}
	var options Options
	diagnosed := func(want ...string) {
		t.Helper()
		s, err := Connect(server.URL, &options)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		enginetest.Findings(t, s.Diagnose(t.Context(), driver.Timing{}), want...)
	}
	diagnosed("ok encryption: the connection is not encrypted, and does not leave this machine", "ok server: PostgreSQL ",
		"warn role: \"tenure\" is a superuser", "ok durability: ", "ok replication: no standby is connected; if the disk", "ok vacuum: ", "ok connections: ",
		"!autovacuum is off", "!client_connection_check_interval", "!bad ")

	standby := server.Standby()
	diagnosed("bad replication: the server has asynchronous standbys")
	if _, err := Open(t.Context(), server.URL, &options); !errors.Is(err, errAsynchronous) {
		t.Errorf("opened with a standby that may be promoted: %v", err)
	}
	refused := mustConnectWith(t, enginetest.Database(t, server.URL), &options)
	if _, err := refused.Create(t.Context(), driver.CreateOptions{}); mentions(err, "was not created") != nil {
		t.Errorf("created beside a standby that may be promoted: %v", err)
	}
	if d, err := refused.Inspect(t.Context()); err != nil || d.Exists {
		t.Errorf("the table that was refused: %+v, %v", d, err)
	}
	options.AcceptStandbys = true
	diagnosed("warn replication: 1 standby, and none is synchronous: a failover loses the last confirmed writes, and grants tokens twice", "!bad ")
	mustOpenWith(t, server.URL, &options)

	server.Configure("autovacuum", "off")
	server.Configure("client_connection_check_interval", "1s")
	server.Configure("synchronous_standby_names", standby.Name)
	s := mustOpen(t, server.URL)
	for end := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) { // the sender of the standby learns of it later
		d, err := s.Inspect(t.Context())
		if err == nil && d.Synchronous == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the standby is not synchronous: %+v, %v", d, err)
		}
	}
	diagnosed(`ok replication: 1 standby, a write waits for "standby1", 1 connected`,
		"warn replication: client_connection_check_interval is 1s: a broken connection ends the wait",
		`; ALTER ROLE "tenure" SET client_connection_check_interval = 0`, "warn vacuum: autovacuum is off")
}

// guardedBy has a guarded table, and so many asynchronous standbys.
func guardedBy(standbys int, open bool) func(*Description, *role) {
	return func(d *Description, _ *role) {
		d.guard, _ = small.guard()
		d.Settings, d.Open, d.SynchronousNames = d.guard.settings, open, ""
		d.Standbys, d.Synchronous, d.Asynchronous = standbys, 0, standbys
	}
}

func TestFindings(t *testing.T) {
	healthy := Description{
		Table: "tenure_records", Version: 150018, Exists: true, MayRead: true, MayWrite: true, Fsync: true, FullPageWrites: true, Autovacuum: true,
		Connections: 5, MaxConnections: 100, Standbys: 1, Synchronous: 1, SynchronousNames: "a", Sees: true,
	}
	app := role{name: "app"}
	for _, f := range healthy.findings(app) {
		if f.Level != driver.LevelOK {
			t.Errorf("a healthy server: %v", f)
		}
	}
	for _, c := range []struct {
		change func(*Description, *role)
		want   string
	}{
		{func(d *Description, _ *role) { d.Fsync = false }, "bad durability: fsync is off"},
		{func(d *Description, _ *role) { d.MayRead, d.MayWrite = false, false }, `ok role: "app" may connect`},
		{func(d *Description, _ *role) { d.Elsewhere = []string{"b.t", "c.t"} }, "is used, but the database also has b.t and c.t"},
		{func(d *Description, _ *role) { d.FullPageWrites = false }, "bad durability: full_page_writes is off"},
		{func(d *Description, _ *role) {
			d.Standbys, d.Synchronous, d.SynchronousNames = 0, 0, ""
		}, "ok replication: no standby"},
		{func(d *Description, _ *role) {
			d.Standbys, d.Synchronous, d.SynchronousNames = 2, 0, ""
		}, "warn replication: 2 standbys, and none is synchronous"},
		{func(d *Description, _ *role) { d.Synchronous = 0 }, `bad replication: synchronous_standby_names is "a", and none of them is connected`},
		{func(d *Description, _ *role) { d.Synchronous, d.Sees = 0, false }, `ok replication: synchronous_standby_names is "a"`},
		{func(d *Description, _ *role) { d.Sees = false }, `ok role: "app" cannot see`},
		{guardedBy(2, true), "ok guard: standbys=1 of 2"},
		{guardedBy(2, true), "the other standbys leave the old primary within 1s"},
		{guardedBy(2, false), "warn life: the server was started or promoted"},
		{guardedBy(1, true), "warn standbys: 1 of 2 connected"},
		{guardedBy(0, true), "bad standbys: 0 connected, and writes need 1 to 2"},
		{guardedBy(3, true), "bad standbys: 3 connected, and writes need 1 to 2"},
		{func(d *Description, _ *role) { d.CheckInterval = time.Second }, "warn replication: client_connection_check_interval is 1s"},
		{func(d *Description, _ *role) { d.OldestTransaction = 11 * time.Minute }, "warn vacuum: a transaction has run for 11m0s"},
		{func(d *Description, _ *role) { d.Autovacuum = false }, "warn vacuum: autovacuum is off"},
		{func(d *Description, _ *role) { d.Connections = 81 }, "warn connections: 81 of 100"},
		{func(d *Description, _ *role) { d.MayWrite = false }, `bad role: "app" can read table tenure_records, but not write it`},
		{func(_ *Description, r *role) { r.super = true }, `warn role: "app" is a superuser`},
	} {
		d, r := healthy, app
		c.change(&d, &r)
		enginetest.Findings(t, d.findings(r), c.want)
	}
	// The interval matters only where a commit waits.
	d := healthy
	d.SynchronousNames, d.Synchronous, d.Standbys, d.CheckInterval = "", 0, 0, time.Second
	for _, f := range d.findings(app) {
		if f.Level != driver.LevelOK {
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

func TestDiagnoseEncryption(t *testing.T) {
	far, near := conn{to: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}}, conn{to: &net.TCPAddr{IP: net.IPv6loopback}}
	checks := func([][]byte, [][]*x509.Certificate) error { return nil }
	for _, c := range []struct {
		conn   net.Conn
		config *tls.Config
		level  driver.Level
		want   string
	}{
		{far, nil, driver.LevelWarn, "not encrypted"},
		{near, nil, driver.LevelOK, "does not leave this machine"},
		{conn{to: &net.UnixAddr{Net: "unix"}}, nil, driver.LevelOK, "does not leave this machine"},
		{tls.Client(far, &tls.Config{}), &tls.Config{InsecureSkipVerify: true}, driver.LevelOK, "is not checked"},
		{tls.Client(far, &tls.Config{}), &tls.Config{InsecureSkipVerify: true, VerifyPeerCertificate: checks}, driver.LevelOK, "is encrypted"},
		{tls.Client(far, &tls.Config{}), &tls.Config{}, driver.LevelOK, "is encrypted"},
	} {
		f := encryption(c.conn, c.config)
		if f.Level != c.level || !strings.Contains(f.Finding, c.want) || strings.Contains(f.Finding, "not checked") != (c.want == "is not checked") {
			t.Errorf("%v: want %s, %q", f, c.level, c.want)
		}
	}
}
