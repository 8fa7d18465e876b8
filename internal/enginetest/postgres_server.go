// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// PostgreSQLServer is a server that a test has for itself, on Linux. Its user tenure may do
// everything, and has no password. It ends with the test, with all its processes. Its
// methods are for one goroutine at a time.
type PostgreSQLServer struct {
	*Engine
	// URL is that of database postgres; Addr is its host and port.
	URL, Addr string
	// Name is what a standby calls itself; synchronous_standby_names can have it.
	Name string
	// Data is the folder with its data.
	Data string

	t        testing.TB
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
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	s := &PostgreSQLServer{
		URL: "postgres://tenure@" + addr + "/postgres?sslmode=disable", Addr: addr, Data: postgresFolder(t), t: t, settings: settings,
	}
	server, err := launcher.PostgreSQL(s.Data, port, append([]string{"shared_buffers=32MB", "wal_keep_size=256MB"}, settings...)...)
	need(t, err)
	s.Engine = newEngine(t, server)
	t.Cleanup(s.Kill) // at one instant, before that of the engine
	return s
}

// postgresFolder returns a folder that goes with the test, which belongs to the user of
// the servers. A folder of [testing.T.TempDir] is in one that root alone can enter.
func postgresFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tenure-postgres-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := launcher.Own(dir); err != nil {
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
		// a checkpoint that is asked for; the first one may have begun just before.
		for range 2 {
			psql(s.t, s.URL, "CHECKPOINT")
		}
	}
}

// Standby starts a server that follows this one by streaming, and waits until it does.
// It has the settings of this one, but none for synchronous_standby_names. Its Name is
// standby1, standby2, and so on.
func (s *PostgreSQLServer) Standby() *PostgreSQLServer {
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
	backup := launcher.Server{Dir: f.Data, User: launcher.PostgresUser, Args: []string{
		postgresProgram(s.t, "pg_basebackup"), "-d", s.URL + "&application_name=" + f.Name, "-D", f.Data,
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync",
	}}
	if err := backup.Run(); err != nil {
		s.t.Fatal(err)
	}
	f.Start()
	f.Await()
	s.until(f.Name+" follows", func() bool {
		return psql(s.t, s.URL, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND application_name = '"+f.Name+"'") == "1"
	})
	return f
}

// Promote has a standby be a server that writes, and returns when it is one.
func (s *PostgreSQLServer) Promote() {
	s.t.Helper()
	if got := psql(s.t, s.URL, "SELECT pg_promote()"); got != "t" {
		s.t.Fatalf("pg_promote says %s", got)
	}
}

// Stop has all processes of the server hang, by SIGSTOP, and returns when all do.
func (s *PostgreSQLServer) Stop() {
	s.t.Helper()

	s.until("all processes are stopped", func() bool {
		var going []int
		for pid, state := range launcher.Processes(s.Data) {
			if state != "T" {
				going = append(going, pid)
			}
		}
		launcher.Signal(going, launcher.Hang)
		return len(going) == 0
	})
}

// Continue ends a Stop.
func (s *PostgreSQLServer) Continue() {
	launcher.Signal(slices.Collect(maps.Keys(launcher.Processes(s.Data))), launcher.Continue)
}

// Kill ends all processes of the server by SIGKILL at one instant, and returns when all
// have ended.
func (s *PostgreSQLServer) Kill() {
	s.t.Helper()
	if s.Running() {
		s.Stop() // so that none does anything once another has ended
	}
	s.Engine.Kill()
}

// Restart starts it again, and waits until it answers. If it runs, it ends politely
// before, without waiting for its clients.
func (s *PostgreSQLServer) Restart() {
	s.t.Helper()
	s.End(syscall.SIGINT)
	s.Start()
	s.Await()
}

// until waits for something that the server does.
func (s *PostgreSQLServer) until(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(enginePatience); !is(); time.Sleep(5 * time.Millisecond) { //nolint:forbidigo // processes of their own
		if time.Now().After(end) {
			s.t.Fatalf("%s: not within %v: %s", s.Addr, enginePatience, what)
		}
	}
}

// PgBouncer is a pooler that a test has for itself.
type PgBouncer struct {
	*Engine
	// URL is that of the server, by way of the pooler.
	URL string
}

// StartPgBouncer starts a pooler of the server of a URL, which gives out a connection to
// it for a transaction, not for a session, and waits until it answers. Settings are lines
// of its configuration, such as "default_pool_size=1".
func StartPgBouncer(t testing.TB, server string, settings ...string) *PgBouncer {
	t.Helper()
	program, err := launcher.SystemProgram("pgbouncer", "/usr/sbin/pgbouncer")
	need(t, err)
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(FreePort(t))
	lines := append([]string{
		"[databases]", fmt.Sprintf("* = host=%s port=%s user=%s", u.Hostname(), u.Port(), u.User.Username()),
		"[pgbouncer]", "pool_mode=transaction", "auth_type=any", "listen_addr=127.0.0.1", "listen_port=" + port,
		"unix_socket_dir=", "max_client_conn=1000",
	}, settings...)
	dir := postgresFolder(t)
	config := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil { // for another user
		t.Fatal(err)
	}
	u.Host = "127.0.0.1:" + port
	p := &PgBouncer{URL: u.String()}
	p.Engine = newEngine(t, launcher.Server{Args: []string{program, config}, Dir: dir, User: launcher.PostgresUser, Ready: func() error {
		ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer stop()
		_, err := launcher.PSQL(ctx, p.URL, "SELECT 1")
		return err
	}})
	p.Start()
	p.Await()
	return p
}
