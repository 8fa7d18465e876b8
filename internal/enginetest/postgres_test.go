// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"bufio"
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// within runs a statement that may hang, for so long at most.
func within(t *testing.T, d time.Duration, url, statement string) (string, error) {
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	out, err := psqlTry(ctx, t, url, statement)
	return out, errors.Join(err, ctx.Err())
}

// TestDatabase: each is of its own.
func TestDatabase(t *testing.T) {
	server := PostgreSQL(t)
	one, two := Database(t, server), Database(t, server)
	for _, url := range []string{one, two} {
		psql(t, url, "CREATE TABLE mine ()")
	}
}

// TestPostgreSQLServer: a server that is stopped does not answer, and goes on where it was;
// one that is killed leaves no process, and what was committed is there after a restart.
func TestPostgreSQLServer(t *testing.T) {
	s := StartPostgreSQL(t, "fsync=on", "max_connections=17")
	if got := psql(t, s.URL, "SELECT current_setting('fsync') || current_setting('max_connections')"); got != "on17" {
		t.Errorf("the settings are %s", got)
	}
	psql(t, s.URL, "CREATE TABLE kept (n int)")
	psql(t, s.URL, "INSERT INTO kept VALUES (1)")

	s.Stop()
	if out, err := within(t, 300*time.Millisecond, s.URL, "SELECT 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that is stopped says %q, %v", out, err)
	}
	s.Continue()
	psql(t, s.URL, "INSERT INTO kept VALUES (2)")

	client := exec.CommandContext(t.Context(), postgresProgram(t, "psql"), "-qAtX", "-d", s.URL)
	stdin, err := client.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(stdout)
	if _, err := stdin.Write([]byte("BEGIN; INSERT INTO kept VALUES (3); SELECT 'open';\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := answers.ReadString('\n'); line != "open\n" {
		t.Fatalf("the open transaction says %q, %v", line, err)
	}
	if n := len(launcher.Processes(s.Data)); n < 5 {
		t.Errorf("%d processes are known", n)
	}
	s.Kill()
	if left := launcher.Processes(s.Data); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	_ = stdin.Close()
	_ = client.Wait() // it has lost its connection
	s.Restart()
	if got := psql(t, s.URL, "SELECT string_agg(n::text, ' ' ORDER BY n) FROM kept"); got != "1 2" {
		t.Errorf("after the death there is %q", got)
	}
	s.Restart()
	if got := psql(t, s.URL, "SELECT count(*) FROM kept"); got != "2" {
		t.Errorf("after a polite restart there is %q", got)
	}
}

// TestPostgreSQLStandby: a commit waits for the standby that it is configured to wait for,
// and is there when that one is promoted.
func TestPostgreSQLStandby(t *testing.T) {
	s := StartPostgreSQL(t)
	psql(t, s.URL, "CREATE TABLE kept (n int)")
	f := s.Standby()
	s.Configure("synchronous_standby_names", f.Name)
	psql(t, s.URL, "INSERT INTO kept VALUES (1)")
	if _, err := within(t, time.Minute, f.URL, "INSERT INTO kept VALUES (0)"); err == nil {
		t.Error("the standby writes")
	}
	f.Stop()
	if out, err := within(t, 300*time.Millisecond, s.URL, "INSERT INTO kept VALUES (2)"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without the standby a commit says %q, %v", out, err)
	}
	f.Continue()
	psql(t, s.URL, "INSERT INTO kept VALUES (3)")
	s.Kill()
	f.Promote()
	psql(t, f.URL, "INSERT INTO kept VALUES (4)")
	// The client of 2 gave up on its commit, which does not undo it.
	if got := psql(t, f.URL, "SELECT string_agg(n::text, ' ' ORDER BY n) FROM kept WHERE n <> 2"); got != "1 3 4" {
		t.Errorf("after the promotion there is %q", got)
	}
}

// TestPgBouncer: clients share one connection to the server while none is in a transaction.
func TestPgBouncer(t *testing.T) {
	server := PostgreSQL(t)
	p := StartPgBouncer(t, Database(t, server), "default_pool_size=1")
	client := exec.CommandContext(t.Context(), postgresProgram(t, "psql"), "-qAtX", "-d", p.URL)
	stdin, err := client.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdin.Write([]byte("SELECT pg_backend_pid();\n")); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	got, err := within(t, time.Minute, p.URL, "SELECT pg_backend_pid()")
	if err != nil || got+"\n" != line {
		t.Errorf("the clients are on connections %q and %q, %v", line, got, err)
	}
	_ = stdin.Close()
	if err := client.Wait(); err != nil {
		t.Error(err)
	}
}
