// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/pgstore"
)

// postgres are servers of the system's package of PostgreSQL. They refuse to be root, and
// their data are where their user can come.
type postgres struct {
	programs string // their folder
	data     string
	primary  int
}

// openPostgres makes a place for the data, unless dir is empty.
func openPostgres(dir string) (*postgres, server, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(found) == 0 {
		return nil, server{name: "postgres"}, errors.Join(err, errors.New("postgres is not installed: run scripts/setup"))
	}
	program := found[len(found)-1]
	p := &postgres{programs: filepath.Dir(program)}
	s := server{name: "postgres", program: program, versionFlag: "--version", ready: p.ready, url: postgresURL}
	if dir == "" {
		return p, s, nil
	}
	if p.data, err = os.MkdirTemp("", "tenure-chaos-postgres-"); err != nil {
		return nil, s, err
	}
	s.remove = func() error { return os.RemoveAll(p.data) }
	s.begin = func(ctx context.Context, addresses []string) error {
		return p.do(ctx, addresses[p.primary], func(conn *pgx.Conn) error { return pgstore.CreateTable(ctx, conn, "") })
	}
	s.command = func(member int, ports []int) []string {
		return p.as("postgres", "-D", p.folder(member), "-p", fmt.Sprint(ports[member]),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "log_min_messages=panic")
	}
	if os.Geteuid() != 0 {
		return p, s, nil
	}
	own, err := user.Lookup("postgres")
	if err != nil {
		return nil, s, errors.Join(err, s.remove())
	}
	uid, uidErr := strconv.Atoi(own.Uid)
	gid, gidErr := strconv.Atoi(own.Gid)
	if err := errors.Join(uidErr, gidErr, os.Chown(p.data, uid, gid)); err != nil {
		return nil, s, errors.Join(err, s.remove())
	}
	return p, s, nil
}

// newPostgres is one server of PostgreSQL.
func newPostgres(dir string) (server, error) {
	p, s, err := openPostgres(dir)
	if err == nil {
		s.prepare = func(ctx context.Context, member int, _ []int) error { return p.initialize(ctx, member) }
	}
	return s, err
}

// newPostgresStandby is a server and a synchronous standby. When the server is killed the
// standby is promoted, and a new standby of it takes the place of the other.
func newPostgresStandby(dir string) (server, error) {
	p, s, err := openPostgres(dir)
	if err != nil {
		return s, err
	}
	s.members = 2
	s.prepare = func(ctx context.Context, member int, ports []int) error {
		if member == p.primary {
			return p.initialize(ctx, member)
		}
		return p.follow(ctx, member, ports[p.primary])
	}
	begin := s.begin
	s.begin = func(ctx context.Context, addresses []string) error {
		return errors.Join(begin(ctx, addresses), p.waitFor(ctx, 1-p.primary, addresses[p.primary]))
	}
	s.leads = func(_ context.Context, member int, _ string) bool { return member == p.primary }
	s.replace = func(ctx context.Context, s *served, killed int) error {
		p.primary = 1 - killed
		address := s.members[p.primary].address()
		if err := p.do(ctx, address, func(conn *pgx.Conn) error {
			var promoted bool
			err := conn.QueryRow(ctx, "SELECT pg_promote()").Scan(&promoted)
			if err == nil && !promoted {
				err = errors.New("the standby does not become the primary")
			}
			return err
		}); err != nil {
			return err
		}
		return errors.Join(p.follow(ctx, killed, s.members[p.primary].port), s.start(ctx, s.members[killed]), p.waitFor(ctx, killed, address))
	}
	return s, nil
}

func (p *postgres) folder(member int) string { return filepath.Join(p.data, memberName(member)) }

func memberName(member int) string { return fmt.Sprint("m", member) }

// as returns the command that runs a program as the user of the data.
func (p *postgres) as(program string, args ...string) []string {
	args = append([]string{filepath.Join(p.programs, program)}, args...)
	if os.Geteuid() != 0 {
		return args
	}
	return append([]string{"env", "--chdir=" + p.data, "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}, args...)
}

func (p *postgres) run(ctx context.Context, program string, args ...string) error {
	args = p.as(program, args...)
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return nil
}

func (p *postgres) initialize(ctx context.Context, member int) error {
	return p.run(ctx, "initdb", "-D", p.folder(member), "-A", "trust", "-U", "tenure", "--no-locale", "-E", "UTF8", "--no-sync")
}

// follow makes the data of a standby of the server at a port. What that one waits for is
// not the standby's to wait for once it is promoted.
func (p *postgres) follow(ctx context.Context, member, port int) error {
	folder := p.folder(member)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	err := p.run(ctx, "pg_basebackup", "-d", fmt.Sprintf("host=127.0.0.1 port=%d user=tenure application_name=%s", port, memberName(member)),
		"-D", folder, "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	if err != nil {
		return err
	}
	file := filepath.Join(folder, "postgresql.auto.conf")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var kept []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "synchronous_standby_names") {
			kept = append(kept, line)
		}
	}
	return os.WriteFile(file, []byte(strings.Join(kept, "")), 0o600)
}

// waitFor has every write of the primary wait for a standby, and returns when it does.
func (p *postgres) waitFor(ctx context.Context, standby int, primary string) error {
	return p.do(ctx, primary, func(conn *pgx.Conn) error {
		for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '" + memberName(standby) + "'", "SELECT pg_reload_conf()"} {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return err
			}
		}
		var last error
		if !wait.Within(ctx, startPatience, func() bool {
			var is bool
			last = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')").Scan(&is)
			return is
		}) {
			return errors.Join(errors.New("the standby is not synchronous"), last)
		}
		return nil
	})
}

func (p *postgres) ready(ctx context.Context, _ int, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return p.do(ctx, address, func(*pgx.Conn) error { return nil })
}

// do does something on a connection of its own.
func (p *postgres) do(ctx context.Context, address string, what func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, postgresURL([]string{address}))
	if err != nil {
		return err
	}
	return errors.Join(what(conn), conn.Close(context.WithoutCancel(ctx)))
}

func postgresURL(addresses []string) string {
	return "postgres://tenure@" + strings.Join(addresses, ",") + "/postgres?sslmode=disable"
}
