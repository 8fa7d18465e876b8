// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"bytes"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestRequests counts the round trips of each operation on an open connection.
func TestRequests(t *testing.T) {
	config := newDatabase(t, shared(t))
	relay := enginetest.NewRelay(t, config.Addr)
	a, b := mustOpen(t, at(config, relay.Addr), &Options{MaxConns: 1}), mustOpen(t, config, nil)
	rec := held("k")
	conflict := func(err error) error {
		if c := (*driver.ConflictError)(nil); !errors.As(err, &c) {
			return fmt.Errorf("want a conflict, got %w", err)
		}
		return nil
	}
	swap := func(s *Store, state driver.State) (err error) {
		rec, err = s.Swap(t.Context(), rec, next(rec, state))
		return err
	}
	claim := func(s *Store, key string) (err error) {
		now, _, err := s.Claim(t.Context(), held(key))
		if err == nil {
			rec = now
		}
		return err
	}
	for _, step := range []struct {
		what     string
		elsewise func() error
		do       func() error
		want     int
	}{
		{"claim of an absent lock", nil, func() error { return claim(a, "k") }, 2},
		{"heartbeat", nil, func() error { return swap(a, driver.Held) }, 1},
		{"claim of a held lock", nil, func() error { return conflict(claim(a, "k")) }, 1},
		{"release", nil, func() error { return swap(a, driver.Released) }, 1},
		{"claim of a lock that this store has released", nil, func() error { return claim(a, "k") }, 1},
		{"claim of a lock that another has released", func() error { return swap(b, driver.Released) }, func() error { return claim(a, "k") }, 2},
		{"swap that meets another record", func() error { return swap(b, driver.Held) }, func() error {
			old := rec
			old.Version = "other"
			_, err := a.Swap(t.Context(), old, next(old, driver.Held))
			return conflict(err)
		}, 2},
		{"get", nil, func() error { _, err := a.Get(t.Context(), "k", driver.Strong); return err }, 1},
		{"batch", nil, func() error { _, err := a.GetBatch(t.Context(), []string{"k", "none", "k"}, driver.Strong); return err }, 1},
		{"list", nil, func() error { _, err := a.List(t.Context(), "", ""); return err }, 1},
		{"claim of a session", nil, func() error {
			next := held(driver.SessionKey("s"))
			next.State = driver.Alive
			_, _, err := a.Claim(t.Context(), next)
			return err
		}, 1},
		{"delete", nil, func() error { return a.Delete(t.Context(), rec) }, 1},
	} {
		if step.elsewise != nil {
			if err := step.elsewise(); err != nil {
				t.Fatal(err)
			}
		}
		relay.Trips()
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if n := relay.Trips(); n != step.want {
			t.Errorf("%s: %d requests, want %d", step.what, n, step.want)
		}
	}
}

// TestNames: names are bytes, without padding, case and accents.
func TestNames(t *testing.T) {
	s := mustOpen(t, newDatabase(t, shared(t)), nil)
	names := []string{"a", "a ", "A", "á", "a\u0301", "ａ", "a\\", "a'", "a%", "a_", "a?", strings.Repeat("ü", driver.MaxKeyLen/2), "🔒"}
	for _, name := range names {
		enginetest.Claim(t, s, held(name))
	}
	for _, name := range names {
		if is := enginetest.Get(t, s, name); is.Token != 1 || is.Key != name {
			t.Errorf("%q is %q under token %d", name, is.Key, is.Token)
		}
	}
	page, err := s.List(t.Context(), "a", "")
	if err != nil || len(page.Records) != 7 || page.Records[0].Key != "a" || page.Records[1].Key != "a " {
		t.Errorf("a list has %d records, %v", len(page.Records), err)
	}
}

// TestErrors: what is not certainly refused is unknown.
func TestErrors(t *testing.T) {
	s, err := Connect(parse(t, "mysql://u@127.0.0.1:1"), &Options{Table: "d.t"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for err, want := range map[error][3]bool{ // not applied, permanent, throttled
		&mysql.MySQLError{Number: 1213}:                                        {true},
		&mysql.MySQLError{Number: 1205}:                                        {true},
		&mysql.MySQLError{Number: 1290}:                                        {true},
		&mysql.MySQLError{Number: 1045}:                                        {true, true},
		&mysql.MySQLError{Number: 1146}:                                        {true, true},
		&mysql.MySQLError{Number: 1040}:                                        {true, false, true},
		&mysql.MySQLError{Number: 1053, Message: "shutdown"}:                   {},
		&mysql.MySQLError{Number: 1105, Message: "unknown"}:                    {},
		&mysql.MySQLError{Number: 1180, Message: "during commit"}:              {},
		&mysql.MySQLError{Number: 1317, Message: "killed"}:                     {},
		&mysql.MySQLError{Number: 1927, Message: "connection killed"}:          {},
		&mysql.MySQLError{Number: 3024, Message: "time"}:                       {},
		&mysql.MySQLError{Number: 3100, Message: "group"}:                      {},
		&mysql.MySQLError{Number: 3101, Message: "group"}:                      {},
		&mysql.MySQLError{Number: 9001, Message: "of a proxy"}:                 {},
		mysql.ErrInvalidConn:                                                   {},
		&net.OpError{Op: "read", Err: errors.New("reset")}:                     {},
		fmt.Errorf("a pool: %w", sqldriver.ErrBadConn):                         {true},
		fmt.Errorf("from a connection: %w", driver.NotApplied(errors.New(""))): {true},
	} {
		got := s.failed(t.Context(), err)
		is := [3]bool{errors.Is(got, driver.ErrNotApplied), errors.Is(got, driver.ErrPermanent), errors.Is(got, driver.ErrThrottled)}
		if is != want {
			t.Errorf("%v: not applied, permanent, throttled: %v, want %v", err, is, want)
		}
		if !errors.Is(got, err) {
			t.Errorf("%v hides %v", got, err)
		}
		if again := s.failed(t.Context(), got); again.Error() != got.Error() {
			t.Errorf("a connection's error %v becomes %v", got, again)
		}
	}
}

// TestRefused: what a server says, and what becomes of it.
func TestRefused(t *testing.T) {
	single := map[string]string{
		"version": "8.4.6", "read_only": "OFF", "innodb_read_only": "OFF", "innodb_flush_log_at_trx_commit": "1", "log_bin": "ON",
		"sync_binlog": "1", "max_allowed_packet": "67108864",
	}
	group := map[string]string{
		"group_replication_group_name": "g", "group_replication_single_primary_mode": "ON",
		"group_replication_consistency": "BEFORE_ON_PRIMARY_FAILOVER",
	}
	galera := map[string]string{
		"version": "11.4.2-MariaDB", "wsrep_on": "ON", "wsrep_sync_wait": "1", "wsrep_cluster_status": "Primary", "wsrep_ready": "ON",
	}
	semi := map[string]string{
		"rpl_semi_sync_source_enabled": "ON", "rpl_semi_sync_source_timeout": "4294967295", "rpl_semi_sync_source_wait_no_replica": "ON",
		"rpl_semi_sync_source_wait_for_replica_count": "1", "rpl_semi_sync_source_wait_point": "AFTER_SYNC",
		"rpl_semi_sync_source_status": "ON", "rpl_semi_sync_source_clients": "2",
	}
	for _, c := range []struct {
		base     map[string]string
		name, is string
		replicas int
		why      string // empty: it is not refused
	}{
		{why: ""},
		{name: "version", is: "5.7.44", why: "MySQL 5.7.44 is too old: the store needs 8.0"},
		{name: "version", is: "10.5.9-MariaDB", why: "MariaDB 10.5.9 is too old: the store needs 10.6"},
		{name: "version", is: "5.5.5-10.6.1-MariaDB"},
		{name: "version", is: "10.11.19-MariaDB-0+deb12u1"},
		{name: "version", is: "8.0.11-TiDB-v8.5.0", why: "the server is TiDB"},
		{name: "read_only", is: "ON", why: "the server is read-only"},
		{name: "read_only", is: "NO_LOCK", why: "the server is read-only"},
		{name: "innodb_read_only", is: "ON", why: "the server is read-only"},
		{name: "innodb_flush_log_at_trx_commit", is: "2", why: "innodb_flush_log_at_trx_commit is 2"},
		{name: "sync_binlog", is: "0", why: "sync_binlog is 0"},
		{name: "sync_binlog", is: "1000", why: "sync_binlog is 1000"},
		{name: "max_allowed_packet", is: "1048576", why: "max_allowed_packet is 1048576"},
		{replicas: 1, why: "1 asynchronous reader of its binary log"},
		{base: semi},
		{base: semi, replicas: 2},
		{base: semi, replicas: 3, why: "1 asynchronous reader of its binary log"},
		{base: semi, name: "rpl_semi_sync_source_timeout", is: "10000", why: "after 10s"},
		{base: semi, name: "rpl_semi_sync_source_wait_no_replica", is: "OFF", why: "while none is connected"},
		{base: semi, name: "rpl_semi_sync_source_wait_for_replica_count", is: "0", why: "waits for 0 replicas"},
		{base: semi, name: "rpl_semi_sync_source_wait_point", is: "AFTER_COMMIT", why: "AFTER_COMMIT"},
		{base: semi, name: "rpl_semi_sync_source_status", is: "OFF", why: "has given up"},
		{base: group},
		{base: group, replicas: 1, why: "1 asynchronous reader of its binary log"},
		{base: group, name: "group_replication_single_primary_mode", is: "OFF", why: "several primaries"},
		{base: group, name: "group_replication_consistency", is: "EVENTUAL", why: "group_replication_consistency is EVENTUAL"},
		{base: galera},
		{base: galera, name: "wsrep_sync_wait", is: "0", why: "wsrep_sync_wait is 0"},
		{base: galera, name: "wsrep_sync_wait", is: "6", why: "wsrep_sync_wait is 6"},
		{base: galera, name: "wsrep_cluster_status", is: "non-Primary", why: "the node of Galera is non-Primary"},
		{base: galera, name: "wsrep_ready", is: "OFF", why: "ready OFF"},
	} {
		is := maps.Clone(single)
		maps.Copy(is, c.base)
		if c.name != "" {
			is[c.name] = c.is
		}
		d := &server{is: is, maria: strings.Contains(is["version"], "MariaDB"), replicas: c.replicas}
		if strings.Contains(is["version"], "TiDB") {
			d.stranger = "TiDB"
		}
		switch err := d.refused(); {
		case err == nil && c.why != "":
			t.Errorf("%s=%s with %d replicas is not refused, want %q", c.name, c.is, c.replicas, c.why)
		case err != nil && (c.why == "" || !strings.Contains(err.Error(), c.why)):
			t.Errorf("%s=%s with %d replicas: %v, want %q", c.name, c.is, c.replicas, err, c.why)
		}
		if d.never = true; c.replicas > 0 && d.refused() != nil {
			t.Errorf("replicas that are never promoted: %v", d.refused())
		}
	}
	for grant, overrides := range map[string]bool{
		"GRANT ALL PRIVILEGES ON *.* TO `root`@`%`":      true,
		"GRANT SELECT, SUPER ON *.* TO `a`@`%`":          true,
		"GRANT READ ONLY ADMIN ON *.* TO `a`@`%`":        true,
		"GRANT CONNECTION_ADMIN ON *.* TO `a`@`%`":       true,
		"GRANT USAGE ON *.* TO `a`@`%`":                  false,
		"GRANT ALL PRIVILEGES ON `app`.* TO `app`@`%`":   false,
		"GRANT SELECT, INSERT ON `app`.`t` TO `app`@`%`": false,
	} {
		d := &server{is: semi, grants: grant}
		if got := len(d.failovers()) > 0; got != overrides {
			t.Errorf("%s: refused %t, want %t: %v", grant, got, overrides, d.failovers())
		}
	}
}

// TestTable: a table on which locks would be lost, or that is another one, is refused.
func TestTable(t *testing.T) {
	config := newDatabase(t, shared(t))
	db := newTable(t, config)
	for _, c := range []struct{ change, why string }{
		{"ALTER TABLE tenure_records MODIFY name varbinary(900) NOT NULL, ENGINE=MyISAM", "has the engine MyISAM"},
		{"ALTER TABLE tenure_records ENGINE=InnoDB, MODIFY name varchar(255) NOT NULL", `column name of table ` + config.DBName + `.tenure_records has the type "varchar"`},
		{"ALTER TABLE tenure_records MODIFY name varbinary(1088) NOT NULL, DROP COLUMN data", "column data"},
		{"ALTER TABLE tenure_records ADD COLUMN data mediumblob, DROP PRIMARY KEY, ADD PRIMARY KEY (name, token)", "is (name, token), not (name)"},
		{"DROP TABLE tenure_records", "tenure_records does not exist"},
	} {
		mustExec(t, db, c.change)
		refuses(t, config, nil, true, c.why)
	}
	for _, o := range []Options{
		{Table: "a.b.c"}, {Table: "a`b"}, {Table: strings.Repeat("t", 60)}, {Table: "-"}, {MaxConns: -1},
	} {
		if _, err := Connect(config, &o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	plain := config.Clone()
	plain.TLSConfig = "preferred"
	if _, err := Connect(plain, nil); err == nil || !strings.Contains(err.Error(), "tls=true") {
		t.Errorf("a connection that may do without encryption is taken: %v", err)
	}
	if _, err := Connect(parse(t, "mysql://u@h"), nil); err == nil || !strings.Contains(err.Error(), "no database is named") {
		t.Errorf("no database: %v", err)
	}
	s := connect(t, config, nil)
	for _, want := range []string{"was created", "exists already"} {
		did, err := s.Create(t.Context(), driver.CreateOptions{})
		if err != nil || !strings.Contains(did, want) {
			t.Errorf("create: %q, %v, want %q", did, err, want)
		}
	}
	enginetest.Claim(t, s, held("k"))
}

// TestView: people see a record in columns.
func TestView(t *testing.T) {
	config := newDatabase(t, shared(t))
	s := mustOpen(t, config, nil)
	rec := held("jobs/ü")
	rec.Host, rec.Owner, rec.Data = "web-7", "näme", []byte("progress 3")
	rec.Session = "s-1"
	enginetest.Claim(t, s, rec)
	var name, state, owner, host, lease, session, data string
	var token uint64
	row := newTable(t, config).QueryRow("SELECT name, state, owner, token, host, lease, session, data FROM tenure_records_view")
	if err := row.Scan(&name, &state, &owner, &token, &host, &lease, &session, &data); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(name, " ", state, " ", owner, " ", token, " ", host, " ", lease, " ", session, " ", data)
	if want := "jobs/ü resting näme 1 web-7 10s s-1 progress 3"; got != want {
		t.Errorf("the view shows %q, want %q", got, want)
	}
}

// TestLongest: the longest record that the library writes, from any client's packet size on.
func TestLongest(t *testing.T) {
	s := mustOpen(t, newDatabase(t, shared(t)), nil)
	rec := held(strings.Repeat("k", driver.MaxKeyLen))
	rec.Owner, rec.Host, rec.Label = strings.Repeat("'", driver.MaxOwnerLen), strings.Repeat("\\", driver.MaxOwnerLen), strings.Repeat("\"", driver.MaxOwnerLen)
	rec.Data = bytes.Repeat([]byte{0}, driver.MaxDataLen)
	for i := range driver.MaxRequests {
		rec.Requests = append(rec.Requests, driver.Request{
			ID: fmt.Sprint("r", i), Kind: driver.StepDown, By: rec.Owner, Reason: strings.Repeat("\"", driver.MaxReasonLen),
			To: rec.Owner, ToLabel: rec.Label,
		})
	}
	now := enginetest.Claim(t, s, rec)
	if is := enginetest.Get(t, s, rec.Key); !bytes.Equal(is.Data, rec.Data) || len(is.Requests) != driver.MaxRequests {
		t.Error("the longest record does not come back")
	}
	now = enginetest.Swap(t, s, now, next(now, driver.Held))
	now.Token = math.MaxUint64
	if err := s.Delete(t.Context(), now); err == nil {
		t.Error("a token that no row has is deleted")
	}
}

// TestAutocommit: no setting of the server leaves a transaction open.
func TestAutocommit(t *testing.T) {
	enginetest.MakeVerify(t)
	_, config := started(t, "--autocommit=0", "--init-connect=SET autocommit=0", "--completion-type=1", "--sql-mode=NO_BACKSLASH_ESCAPES,ANSI_QUOTES",
		"--transaction-isolation=SERIALIZABLE", "--character-set-server=latin1")
	rec := held(`a'b\`)
	rec.Owner = `ö'"\`
	enginetest.Claim(t, mustOpen(t, config, nil), rec)
	if is := enginetest.Get(t, mustOpen(t, config, nil), rec.Key); is.Owner != rec.Owner {
		t.Errorf("another sees the owner %q, want %q", is.Owner, rec.Owner)
	}
}

// TestRowLocked: a call ends with its context while another transaction keeps the row, and after 5 s without one.
func TestRowLocked(t *testing.T) {
	enginetest.MakeVerify(t)
	config := newDatabase(t, shared(t))
	s := mustOpen(t, config, nil)
	rec := enginetest.Claim(t, s, held("k"))
	tx := begin(t, config)
	if err := s.Guard(t.Context(), tx, "k", 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Swap(ctx, rec, next(rec, driver.Held)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("a heartbeat whose time is over: %v, want an unknown outcome", err)
	}
	_, err := s.Swap(t.Context(), rec, next(rec, driver.Held))
	if !errors.Is(err, driver.ErrNotApplied) || number(err) != 1205 {
		t.Errorf("a heartbeat that waited for a row: %v, want 1205, not applied", err)
	}
	if is := enginetest.Get(t, s, "k"); is.Version != rec.Version {
		t.Errorf("a write that was refused was applied: %s", is.Version)
	}
}

// TestBroken: a connection that the server has closed is not used, and costs no call.
func TestBroken(t *testing.T) {
	config := newDatabase(t, shared(t))
	relay := enginetest.NewRelay(t, config.Addr)
	s := mustOpen(t, at(config, relay.Addr), nil)
	rec := enginetest.Claim(t, s, held("k"))
	relay.Cut()
	enginetest.Eventually(t, "the end of connections", func(context.Context) error {
		if n := relay.Connections(); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	rec = enginetest.Swap(t, s, rec, next(rec, driver.Held))
	relay.LoseReply()
	_, err := s.Swap(t.Context(), rec, next(rec, driver.Held))
	if err == nil || errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("a write whose answer is lost: %v, want an unknown outcome", err)
	}
}

// TestGuard: a transaction commits under the token of the holder, or not at all.
func TestGuard(t *testing.T) {
	config := newDatabase(t, shared(t))
	s := mustOpen(t, config, nil)
	guard := func(lock string, token uint64) error {
		tx := begin(t, config)
		defer tx.Rollback()
		return s.Guard(t.Context(), tx, lock, token)
	}
	if err := guard("k", 1); !errors.Is(err, ErrUnknownToken) {
		t.Errorf("a lock without a record: %v", err)
	}
	rec := enginetest.Claim(t, s, held("k"))
	if err := guard("k", 1); err != nil {
		t.Errorf("the holder: %v", err)
	}
	if err := guard("k", 2); !errors.Is(err, ErrUnknownToken) {
		t.Errorf("a token that was not granted: %v", err)
	}
	resting := rec
	resting.Session = "s"
	rec = enginetest.Swap(t, s, rec, next(resting, driver.Held))
	if err := guard("k", 1); err != nil {
		t.Errorf("the holder under a session: %v", err)
	}

	// A takeover waits for the transaction, also for a transaction that read before.
	tx := begin(t, config)
	if err := s.Guard(t.Context(), tx, "k", 1); err != nil {
		t.Fatal(err)
	}
	over := rec
	over.Token, over.Owner, over.Session = 2, "other", ""
	old := begin(t, config)
	var n int
	if err := old.QueryRow("SELECT COUNT(*) FROM tenure_records").Scan(&n); err != nil { // its snapshot begins
		t.Fatal(err)
	}
	taken := make(chan error, 1)
	go func() {
		_, err := s.Swap(t.Context(), rec, next(over, driver.Held))
		taken <- err
	}()
	select {
	case err := <-taken:
		t.Fatalf("a takeover does not wait for the transaction: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	var stale *StaleError
	if err := s.Guard(t.Context(), old, "k", 1); !errors.As(err, &stale) || stale.Highest != 2 {
		t.Errorf("the former holder in an old snapshot: %v", err)
	}
	if err := old.Rollback(); err != nil {
		t.Error(err)
	}
	rec = enginetest.Get(t, s, "k")
	enginetest.Swap(t, s, rec, next(rec, driver.Released))
	if err := guard("k", 2); !errors.Is(err, ErrStale) {
		t.Errorf("after the release: %v", err)
	}
	mustExec(t, newTable(t, config), "UPDATE tenure_records SET token = 0")
	if err := guard("k", 2); !errors.Is(err, driver.ErrUnreadable) {
		t.Errorf("a row with token 0: %v", err)
	}
	s.galera.Store(true)
	if err := guard("k", 2); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("on Galera: %v", err)
	}
}

func begin(t *testing.T, config *mysql.Config) *sql.Tx {
	t.Helper()
	tx, err := newTable(t, config).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// killFor is how long TestKill has the server killed: 10m by hand, as docs/evidence says.
const killFor = "TENURE_TEST_KILL_FOR"

// TestKill kills a server under load and starts it again, several times. No write that it has confirmed is lost, and no
// token is given twice.
func TestKill(t *testing.T) {
	enginetest.MakeVerify(t)
	period := 6 * time.Second
	if text := os.Getenv(killFor); text != "" {
		var err error
		if period, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	server, config := started(t, durable...)
	ctx, cancel := context.WithTimeout(t.Context(), period)
	defer cancel()
	const locks = 16
	var mu sync.Mutex
	granted := map[string]string{} // by lock and token: the version of its claim
	pairs, unknown, kills := 0, 0, 0
	var working sync.WaitGroup
	for i := range locks {
		s := connect(t, config, &Options{MaxConns: 2})
		working.Go(func() {
			key := fmt.Sprint("lock-", i/2) // two for each lock
			for ctx.Err() == nil {
				call, done := context.WithTimeout(ctx, time.Second)
				now, _, err := s.Claim(call, held(key))
				if err == nil {
					mu.Lock()
					at := fmt.Sprint(key, " ", now.Token)
					if other := granted[at]; other != "" {
						t.Errorf("token %d of %s is granted twice: %s and %s", now.Token, key, other, now.Version)
					}
					granted[at] = now.Version
					pairs++
					mu.Unlock()
					for ctx.Err() == nil { // until it is certain
						call, done := context.WithTimeout(ctx, time.Second)
						_, err := s.Swap(call, now, next(now, driver.Released))
						done()
						if conflict := (*driver.ConflictError)(nil); err == nil || errors.As(err, &conflict) {
							if err != nil && (conflict.Absent || conflict.Current.Token < now.Token) {
								t.Errorf("%s under token %d is lost: %v", key, now.Token, err)
							}
							break
						}
					}
				} else if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) {
					mu.Lock()
					unknown++
					mu.Unlock()
					if is, err := s.Get(call, key, driver.Strong); err == nil && is.State == driver.Held && is.Owner == "o" {
						_, _ = s.Swap(call, is, next(is, driver.Released)) // of nobody, or of the other one
					}
				}
				done()
			}
		})
	}
	for ctx.Err() == nil {
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
		server.Kill()
		kills++
		server.Start()
		server.Await()
	}
	working.Wait()
	t.Logf("%d grants, %d calls without a certain answer, %d kills in %v", pairs, unknown, kills, period)
	if pairs == 0 {
		t.Error("no lock was granted")
	}
	s := mustOpen(t, config, nil)
	highest := map[string]uint64{}
	for at := range granted {
		var key string
		var token uint64
		_, _ = fmt.Sscan(at, &key, &token)
		highest[key] = max(highest[key], token)
	}
	for key, token := range highest {
		if is := enginetest.Get(t, s, key); is.Token < token {
			t.Errorf("%s has token %d, and %d was granted", key, is.Token, token)
		}
	}
}
