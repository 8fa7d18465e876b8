// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// patience bounds the wait for events that must come.
const patience = time.Minute

// beat is the next heartbeat of a record.
func beat(rec driver.Record) driver.Record {
	next := rec.Clone()
	fresh := held(rec.Key)
	next.Version, next.Beat = fresh.Version, fresh.Beat
	return next
}

func released(rec driver.Record) driver.Record {
	next := beat(rec)
	next.State, next.End, next.Session, next.Notify, next.Requests = driver.Released, driver.EndReleased, "", "", nil
	return next
}

// isConflict returns the current record of a conflict.
func isConflict(err error) (driver.Record, bool) {
	var conflict *driver.ConflictError
	if errors.As(err, &conflict) {
		return conflict.Current, true
	}
	return driver.Record{}, false
}

func TestRoundTrips(t *testing.T) {
	database := newDatabase(t, enginetest.PostgreSQL(t))
	relay := enginetest.NewRelay(t, hostOf(t, database))
	for _, mode := range []string{"cache_statement", "exec"} {
		t.Run(mode, func(t *testing.T) {
			s := mustOpen(t, with(t, with(t, through(t, database, relay.Addr), "default_query_exec_mode", mode), "pool_max_conns", "1"))
			other := mustOpen(t, database)
			ctx := t.Context()
			relay.Trips()
			costs := func(what string, want int, err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				s.tell.await()
				if n := relay.Trips(); n != want {
					t.Errorf("%s: %d round trips, want %d", what, n, want)
				}
			}
			name := "lock-" + mode
			rec, _, err := s.Claim(ctx, held(name))
			costs("claim of an absent lock, the first on its connection", 1, err)
			_, _, err = s.Claim(ctx, held(name))
			if is, ok := isConflict(err); !ok || is.Version != rec.Version {
				t.Errorf("claim of a held lock: %v", err)
			}
			costs("claim of a held lock", 1, nil)
			rec, err = s.Swap(ctx, rec, beat(rec))
			costs("heartbeat", 1, err)
			<-time.After(1500 * time.Millisecond) // pgxpool pings a connection that was idle for a second
			rec, err = s.Swap(ctx, rec, beat(rec))
			costs("heartbeat after a pause", 1, err)
			rec, err = s.Swap(ctx, rec, released(rec))
			costs("release, and the hint, for which nobody waits", 2, err)
			rec, _, err = s.Claim(ctx, held(name))
			costs("claim of a lock that was released here", 1, err)
			old := rec
			rec = enginetest.Swap(t, other, rec, beat(rec))
			_, err = s.Swap(ctx, old, beat(old))
			if is, ok := isConflict(err); !ok || is.Version != rec.Version {
				t.Errorf("heartbeat that conflicts: %v", err)
			}
			costs("heartbeat that conflicts", 2, nil)
			rec = enginetest.Swap(t, other, rec, released(rec))
			rec, _, err = s.Claim(ctx, held(name))
			costs("claim of a lock that was released elsewhere", 1, err)
			_, err = s.Get(ctx, name, driver.Strong)
			costs("strong look", 1, err)
			_, err = s.Get(ctx, name, driver.Eventual)
			costs("eventual look", 1, err)
			var keys []string
			for i := range 64 {
				keys = append(keys, fmt.Sprint("lock-", i))
			}
			_, err = s.GetBatch(ctx, keys, driver.Strong)
			costs("64 looks", 1, err)
			costs("delete, and the hint", 2, s.Delete(ctx, rec))
		})
	}
}

// TestCancelUnderSynchronousReplication: a commit that waits for a standby is not
// visible, however its caller ends.
func TestCancelUnderSynchronousReplication(t *testing.T) {
	server := enginetest.StartPostgreSQL(t)
	schema, err := Schema("")
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, server.URL, schema)
	// What the role has set does not matter.
	mustExec(t, server.URL, "ALTER ROLE tenure SET synchronous_commit = off")
	mustExec(t, server.URL, "ALTER ROLE tenure SET client_min_messages = error")
	relay := enginetest.NewRelay(t, server.Addr)
	s, other := mustOpen(t, through(t, server.URL, relay.Addr)), mustOpen(t, server.URL)
	rec := enginetest.Claim(t, s, held("held"))
	server.Configure("synchronous_standby_names", "nobody")
	unseen := func(what, key string) {
		t.Helper()
		for range 10 { // a cancel would come soon
			if got, err := other.Get(t.Context(), key, driver.Strong); !errors.Is(err, driver.ErrNotFound) {
				t.Fatalf("%s: %+v, %v: it is there, and on no standby", what, got, err)
			}
			<-time.After(50 * time.Millisecond)
		}
	}
	attempt := func(key string, s *Store) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := s.Claim(ctx, held(key))
		return err
	}
	unknown := func(what string, err error) {
		t.Helper()
		if _, is := isConflict(err); err == nil || is || errors.Is(err, driver.ErrNotApplied) {
			t.Errorf("%s: %v, want an unknown outcome", what, err)
		}
	}
	unknown("a claim that waits", attempt("context", s))
	unseen("after its context", "context")
	unknown("a claim that waits", attempt("cut", s))
	pool := connect(t, server.URL)     // which has not gone through Configure
	defer func() { go pool.Close() }() // it waits for the commit
	plain, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	unknown("a claim that waits", attempt("plain", plain))
	unseen("after its context, in a pool of the program's own", "plain")
	relay.Cut()
	unseen("after its connection was cut", "cut")
	closing := mustOpen(t, server.URL)
	unknown("a claim that waits", attempt("close", closing))
	if err := closing.Close(); err != nil {
		t.Error(err)
	}
	unseen("after its store was closed", "close")

	// A heartbeat waits as well: it must not count as written.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = other.Swap(ctx, rec, beat(rec))
	unknown("a heartbeat that waits", err)
	if got, err := other.Get(t.Context(), "held", driver.Strong); err != nil || got.Version != rec.Version {
		t.Errorf("the heartbeat is there, and on no standby: %+v, %v", got, err)
	}

	// An operator's cancel has the server answer as if all were well, with a warning.
	began := ask[time.Time](t, server.URL, "SELECT clock_timestamp()")
	answered := make(chan error, 1)
	go func() {
		_, _, err := other.Claim(t.Context(), held("operator"))
		answered <- err
	}()
	enginetest.Eventually(t, "a cancel", func(context.Context) error {
		if ask[bool](t, server.URL, "SELECT COALESCE(bool_or(pg_cancel_backend(pid)), false) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query_start > $1", began) {
			return nil
		}
		return errors.New("no commit waits")
	})
	err = <-answered
	unknown("a claim whose wait an operator has broken off", err)
	if !errors.Is(err, errUnconfirmed) {
		t.Errorf("%v, want %v", err, errUnconfirmed)
	}
	mustExec(t, server.URL, "ALTER SYSTEM RESET synchronous_standby_names")
	mustExec(t, server.URL, "SELECT pg_reload_conf()")
}

// TestPoolExhaustedByWaitingCommits: calls left behind keep their connections, so that no
// more of them pile up on the server than the pool has; and they serve again.
func TestPoolExhaustedByWaitingCommits(t *testing.T) {
	server := enginetest.StartPostgreSQL(t)
	schema, _ := Schema("")
	mustExec(t, server.URL, schema)
	s := mustOpen(t, with(t, server.URL, "pool_max_conns", "2"))
	server.Configure("synchronous_standby_names", "nobody")
	attempt := func(i int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, _, err := s.Claim(ctx, held(fmt.Sprint("lock-", i)))
		return err
	}
	for i := range 5 {
		err := attempt(i)
		if unsent := errors.Is(err, driver.ErrNotApplied); err == nil || unsent != (i >= 2) {
			t.Errorf("attempt %d: %v, not applied: %v", i, err, unsent)
		}
	}
	server.Configure("synchronous_standby_names", "")
	enginetest.Eventually(t, "the connections serve again", func(context.Context) error { return attempt(9) })
}

// TestPoolerOfTransactions runs the suite through PgBouncer, listening past it; and what
// happens without that.
func TestPoolerOfTransactions(t *testing.T) {
	server := enginetest.PostgreSQL(t)
	pooler := enginetest.StartPgBouncer(t, server, "default_pool_size=4")
	by := func(database string) string { return through(t, database, hostOf(t, pooler.URL)) }
	t.Run("suite", func(t *testing.T) {
		drivertest.Run(t, func(t *testing.T) drivertest.Harness {
			database := newDatabase(t, server)
			h := harness(t, database)
			h.Ops = 200
			h.Open = func(t *testing.T) driver.Store {
				return mustOpenWith(t, with(t, by(database), "default_query_exec_mode", "exec"), &Options{Listen: database})
			}
			return h
		})
	})
	database := newDatabase(t, server)
	t.Run("silent", func(t *testing.T) {
		s := mustOpen(t, with(t, by(database), "default_query_exec_mode", "exec"))
		for range 3 { // the later ones need not wait
			if _, err := s.Watch(t.Context(), "lock", func() {}); !errors.Is(err, errNoListen) {
				t.Errorf("%v, want %v", err, errNoListen)
			}
		}
	})
	t.Run("off", func(t *testing.T) {
		s := mustOpenWith(t, with(t, by(database), "default_query_exec_mode", "exec"), &Options{Listen: ListenOff})
		if _, err := s.Watch(t.Context(), "lock", func() {}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v", err)
		}
		enginetest.Claim(t, s, held("lock"))
	})
	t.Run("prepared", func(t *testing.T) {
		one := enginetest.StartPgBouncer(t, server, "default_pool_size=1")
		a, b := mustOpen(t, through(t, database, hostOf(t, one.URL))), mustOpen(t, through(t, database, hostOf(t, one.URL)))
		var failed error
		for range 3 {
			for _, s := range []*Store{a, b} {
				if _, err := s.Get(t.Context(), "lock", driver.Strong); err != nil && !errors.Is(err, driver.ErrNotFound) {
					failed = err
				}
			}
		}
		if failed == nil || !strings.Contains(failed.Error(), "default_query_exec_mode=exec") || errors.Is(failed, driver.ErrPermanent) {
			t.Errorf("%v: want what to do, and no permanent error", failed)
		}
	})
}

// TestTableChangesType has the type of a column change under statements that are prepared.
func TestTableChangesType(t *testing.T) {
	s := mustOpen(t, with(t, newDatabase(t, enginetest.PostgreSQL(t)), "pool_max_conns", "1"))
	rec := enginetest.Claim(t, s, held("lock"))
	if _, err := s.pool.Exec(t.Context(), "DROP VIEW tenure_records_view"); err != nil { // or the type could not change
		t.Fatal(err)
	}
	for _, kind := range []string{"varchar(300)", "text"} {
		rec = enginetest.Swap(t, s, rec, beat(rec))
		rec = enginetest.Swap(t, s, rec, beat(rec))
		if _, err := s.pool.Exec(t.Context(), "ALTER TABLE tenure_records ALTER COLUMN owner TYPE "+kind); err != nil {
			t.Fatal(err)
		}
		enginetest.Eventually(t, "a heartbeat after the change", func(ctx context.Context) error {
			next, err := s.Swap(ctx, rec, beat(rec))
			if err == nil {
				rec = next
			}
			return err
		})
	}
}

// TestOneTransactionAtATime watches what the store sends: nothing follows a transaction
// before its answer has come, which poolers rely on when a client disconnects.
func TestOneTransactionAtATime(t *testing.T) {
	config, err := pgxpool.ParseConfig(newDatabase(t, enginetest.PostgreSQL(t)))
	if err != nil {
		t.Fatal(err)
	}
	Configure(config)
	var syncs, early atomic.Int64
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		c := &syncCounter{Conn: conn, syncs: &syncs, early: &early}
		c.open.Store(1) // the server says that it is ready when a connection is established
		return c, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		rec := enginetest.Claim(t, s, held(fmt.Sprint("lock-", i%10)))
		rec = enginetest.Swap(t, s, rec, beat(rec))
		rec = enginetest.Swap(t, s, rec, released(rec))
		if i >= 10 {
			if err := s.Delete(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := syncs.Load(); n < 70 {
		t.Errorf("%d transactions were seen", n)
	}
	if n := early.Load(); n > 0 {
		t.Errorf("%d transactions followed another whose answer had not come", n)
	}
}

// syncCounter counts the sent ends of transactions, and those sent together with
// another one or before its answer has come.
type syncCounter struct {
	net.Conn
	syncs, early *atomic.Int64
	open         atomic.Int64
}

var (
	syncMessage  = []byte{'S', 0, 0, 0, 4}
	readyMessage = []byte{'Z', 0, 0, 0, 5}
)

func (c *syncCounter) Write(b []byte) (int, error) {
	for range bytes.Count(b, syncMessage) {
		c.syncs.Add(1)
		if c.open.Add(1) > 1 {
			c.early.Add(1)
		}
	}
	return c.Conn.Write(b)
}

func (c *syncCounter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.open.Add(-int64(bytes.Count(b[:n], readyMessage)))
	return n, err
}

// TestStandbyIsNotBelieved reads at a standby, and by a URL that names it first.
func TestStandbyIsNotBelieved(t *testing.T) {
	primary := enginetest.StartPostgreSQL(t)
	schema, _ := Schema("")
	mustExec(t, primary.URL, schema)
	s := mustOpen(t, primary.URL)
	rec := enginetest.Claim(t, s, held("lock"))
	standby := primary.Standby()
	if _, err := Open(t.Context(), standby.URL, nil); !errors.Is(err, errStandby) || !errors.Is(err, driver.ErrPermanent) {
		t.Errorf("open: %v, want %v", err, errStandby)
	}
	pool := connect(t, standby.URL)
	defer pool.Close()
	there, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := there.Get(t.Context(), "lock", driver.Strong); !errors.Is(err, errStandby) {
		t.Errorf("get: %v, want %v", err, errStandby)
	}
	if _, err := there.List(t.Context(), "", ""); !errors.Is(err, errStandby) {
		t.Errorf("list: %v, want %v", err, errStandby)
	}
	if _, err := there.List(t.Context(), "none begins so", ""); !errors.Is(err, errStandby) {
		t.Errorf("an empty list: %v, want %v", err, errStandby)
	}
	if _, err := there.GetBatch(t.Context(), []string{"lock", "none"}, driver.Strong); !errors.Is(err, errStandby) {
		t.Errorf("batch: %v, want %v", err, errStandby)
	}
	if _, err := there.Swap(t.Context(), rec, beat(rec)); !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), "name the primary") {
		t.Errorf("swap: %v", err)
	}
	both := mustOpenWith(t, through(t, primary.URL, standby.Addr+","+primary.Addr), &Options{AcceptStandbys: true})
	if _, err := both.Get(t.Context(), "lock", driver.Strong); err != nil {
		t.Error(err)
	}
	enginetest.Swap(t, both, rec, beat(rec))
}

// TestListenerIsCut: a hint comes when the listener is connected again, and later ones as
// before.
func TestListenerIsCut(t *testing.T) {
	database := newDatabase(t, enginetest.PostgreSQL(t))
	s, other := mustOpen(t, database), mustOpen(t, database)
	rec := enginetest.Claim(t, other, held("lock"))
	hints := make(chan struct{}, 100)
	stop, err := s.Watch(t.Context(), "lock", func() { hints <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string) {
		t.Helper()
		select {
		case <-hints:
		case <-time.After(patience):
			t.Fatalf("no hint of %s", what)
		}
	}
	for range 3 {
		mustExec(t, database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'")
		want("the interruption")
		enginetest.Swap(t, other, rec, released(rec))
		want("the release")
		rec = enginetest.Claim(t, other, held("lock"))
	}
	stop()
	for len(hints) > 0 {
		<-hints
	}
	rec = enginetest.Swap(t, other, rec, beat(rec)) // a heartbeat calls no hint, nor does a change after the end
	enginetest.Swap(t, other, rec, released(rec))
	<-time.After(200 * time.Millisecond)
	if len(hints) > 0 {
		t.Error("a hint after the end of the watch")
	}
}

func TestHeartbeatsWakeNobody(t *testing.T) {
	database := newDatabase(t, enginetest.PostgreSQL(t))
	s, other := mustOpen(t, database), mustOpen(t, database)
	rec := enginetest.Claim(t, other, held("lock"))
	hints := make(chan struct{}, 100)
	stop, err := s.Watch(t.Context(), "lock", func() { hints <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 10 {
		rec = enginetest.Swap(t, other, rec, beat(rec))
	}
	enginetest.Swap(t, other, rec, released(rec))
	<-hints
	<-time.After(100 * time.Millisecond)
	if n := len(hints); n > 0 {
		t.Errorf("%d more hints than of the release", n)
	}
}

// TestBrokenConnections: of many connections that break at once, only those with a
// statement under way give an unknown outcome, and one more is tried in vain.
func TestBrokenConnections(t *testing.T) {
	database := newDatabase(t, enginetest.PostgreSQL(t))
	s := mustOpen(t, database)
	rec := enginetest.Claim(t, s, held("lock"))
	s.open(t, 8)
	mustExec(t, database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	failed := 0
	for range 10 {
		next := beat(rec)
		now, err := s.Swap(t.Context(), rec, next)
		switch {
		case err == nil:
			rec = now
		case errors.Is(err, driver.ErrNotApplied), errors.Is(err, driver.ErrPermanent):
			t.Errorf("%v: want an unknown outcome", err)
		default:
			failed++
		}
	}
	if failed > 1 {
		t.Errorf("%d writes have failed, want one at most", failed)
	}
}

// open has the pool make n connections.
func (s *Store) open(t *testing.T, n int) {
	t.Helper()
	var all []*pgxpool.Conn
	for range n {
		c, err := s.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		c.Release()
	}
}

// TestSettingsOfTheRole: what a role, a database or a server has set must not change what
// is written and read.
func TestSettingsOfTheRole(t *testing.T) {
	server := enginetest.PostgreSQL(t)
	database := newDatabase(t, server)
	for name, value := range map[string]string{
		"DateStyle": "SQL, DMY", "TimeZone": "Asia/Kathmandu", "extra_float_digits": "-15", "bytea_output": "escape",
		"client_encoding": "LATIN1", "IntervalStyle": "sql_standard", "standard_conforming_strings": "off", "search_path": "public",
		"enable_indexscan": "off", "default_transaction_isolation": "repeatable read", "backslash_quote": "off", "lc_messages": "C",
		"client_min_messages": "error", "statement_timeout": "30s", "plan_cache_mode": "force_generic_plan",
	} {
		mustExec(t, database, "ALTER DATABASE "+nameOf(t, database)+" SET "+name+" = '"+strings.ReplaceAll(value, ", ", "', '")+"'")
	}
	s := mustOpen(t, database)
	rec := held("Grüße/\u2028")
	rec.Drift, rec.Since, rec.Data = 0.1+0.2, time.Date(1969, 7, 20, 20, 17, 40, 123456000, time.UTC), []byte{0, '\\', 0xff, '\''}
	rec.Owner, rec.Label, rec.Host = `a'b"c\d%s$1`, "日本", "\x7f\x01"
	rec.Requests = []driver.Request{{ID: "q", Kind: driver.StepDown, Token: driver.MaxToken, Reason: `"\u0041 \ '`, At: rec.Since}}
	rec = enginetest.Claim(t, s, rec)
	got, err := mustOpen(t, database).Get(t.Context(), rec.Key, driver.Strong)
	if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", rec) {
		t.Errorf("%+v, %v; want %+v", got, err, rec)
	}
	if rec.Drift != 0.1+0.2 || !rec.Since.Equal(time.Date(1969, 7, 20, 20, 17, 40, 123456000, time.UTC)) || rec.Requests[0].Token != driver.MaxToken {
		t.Errorf("%+v", rec)
	}
	enginetest.Swap(t, s, rec, beat(rec))
}

// TestHeartbeatsAreSmall: a heartbeat of a record with long data neither sends nor writes
// them, and touches no index.
func TestHeartbeatsAreSmall(t *testing.T) {
	database := newDatabase(t, enginetest.PostgreSQL(t))
	s := mustOpen(t, database)
	rec := held("lock")
	rec.Data = bytes.Repeat([]byte("0123456789abcdef"), driver.MaxDataLen/16)
	rec = enginetest.Claim(t, s, rec)
	const beats = 50
	wal := func() int64 { return ask[int64](t, database, "SELECT (pg_current_wal_lsn() - '0/0')::bigint") }
	before := wal()
	for range beats {
		rec = enginetest.Swap(t, s, rec, beat(rec))
	}
	if n := wal() - before; n > beats*16<<10 {
		t.Errorf("%d heartbeats have written %d bytes", beats, n)
	}
	if got, err := s.Get(t.Context(), "lock", driver.Strong); err != nil || !bytes.Equal(got.Data, rec.Data) {
		t.Errorf("the data are %d bytes, %v", len(got.Data), err)
	}
	enginetest.Eventually(t, "statistics", func(context.Context) error {
		all := ask[int64](t, database, "SELECT COALESCE(n_tup_upd, 0) FROM pg_stat_user_tables WHERE relname = 'tenure_records'")
		hot := ask[int64](t, database, "SELECT COALESCE(n_tup_hot_upd, 0) FROM pg_stat_user_tables WHERE relname = 'tenure_records'")
		if all < beats || hot < beats*9/10 {
			return fmt.Errorf("%d updates, %d of them hot", all, hot)
		}
		return nil
	})
	// A caller that has not read the record means what it says about the data.
	bare := driver.Record{Key: rec.Key, Version: rec.Version, Token: rec.Token}
	next := beat(rec)
	next.Data = nil
	enginetest.Swap(t, s, bare, next)
	if got, err := s.Get(t.Context(), "lock", driver.Strong); err != nil || len(got.Data) != 0 {
		t.Errorf("the data are %d bytes, %v; want none", len(got.Data), err)
	}
}

// TestRowChangesUnderTheStatement: a row that changes while a statement waits for it is
// judged, and reported, as it is when the statement gets the lock.
func TestRowChangesUnderTheStatement(t *testing.T) {
	database := newDatabase(t, enginetest.PostgreSQL(t))
	s := mustOpen(t, database)
	pool := connect(t, database)
	defer pool.Close()
	// under has do wait for a transaction that makes the change.
	under := func(change string, do func()) {
		t.Helper()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // after the commit
		if _, err := tx.Exec(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			do()
		}()
		enginetest.Eventually(t, "the statement waits", func(context.Context) error {
			if !ask[bool](t, database, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')") {
				return errors.New("none does")
			}
			return nil
		})
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-done
	}
	rec := enginetest.Claim(t, s, held("lock"))
	// The store that has released the lock claims the row that it remembers. Another store
	// sees the row in the claim itself, and must not return a row that was replaced
	// meanwhile.
	for _, by := range []*Store{mustOpen(t, database), s} {
		for _, tc := range []struct {
			change string
			want   func(free *driver.Record)
		}{
			{"version = 'other', owner = 'newer', data = 'newer'", func(free *driver.Record) {
				free.Version, free.Owner, free.Data = "other", "newer", []byte("newer")
			}},
			{"token = token + 1, data = 'newest'", func(free *driver.Record) {
				free.Token, free.Data = free.Token+1, []byte("newest")
			}},
		} {
			want := enginetest.Swap(t, s, rec, released(rec))
			tc.want(&want)
			under("UPDATE tenure_records SET "+tc.change, func() {
				now, prev, err := by.Claim(t.Context(), held("lock"))
				if err != nil || prev.Version != want.Version || prev.Owner != want.Owner || prev.Token != want.Token || !bytes.Equal(prev.Data, want.Data) {
					t.Errorf("claim of %q replaced %+v, %v", tc.change, prev, err)
				}
				if now.Token != want.Token+1 || now.Prev == nil || now.Prev.Owner != want.Owner || now.Prev.Token != want.Token || !bytes.Equal(now.Data, want.Data) {
					t.Errorf("claim of %q: %+v", tc.change, now)
				}
				rec = now
			})
		}
	}
	under("UPDATE tenure_records SET version = 'third'", func() {
		_, err := s.Swap(t.Context(), rec, beat(rec))
		if is, ok := isConflict(err); !ok || is.Version != "third" {
			t.Errorf("swap: %v, %+v", err, is)
		}
	})
	under("UPDATE tenure_records SET state = 'released', version = 'fourth'", func() {
		if err := s.Delete(t.Context(), driver.Record{Key: "lock", Version: "third", Token: rec.Token}); err == nil {
			t.Error("a delete of a version that is gone")
		}
	})
	under("DELETE FROM tenure_records", func() {
		now, prev, err := s.Claim(t.Context(), held("lock"))
		if err != nil || now.Token != 1 || prev.Key != "" || now.Prev != nil {
			t.Errorf("claim: %+v, %+v, %v", now, prev, err)
		}
	})
	under("INSERT INTO tenure_records SELECT 'new', 'theirs', 7, state, owner, record FROM tenure_records", func() {
		_, _, err := s.Claim(t.Context(), held("new"))
		if is, ok := isConflict(err); !ok || is.Version != "theirs" || is.Token != 7 {
			t.Errorf("claim of a key that appears: %v, %+v", err, is)
		}
	})
}
