// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/test/bed/wait"
)

// postgres are servers of the system's package of PostgreSQL. They refuse to be root, and
// their data are where their user can come.
type postgres struct {
	data    string
	primary int
}

// newPostgres is a server, or a server and a synchronous standby: when that server is killed the
// standby is promoted, and a new standby of it takes the place of the other.
func newPostgres(dir string, members int) (server, error) {
	p, s := &postgres{}, server{name: "postgres", members: members, url: postgresURL}
	_, err := launcher.PostgresProgram("postgres")
	if err != nil || dir == "" {
		return s, err
	}
	if p.data, err = os.MkdirTemp("", "tenure-chaos-postgres-"); err != nil {
		return s, err
	}
	s.remove = func() error { return os.RemoveAll(p.data) }
	s.launch = func(member int, ports []int) (launcher.Server, error) {
		return launcher.PostgreSQL(p.folder(member), ports[member], "fsync=on", "full_page_writes=on",
			"log_min_messages=panic")
	}
	s.prepare = func(ctx context.Context, member int, ports []int) error {
		if member == p.primary {
			return p.initialize(member)
		}
		return p.follow(member, ports[p.primary])
	}
	s.begin = func(ctx context.Context, addresses []string) error {
		conn, err := pgx.Connect(ctx, postgresURL(addresses[:1]))
		if err != nil {
			return err
		}
		err = errors.Join(pgstore.CreateTable(ctx, conn, ""), conn.Close(context.WithoutCancel(ctx)))
		if err == nil && members > 1 {
			err = p.waitFor(ctx, 1, addresses[0])
		}
		return err
	}
	s.leads = func(_ context.Context, member int, _ string) bool { return member == p.primary }
	if members > 1 {
		s.replace = p.replace
	}
	if err := launcher.Own(p.data); err != nil {
		return s, errors.Join(err, s.remove())
	}
	return s, nil
}

// replace promotes the standby, and makes the server that was killed a standby of it.
func (p *postgres) replace(ctx context.Context, s *served, killed int) error {
	p.primary = 1 - killed
	address := s.members[p.primary].address()
	if is, err := p.ask(ctx, address, "SELECT pg_promote()"); err != nil || is != "t" {
		return errors.Join(fmt.Errorf("the standby does not become the primary: %q", is), err)
	}
	return errors.Join(p.follow(killed, s.members[p.primary].port), s.start(ctx, s.members[killed]),
		p.waitFor(ctx, killed, address))
}

func (p *postgres) folder(member int) string { return filepath.Join(p.data, memberName(member)) }

func memberName(member int) string { return fmt.Sprint("m", member) }

func (p *postgres) initialize(member int) error {
	folder := p.folder(member)
	if err := errors.Join(os.Mkdir(folder, 0o700), launcher.Own(folder)); err != nil {
		return err
	}
	return launcher.InitPostgreSQL(folder)
}

// follow makes the data of a standby of the server at a port. What that one waits for is
// not the standby's to wait for once it is promoted.
func (p *postgres) follow(member, port int) error {
	folder := p.folder(member)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	program, err := launcher.PostgresProgram("pg_basebackup")
	if err != nil {
		return err
	}
	if err := (launcher.Server{Dir: p.data, User: launcher.PostgresUser, Args: []string{
		program, "-d", fmt.Sprintf("host=127.0.0.1 port=%d user=tenure application_name=%s", port,
			memberName(member)),
		"-D", folder, "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync",
	}}).Run(); err != nil {
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
	for _, statement := range []string{
		"ALTER SYSTEM SET synchronous_standby_names = '" + memberName(standby) + "'", "SELECT pg_reload_conf()",
	} {
		if _, err := p.ask(ctx, primary, statement); err != nil {
			return err
		}
	}
	var is string
	var err error
	if !wait.Within(ctx, startPatience, func() bool {
		is, err = p.ask(ctx, primary, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')")
		return is == "t"
	}) {
		return errors.Join(errors.New("the standby is not synchronous"), err)
	}
	return nil
}

// ask runs a statement, and returns its value.
func (p *postgres) ask(ctx context.Context, address, statement string) (string, error) {
	return launcher.PSQL(ctx, postgresURL([]string{address}), statement)
}

func postgresURL(addresses []string) string {
	return "postgres://tenure@" + strings.Join(addresses, ",") + "/postgres?sslmode=disable"
}
