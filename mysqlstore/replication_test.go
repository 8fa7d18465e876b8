// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// durable are the settings of a server with replicas, and semiSync those of a primary that never goes on without one.
var (
	durable  = []string{"--log-bin=bin", "--sync-binlog=1", "--log-slave-updates", "--gtid-strict-mode"}
	semiSync = append([]string{
		"--rpl-semi-sync-slave-enabled=1", "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
	}, durable...)
)

const never = "--rpl-semi-sync-master-timeout=4294967295"

// pair is a primary with the table, and a replica that follows it through a relay.
type pair struct {
	primary, replica *enginetest.Engine
	config           *mysql.Config // of the primary, for a user who has what the policy grants
	relay            *enginetest.Relay
	one, two         *sql.DB // for root
}

func newPair(t *testing.T, settings ...string) *pair {
	t.Helper()
	p := &pair{}
	var root *mysql.Config
	p.primary, root = started(t, append([]string{"--server-id=1"}, settings...)...)
	p.replica = enginetest.StartMariaDB(t, append([]string{"--server-id=2", "--read-only=1"}, settings...)...)
	p.relay = enginetest.NewRelay(t, p.primary.Addr)
	p.one, p.two = newTable(t, root), newTable(t, parse(t, p.replica.URL))
	p.config = as(root, "app")
	mustExec(t, p.two, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%s, MASTER_USER='root', "+
		"MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1", p.relay.Addr[len("127.0.0.1:"):]))
	mustExec(t, p.two, "START SLAVE")
	mustExec(t, p.one, "CREATE USER app")
	text, _, err := connect(t, root, nil).Policy(t.Context(), driver.PolicyOptions{Role: "app"})
	if err != nil {
		t.Fatal(err)
	}
	for statement := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		mustExec(t, p.one, statement)
	}
	p.applied(t, "follows")
	mustExec(t, p.one, fmt.Sprint("SET GLOBAL rpl_semi_sync_master_enabled=", strings.Count(strings.Join(settings, " "), "slave-enabled")))
	return p
}

// applied waits until the replica has all of the primary.
func (p *pair) applied(t *testing.T, what string) {
	t.Helper()
	var want string
	if err := p.one.QueryRow("SELECT @@global.gtid_binlog_pos").Scan(&want); err != nil {
		t.Fatal(err)
	}
	p.has(t, what, want)
}

func (p *pair) has(t *testing.T, what, position string) {
	t.Helper()
	enginetest.Eventually(t, what, func(context.Context) error {
		var is string
		err := p.two.QueryRow("SELECT @@global.gtid_slave_pos").Scan(&is)
		if err == nil && is != position {
			err = fmt.Errorf("the replica has %s, not %s", is, position)
		}
		return err
	})
}

// refuses says that a store cannot be opened, and why.
func refuses(t *testing.T, c *mysql.Config, options *Options, permanent bool, why ...string) {
	t.Helper()
	s, err := Open(t.Context(), c, options)
	if err == nil {
		_ = s.Close()
		t.Errorf("a store is opened that is to be refused: %s", why)
		return
	}
	for _, piece := range why {
		if !strings.Contains(err.Error(), piece) {
			t.Errorf("a store is refused with %q, which lacks %q", err, piece)
		}
	}
	if !errors.Is(err, driver.ErrNotApplied) || errors.Is(err, driver.ErrPermanent) != permanent {
		t.Errorf("%v: not applied %t, permanent %t", err, errors.Is(err, driver.ErrNotApplied), errors.Is(err, driver.ErrPermanent))
	}
}

// TestSemiSync: what the replica has not got is not confirmed, a primary that goes on without is refused, and so is a
// replica that is promoted before it has applied what it has got.
func TestSemiSync(t *testing.T) {
	enginetest.MakeVerify(t)
	p := newPair(t, append(semiSync, never)...)
	find := func(pieces ...string) {
		t.Helper()
		enginetest.Findings(t, connect(t, p.config, nil).Diagnose(t.Context(), driver.Timing{}), pieces...)
	}
	s := mustOpen(t, p.config, nil)
	find("ok replication: semi-synchronous, and never without a replica; 1 connected")
	for setting, why := range map[string]string{
		"timeout=10000":           "confirms writes without a replica after 10s",
		"wait_no_slave=OFF":       "without a replica while none is connected",
		"wait_point=AFTER_COMMIT": "waits AFTER_COMMIT, so that others see what a failover loses",
	} {
		name, _, _ := strings.Cut(setting, "=")
		var was string
		if err := p.one.QueryRow("SELECT @@global.rpl_semi_sync_master_" + name).Scan(&was); err != nil {
			t.Fatal(err)
		}
		mustExec(t, p.one, "SET GLOBAL rpl_semi_sync_master_"+setting)
		refuses(t, p.config, nil, true, why)
		find("bad replication: semi-synchronous replication", why)
		mustExec(t, p.one, "SET GLOBAL rpl_semi_sync_master_"+name+"="+was)
	}
	root := as(p.config, "root")
	refuses(t, root, nil, true, "the user may write in spite of read_only")

	rec := enginetest.Claim(t, s, held("k"))
	p.applied(t, "has the claim")
	resume := p.relay.Hold()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := s.Swap(ctx, rec, next(rec, driver.Held))
	if err == nil || errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write that no replica has got: %v, want one of unknown outcome", err)
	}
	if is := enginetest.Get(t, s, "k"); is.Version != rec.Version {
		t.Errorf("others see %s, which no replica has got", is.Version)
	}
	resume()
	p.applied(t, "has the write")
	mustExec(t, p.one, "SET GLOBAL rpl_semi_sync_master_timeout=100")
	resume = p.relay.Hold()
	refuses(t, p.config, nil, true, "after 100ms")
	mustExec(t, p.one, "CREATE DATABASE other") // waits for 100 ms, and falls back
	mustExec(t, p.one, "SET GLOBAL rpl_semi_sync_master_timeout=4294967295")
	refuses(t, p.config, nil, true, "has given up waiting for a replica")
	find("bad replication: semi-synchronous replication has given up waiting for a replica")
	resume()
	p.applied(t, "is back")
	enginetest.Eventually(t, "synchronous again", func(context.Context) error {
		s, err := Open(t.Context(), p.config, nil)
		if err == nil {
			err = s.Close()
		}
		return err
	})
	find("warn replication: semi-synchronous, but since its start", "writes without a replica")

	// The replica gets everything, and applies nothing.
	mustExec(t, p.two, "STOP SLAVE SQL_THREAD")
	rec = enginetest.Get(t, s, "k")
	rec = enginetest.Swap(t, s, rec, next(rec, driver.Released))
	last := enginetest.Claim(t, s, held("k"))
	var position string
	if err := p.one.QueryRow("SELECT @@global.gtid_binlog_pos").Scan(&position); err != nil {
		t.Fatal(err)
	}
	p.primary.Kill() // both threads must not stop before the relay log is applied: MariaDB would discard it
	promoted := at(p.config, p.replica.Addr)
	refuses(t, at(root, p.replica.Addr), nil, false, "the server is read-only", "the server replicates from 127.0.0.1")
	mustExec(t, p.two, "SET GLOBAL read_only=0")
	refuses(t, at(root, p.replica.Addr), nil, false, "the server replicates from 127.0.0.1: name the primary; if this server was promoted")
	mustExec(t, p.two, "START SLAVE SQL_THREAD")
	p.has(t, "has applied its relay log", position)
	refuses(t, promoted, nil, false, "the server replicates from another server")
	mustExec(t, p.two, "STOP SLAVE")
	mustExec(t, p.two, "RESET SLAVE ALL")
	if is := enginetest.Get(t, mustOpen(t, promoted, nil), "k"); is.Token != last.Token || is.Version != last.Version {
		t.Errorf("the replica has %v, want %v, which was confirmed", is, last)
	}
}

// TestAsynchronous: a replica that may lack writes is refused, unless the program says that none is promoted.
func TestAsynchronous(t *testing.T) {
	enginetest.MakeVerify(t)
	p := newPair(t, durable...)
	root := as(p.config, "root")
	refuses(t, p.config, nil, true, "1 asynchronous reader of its binary log may lack confirmed writes", "promotion=never")
	_, err := connect(t, root, nil).Create(t.Context(), driver.CreateOptions{})
	if !errors.Is(err, driver.ErrUnfit) {
		t.Errorf("a table is created there: %v", err)
	}
	s := mustOpen(t, p.config, &Options{NoPromotion: true})
	enginetest.Findings(t, s.Diagnose(t.Context(), driver.Timing{}), "warn replication: 1 reader of the binary log, and this program says")

	// A store that was opened does not work on a replica.
	rec := enginetest.Claim(t, s, held("k"))
	p.applied(t, "has the claim")
	r := connect(t, at(p.config, p.replica.Addr), &Options{NoPromotion: true})
	if _, err := r.Get(t.Context(), "k", driver.Strong); err == nil || !strings.Contains(err.Error(), "the server is read-only") {
		t.Errorf("a replica answers a read: %v", err)
	}
	mustExec(t, p.one, "SET GLOBAL read_only=1")
	for what, call := range map[string]func() error{
		"get":  func() error { _, err := s.Get(t.Context(), "k", driver.Strong); return err },
		"none": func() error { _, err := s.Get(t.Context(), "none", driver.Strong); return err },
		"list": func() error { _, err := s.List(t.Context(), "", ""); return err },
		"swap": func() error { _, err := s.Swap(t.Context(), rec, next(rec, driver.Held)); return err },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "read-only") || errors.Is(err, driver.ErrPermanent) ||
			errors.Is(err, driver.ErrNotFound) {
			t.Errorf("%s on a server that has become read-only: %v", what, err)
		}
	}
	mustExec(t, p.one, "SET GLOBAL read_only=0")
	enginetest.Swap(t, s, rec, next(rec, driver.Held))
}
