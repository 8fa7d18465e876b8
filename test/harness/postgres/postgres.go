// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package postgres runs servers of PostgreSQL that lose what they have answered: a primary is cut off and goes on, and
// a standby, which lags, is promoted. What it does is for [must.Try].
package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/internal/enginetest/relay"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/wait"
)

// SenderTimeout is wal_sender_timeout of all servers.
const SenderTimeout = 2 * time.Second

// Servers are a primary and its standbys. They run as user postgres if this process is root, and listen on the loopback
// interface alone. They must be closed, and must not be used concurrently.
type Servers struct {
	members []*member
	primary int
	former  int      // the last primary
	resume  []func() // each ends the lag of a standby
	joined  int      // how many former primaries became standbys
}

// member is one of the servers.
type member struct {
	launcher.Server
	address string
	process *launcher.Process
	links   []*relay.Relay // through which it follows each of the others
}

// URL is that of the database at an address.
func URL(address string) string { return "postgres://tenure@" + address + "/postgres?sslmode=disable" }

// Start starts a primary and so many standbys, with their data in a folder that they have for themselves, and returns
// when all follow. The user of the servers must be able to come to the folder.
func Start(ctx context.Context, dir string, standbys int) *Servers {
	s := &Servers{}
	for i := range 1 + standbys {
		port := must.Have(launcher.Port())
		m := &member{address: fmt.Sprint("127.0.0.1:", port)}
		m.Server = must.Have(launcher.PostgreSQL(filepath.Join(dir, fmt.Sprint("m", i)), port, "fsync=on",
			"full_page_writes=on", "shared_buffers=32MB",
			fmt.Sprintf("wal_sender_timeout=%dms", SenderTimeout.Milliseconds()), "wal_retrieve_retry_interval=50ms"))
		m.empty()
		s.members = append(s.members, m)
	}
	for _, m := range s.members {
		for _, of := range s.members {
			m.links = append(m.links, must.Have(relay.New(of.address)))
		}
	}
	first := s.members[0]
	must.Do(launcher.InitPostgreSQL(first.Dir))
	conf := must.Have(os.OpenFile(filepath.Join(first.Dir, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0))
	// These are for pg_rewind, too, which starts the server by itself, without the settings of the command line.
	_, err := conf.WriteString("\nwal_log_hints = on\nwal_keep_size = 256MB\n")
	must.Do(errors.Join(err, conf.Close()))
	first.start(ctx)
	for i := range s.members[1:] {
		s.join(ctx, i+1, launcher.FollowPostgreSQL)
	}
	s.follow(ctx)
	return s
}

// Close ends all servers.
func (s *Servers) Close() {
	for _, m := range s.members {
		if m.process != nil {
			m.process.Kill()
		}
		for _, l := range m.links {
			l.Close()
		}
	}
}

// Primary is the address of the primary.
func (s *Servers) Primary() string { return s.members[s.primary].address }

// standbys are the servers but the primary.
func (s *Servers) standbys() (all []int) {
	for i := range s.members {
		if i != s.primary {
			all = append(all, i)
		}
	}
	return all
}

// Lag has nothing pass any more between the primary and its standbys, and none of them learns of it. Clients reach all.
// What is no standby still streams from the primary: a base backup.
func (s *Servers) Lag() {
	s.backUp()
	for _, i := range s.standbys() {
		s.resume = append(s.resume, s.members[i].links[s.primary].Hold())
	}
}

// backUp begins a base backup of the primary that takes longer than a loss, and ends when the primary rejoins.
func (s *Servers) backUp() {
	ctx, done := context.WithTimeout(context.Background(), wait.Bound)
	defer done()
	primary := s.members[s.primary]
	dir := must.Have(os.MkdirTemp(filepath.Dir(primary.Dir), "backup-"))
	must.Do(launcher.Own(dir))
	backup := must.Have(launcher.Server{Dir: dir, User: launcher.PostgresUser, Args: []string{
		must.Have(launcher.PostgresProgram("pg_basebackup")), "-d", URL(primary.address), "-D", filepath.Join(dir, "data"),
		"--wal-method=stream", "--checkpoint=fast", "--no-sync", "--max-rate=1M",
	}}.Start(dir + ".log"))
	s.resume = append(s.resume, func() {
		backup.Kill()
		must.Do(os.RemoveAll(dir))
	})
	const streams = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND application_name = 'pg_basebackup'"
	must.Do(wait.Until(ctx, "a base backup streams", func() bool { return primary.ask(ctx, streams) == "1" }))
}

// Promote promotes the standby that has received most, since the others can follow only that one, and has them do so.
// The former primary goes on, without a standby.
func (s *Servers) Promote(ctx context.Context) {
	next, most := -1, -1
	others := s.standbys()
	for _, i := range others {
		const received = "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'"
		if n := must.Have(strconv.Atoi(s.members[i].ask(ctx, received))); n > most {
			next, most = i, n
		}
	}
	s.former, s.primary = s.primary, next
	if is := s.members[next].ask(ctx, "SELECT pg_promote()"); is != "t" {
		must.Do(fmt.Errorf("the standby does not become the primary: %q", is))
	}
	for _, i := range others {
		if i != next {
			m := s.members[i]
			m.ask(ctx, "ALTER SYSTEM SET primary_conninfo = '"+URL(m.links[next].Address())+"'")
			m.ask(ctx, "SELECT pg_reload_conf()")
		}
	}
}

// End ends the former primary by SIGKILL.
func (s *Servers) End() { s.members[s.former].process.Kill() }

// Rejoin ends the former primary, and has it follow the new one. What it alone had is gone: in turns pg_rewind takes it
// back, and a new base backup replaces all.
func (s *Servers) Rejoin(ctx context.Context) {
	s.End()
	for _, resume := range s.resume {
		resume()
	}
	s.resume = nil
	as := launcher.RewindPostgreSQL
	if s.joined%2 == 1 {
		s.members[s.former].empty()
		as = launcher.FollowPostgreSQL
	}
	s.joined++
	s.join(ctx, s.former, as)
	s.follow(ctx)
}

// join starts a server as a standby of the primary, with data that come from there.
func (s *Servers) join(ctx context.Context, i int, as func(data, url, name string) error) {
	s.members[s.primary].ask(ctx, "CHECKPOINT") // or pg_rewind sees the timeline from before the promotion
	m := s.members[i]
	must.Do(as(m.Dir, URL(m.links[s.primary].Address()), filepath.Base(m.Dir)))
	m.start(ctx)
}

// follow returns when all follow the primary.
func (s *Servers) follow(ctx context.Context) {
	conn := must.Have(pgx.Connect(ctx, URL(s.Primary())))
	defer conn.Close(ctx) //nolint:errcheck // it was only asked
	must.Do(wait.Until(ctx, "all standbys follow", func() bool {
		var n int
		must.Do(conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").Scan(&n))
		return n == len(s.members)-1
	}))
}

// empty makes the folder of the data, or empties it.
func (m *member) empty() {
	must.Do(errors.Join(os.RemoveAll(m.Dir), os.Mkdir(m.Dir, 0o700), launcher.Own(m.Dir)))
}

func (m *member) start(ctx context.Context) { m.process = must.Have(m.Up(ctx, m.Dir+".log")) }

// ask runs a statement, and returns its value.
func (m *member) ask(ctx context.Context, statement string) string {
	return must.Have(launcher.PSQL(ctx, URL(m.address), statement))
}
