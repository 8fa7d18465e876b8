// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// Postgres is the variable that names the URL of a PostgreSQL.
const Postgres = "TENURE_TEST_POSTGRES"

// PostgreSQL returns the URL of the PostgreSQL that scripts/engines has started, and skips
// the test without it. Its user may do everything.
func PostgreSQL(t testing.TB) string {
	t.Helper()
	return Shared(t, Postgres, "postgres")
}

// databases counts those of this process, for their names.
var databases atomic.Uint64

// Database creates an empty database on the server of a URL, and returns its URL. The
// database is removed with the test, with its open connections. The server must answer
// then: on a [PostgreSQLServer] that the test ends, use the database of its URL.
func Database(t testing.TB, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), databases.Add(1))
	psql(t, server, "CREATE DATABASE "+name)
	t.Cleanup(func() { psql(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	u.Path = "/" + name
	return u.String()
}

// psql runs statements in the database of a URL, and returns the values, a line for each
// row. It is for tests of modules that have no driver.
func psql(t testing.TB, database, statements string) string {
	t.Helper()
	out, err := launcher.PSQL(context.WithoutCancel(t.Context()), database, statements)
	need(t, err)
	return out
}

// PostgreSQLServer is a server that a test has for itself, on Linux. Its user tenure may do
// everything, and has no password. Its URL is that of database postgres. A kill ends all its
// processes at once.
type PostgreSQLServer struct {
	*Engine
	// Name is what a standby calls itself; synchronous_standby_names can have it.
	Name string

	settings []string
	standbys int
}

// StartPostgreSQL starts a server, and waits until it answers. Settings are lines of its
// configuration, such as "fsync=on": without that one, a power loss would lose data, but
// the death of the server's processes loses nothing.
func StartPostgreSQL(t testing.TB, settings ...string) *PostgreSQLServer {
	t.Helper()
	s := newPostgreSQL(t, settings)
	need(t, launcher.InitPostgreSQL(s.Data))
	s.Start()
	s.Await()
	return s
}

func newPostgreSQL(t testing.TB, settings []string) *PostgreSQLServer {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the processes of a PostgreSQL are found on Linux alone")
	}
	port := FreePort(t)
	data := postgresFolder(t)
	all := append([]string{"shared_buffers=32MB", "wal_keep_size=256MB"}, settings...)
	server, err := launcher.PostgreSQL(data, port, all...)
	need(t, err)
	s := &PostgreSQLServer{Engine: newEngine(t, server), settings: settings}
	s.Data, s.Addr = data, fmt.Sprintf("127.0.0.1:%d", port)
	s.URL = "postgres://tenure@" + s.Addr + "/postgres?sslmode=disable"
	return s
}

// postgresFolder returns a folder that is removed with the test, and that belongs to the
// user of the servers. That user must be able to enter its parent.
func postgresFolder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o711), os.Chmod(dir, 0o700), launcher.Own(dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Configure has the server take a setting from now on, unless it was started with it.
func (s *PostgreSQLServer) Configure(name, value string) {
	s.t.Helper()
	const loaded = "SELECT pg_conf_load_time()"
	before := psql(s.t, s.URL, loaded)
	psql(s.t, s.URL, "ALTER SYSTEM SET "+name+" = '"+value+"'")
	psql(s.t, s.URL, "SELECT pg_reload_conf()")
	s.until("the configuration is read", func() bool { return psql(s.t, s.URL, loaded) != before })
	if name == "synchronous_standby_names" {
		// Commits wait only when the checkpointer has read it too. It does so before it begins
		// a requested checkpoint; the first one may have begun just before.
		for range 2 {
			psql(s.t, s.URL, "CHECKPOINT")
		}
	}
}

// Standby starts a server that follows this one by streaming, and waits until it has said so.
// It has the settings of this one, but none for synchronous_standby_names. Its Name is
// standby1, standby2, and so on.
func (s *PostgreSQLServer) Standby() *PostgreSQLServer {
	s.t.Helper()
	return s.StandbyThrough(s.Addr)
}

// StandbyThrough is Standby through a relay to this server, at an address.
func (s *PostgreSQLServer) StandbyThrough(address string) *PostgreSQLServer {
	s.t.Helper()
	f := s.backup(address)
	f.Start()
	f.Await()
	follows := "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn IS NOT NULL AND application_name = '" + f.Name + "'"
	s.until(f.Name+" follows", func() bool { return psql(s.t, s.URL, follows) == "1" })
	return f
}

// Restored returns a server that runs on a backup of this one, and follows nothing.
func (s *PostgreSQLServer) Restored() *PostgreSQLServer {
	s.t.Helper()
	f := s.backup(s.Addr)
	if err := os.Remove(filepath.Join(f.Data, "standby.signal")); err != nil {
		s.t.Fatal(err)
	}
	f.Start()
	f.Await()
	return f
}

func (s *PostgreSQLServer) backup(address string) *PostgreSQLServer {
	s.t.Helper()
	var settings []string
	for _, setting := range s.settings {
		if !strings.HasPrefix(setting, "synchronous_standby_names") {
			settings = append(settings, setting)
		}
	}
	f := newPostgreSQL(s.t, settings)
	s.standbys++
	f.Name = fmt.Sprint("standby", s.standbys)
	need(s.t, launcher.FollowPostgreSQL(f.Data, strings.Replace(s.URL, s.Addr, address, 1), f.Name))
	return f
}

// Receive has pg_receivewal stream the changes of the server, until the test ends.
func (s *PostgreSQLServer) Receive() {
	s.t.Helper()
	program, err := launcher.PostgresProgram("pg_receivewal")
	need(s.t, err)
	e := newEngine(s.t, launcher.Server{
		Args: []string{program, "-d", s.URL, "-D", postgresFolder(s.t)}, User: launcher.PostgresUser, Dir: postgresFolder(s.t),
		Ready: func() error { return nil },
	})
	e.Start()
}

// Promote makes a standby a primary, and waits until it is.
func (s *PostgreSQLServer) Promote() {
	s.t.Helper()
	psql(s.t, s.URL, "SELECT pg_promote(true, 60)")
}

// Rewind makes a stopped server a standby of another one, whose history has left its own behind. Both have the setting
// wal_log_hints=on.
func (s *PostgreSQLServer) Rewind(to *PostgreSQLServer) {
	s.t.Helper()
	psql(s.t, to.URL, "CHECKPOINT") // by which it knows its timeline
	need(s.t, launcher.RewindPostgreSQL(s.Data, to.URL, s.Name))
	s.Start()
	s.Await()
}

// until waits for something that the server does.
func (s *PostgreSQLServer) until(what string, is func() bool) {
	s.t.Helper()
	Eventually(s.t, what, func(context.Context) error {
		if !is() {
			return errors.New("not yet")
		}
		return nil
	})
}

// Restart starts it again, and waits until it answers. If it runs, it ends politely
// before, without waiting for its clients.
func (s *PostgreSQLServer) Restart() {
	s.t.Helper()
	s.End(syscall.SIGINT)
	s.Start()
	s.Await()
}

// StartPgBouncer starts a pooler of the server of a URL, which gives out a connection to
// it for a transaction, not for a session, and waits until it answers. Settings are lines
// of its configuration, such as "default_pool_size=1".
func StartPgBouncer(t testing.TB, server string, settings ...string) *Engine {
	t.Helper()
	program, err := launcher.SystemProgram("pgbouncer", "/usr/sbin/pgbouncer")
	need(t, err)
	u, err := url.Parse(server)
	need(t, err)
	port := strconv.Itoa(FreePort(t))
	lines := append([]string{
		"[databases]", fmt.Sprintf("* = host=%s port=%s user=%s", u.Hostname(), u.Port(), u.User.Username()),
		"[pgbouncer]", "pool_mode=transaction", "auth_type=any", "listen_addr=127.0.0.1", "listen_port=" + port,
		"unix_socket_dir=", "max_client_conn=1000",
	}, settings...)
	dir := postgresFolder(t)
	config := filepath.Join(dir, "pgbouncer.ini")
	need(t, os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o644)) // for another user
	u.Host = "127.0.0.1:" + port
	return await(start(t, u.String(), launcher.Server{
		Args: []string{program, config}, Dir: dir, User: launcher.PostgresUser,
		Ready: func() error { return launcher.PostgresReady(u.String()) },
	}, nil))[0]
}
