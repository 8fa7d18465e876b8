// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

var byWatchdog = &Guarded{Watchdog: true}

// TestConformanceOfGuarded: the tables go back to what they were, and the server is started again.
func TestConformanceOfGuarded(t *testing.T) {
	server := enginetest.StartPostgreSQL(t, "max_connections=300", "fsync=on")
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		database := enginetest.Database(t, server.URL)
		created(t, database, byWatchdog)
		h := harness(t, database)
		h.Ops = 400
		relay := enginetest.NewRelay(t, hostOf(t, database))
		var open []*Store
		h.Open = func(t *testing.T) driver.Store {
			s := mustOpenWith(t, through(t, database, relay.Addr), &Options{Guarded: byWatchdog})
			open = append(open, s)
			return s
		}
		h.Hang = func(*testing.T) func() { return relay.Hold() }
		h.Plant = func(t *testing.T, rec driver.Record) { plantGuarded(t, database, rec) }
		h.PlantUnreadable = func(t *testing.T, key string) {
			plantGuarded(t, database, held(key))
			mustExec(t, database, "UPDATE tenure_records SET record = '{' WHERE name = $1", key)
		}
		h.Lose = func(t *testing.T) func() {
			mustExec(t, database, "DROP TABLE IF EXISTS earlier, earlier_life; CREATE TABLE earlier AS TABLE tenure_records; "+
				"CREATE TABLE earlier_life AS TABLE tenure_records_life")
			return func() {
				mustExec(t, database, "BEGIN; TRUNCATE tenure_records, tenure_records_life; INSERT INTO tenure_records SELECT * FROM earlier; "+
					"INSERT INTO tenure_records_life SELECT * FROM earlier_life; COMMIT")
				server.Restart()
				for _, s := range open { // its connections have ended with the server
					s.pool.Reset()
				}
			}
		}
		return h
	})
}

// created creates a guarded table.
func created(t testing.TB, database string, g *Guarded) {
	t.Helper()
	text, err := g.Schema("")
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, database, text)
}

// plantGuarded writes a record as it is; a session's is of the life of the server.
func plantGuarded(t testing.TB, database string, rec driver.Record) {
	t.Helper()
	mustExec(t, database, "DELETE FROM tenure_records WHERE name = $1", rec.Key)
	mustExec(t, database, "INSERT INTO tenure_records VALUES ($1, $2, $3, $4, $5, $6, $7, "+lifeNow+")", valuesOf(rec)...)
}

// small are options of a guard whose times are short.
var small = Guarded{Standbys: 2, Need: 1, SenderTimeout: time.Second, Lease: 2 * time.Second}

// cluster starts a primary and two standbys, which follow it through relays.
func cluster(t *testing.T) (primary *enginetest.PostgreSQLServer, standbys []*enginetest.PostgreSQLServer, relays []*enginetest.Relay) {
	return clusterOf(t, small)
}

// clusterOf is cluster with the sender timeout of a guard.
func clusterOf(t *testing.T, g Guarded) (primary *enginetest.PostgreSQLServer, standbys []*enginetest.PostgreSQLServer, relays []*enginetest.Relay) {
	primary = enginetest.StartPostgreSQL(t, "fsync=on", "wal_log_hints=on", "full_page_writes=on",
		"wal_sender_timeout="+g.SenderTimeout.String())
	for range 2 {
		r := enginetest.NewRelay(t, primary.Addr)
		relays = append(relays, r)
		standbys = append(standbys, primary.StandbyThrough(r.Addr))
	}
	return primary, standbys, relays
}

// TestFailoverThatLosesTheTail: a primary is cut off from its standbys, and goes on for a while. Then it refuses each
// write. The standby that was promoted grants nothing before it has been seen for Waits, and then higher tokens.
func TestFailoverThatLosesTheTail(t *testing.T) {
	primary, standbys, relays := cluster(t)
	created(t, primary.URL, &small)
	options := Options{Guarded: &small}
	old := mustOpenWith(t, primary.URL, &options)
	short := func(rec driver.Record) driver.Record {
		rec.Lease = small.Lease
		return rec
	}
	kept := enginetest.Claim(t, old, short(held("kept")))
	open := short(held(driver.SessionKey("s")))
	open.State = driver.Alive
	session := enginetest.Claim(t, old, open)
	free := enginetest.Claim(t, old, short(held("free")))
	replayed(t, primary, standbys...)

	resume := []func(){relays[0].Hold(), relays[1].Hold()}
	lost := enginetest.Claim(t, old, short(held("lost")))
	newer := enginetest.Swap(t, old, kept, beat(kept))
	_ = enginetest.Swap(t, old, free, released(free))
	enginetest.Eventually(t, "the old primary stops", func(ctx context.Context) error {
		next, err := old.Swap(ctx, lost, beat(lost))
		if err == nil {
			lost = next
			return errors.New("a write was answered")
		}
		return mentions(err, "0 standbys are connected, 0 have answered within 1s, and writes need 1 to 2")
	})
	for what, write := range map[string]func() error{
		"claim": func() error { _, _, err := old.Claim(t.Context(), short(held("another"))); return err },
		"swap":  func() error { _, err := old.Swap(t.Context(), newer, beat(newer)); return err },
		"raise": func() error {
			r := released(newer)
			r.Token += 9
			_, err := old.Raise(t.Context(), newer, r)
			return err
		},
		"delete": func() error { return old.Delete(t.Context(), newer) },
	} {
		if err := write(); !errors.Is(err, driver.ErrNotApplied) || mentions(err, "writes need 1 to 2") != nil {
			t.Errorf("%s on the old primary: %v", what, err)
		}
	}

	gone := enginetest.Swap(t, old, lost, released(lost)) // which grants nothing
	if _, _, err := old.Claim(t.Context(), short(held(gone.Key))); mentions(err, "writes need 1 to 2") != nil {
		t.Errorf("claim of what the old primary has released: %v", err)
	}

	standbys[0].Promote()
	now := mustOpenWith(t, standbys[0].URL, &options)
	early := short(held("early")) // it may not open the life: the primary has no standby yet
	early.Opens = driver.OpeningOf(ask[string](t, standbys[0].URL, "SELECT "+lifeNow), time.Now())
	if _, _, err := now.Claim(t.Context(), early); mentions(err, "0 standbys are connected") != nil {
		t.Errorf("claim without a standby: %v", err)
	}
	relays[1].Aim(standbys[0].Addr)
	resume[1]()
	var life string
	enginetest.Eventually(t, "the new primary has its standby", func(ctx context.Context) error {
		_, err := now.Swap(ctx, lost, beat(lost))
		var conflict *driver.ConflictError
		if !errors.As(err, &conflict) {
			return err
		}
		life = conflict.Current.Life
		if shown := driver.InClosedLife(driver.Record{}, "lost", life, now.Waits()); conflict.Current.Version != shown.Version {
			t.Errorf("a heartbeat of what was lost: %v", err)
		}
		return nil
	})
	if life == kept.Life || life == "" {
		t.Fatalf("the life is %q, and was %q", life, kept.Life)
	}
	for _, key := range []string{"lost", "never"} {
		if _, _, err := now.Claim(t.Context(), short(held(key))); mentions(err, "reserved") != nil {
			t.Errorf("claim of %q in a closed life: %v", key, err)
		}
	}
	// The holder whose last heartbeat was lost goes on from the one before: its own beats name no life.
	own := kept
	own.Life = ""
	kept = enginetest.Swap(t, now, own, beat(kept))
	own = session
	own.Life = ""
	if _, err := now.Swap(t.Context(), own, beat(session)); mentions(err, "closed") != nil {
		t.Errorf("heartbeat of a session: %v", err)
	}
	if _, err := now.Swap(t.Context(), free, released(free)); err == nil {
		t.Error("a write that names the former life was carried out")
	}

	// By the wrong life nothing opens; by the right one everything does, with the token raised.
	next := short(held("lost"))
	next.Opens = driver.OpeningOf(kept.Life+"0", time.Now())
	other := mustOpenWith(t, standbys[0].URL, &options)
	if _, _, err := other.Claim(t.Context(), next); mentions(err, "reserved") != nil {
		t.Errorf("claim that opens another life: %v", err)
	}
	next.Opens = driver.OpeningOf(life, time.Now())
	_, _, err := now.Claim(t.Context(), next)
	var conflict *driver.ConflictError
	if !errors.As(err, &conflict) || conflict.Current.End != driver.EndRaised || conflict.Current.Token <= lost.Token {
		t.Fatalf("claim that opens: %v", err)
	}
	again, _, err := now.Claim(t.Context(), short(held("lost")))
	if err != nil || again.Token <= conflict.Current.Token {
		t.Fatalf("claim after the raise: %v, %v", again, err)
	}
	if shown := enginetest.Get(t, other, "lost"); shown.Token != again.Token || shown.Life != life {
		t.Errorf("another store sees %v", shown)
	}
	_ = enginetest.Swap(t, now, kept, beat(kept))
}

// TestServerThatStoodStill: writes that wait at a server while it stands still, and another is promoted, are refused when
// it goes on, though its senders have not noticed yet that a standby is gone. The other standby has not left it, and
// answers at once: where half of them suffice it must have left, see [Guarded].
func TestServerThatStoodStill(t *testing.T) {
	primary, standbys, _ := cluster(t)
	all := small
	all.Need = 0
	created(t, primary.URL, &all)
	const writes = 8
	var stores []*Store
	for range writes {
		s := mustOpenWith(t, with(t, primary.URL, "pool_max_conns", "1"), &Options{Guarded: &all, Listen: ListenOff})
		enginetest.Claim(t, s, shortly())
		stores = append(stores, s)
	}
	replayed(t, primary, standbys...)
	primary.Stop()
	answers := make(chan error, writes)
	for _, s := range stores {
		go func() {
			_, _, err := s.Claim(t.Context(), shortly())
			answers <- err
		}()
	}
	standbys[0].Promote()
	time.Sleep(small.SenderTimeout + senderSlack)
	primary.Continue()
	for range writes {
		if err := <-answers; mentions(err, "writes need exactly 2") != nil {
			t.Errorf("a write that had waited: %v", err)
		}
	}
}

// TestStandbyThatLeavesLate: the standby that is not promoted leaves the old primary as late as it may, and the network
// hides that from the old primary. It goes on for no longer than contenders wait.
func TestStandbyThatLeavesLate(t *testing.T) {
	enginetest.MakeVerify(t)
	g := small
	g.SenderTimeout = 4 * time.Second
	primary, standbys, relays := clusterOf(t, g)
	created(t, primary.URL, &g)
	s := mustOpenWith(t, primary.URL, &Options{Guarded: &g, Listen: ListenOff})
	enginetest.Claim(t, s, shortly())
	replayed(t, primary, standbys...)
	defer relays[0].Hold()()
	standbys[0].Promote()
	promoted := time.Now()
	var last time.Duration // of a write after the promotion
	for leaves := g.SenderTimeout; last == 0 || time.Since(promoted) < last+2*time.Second; {
		if leaves > 0 && time.Since(promoted) > leaves {
			defer relays[1].Hold()()
			leaves = 0
		}
		if _, _, err := s.Claim(t.Context(), shortly()); err == nil {
			last = time.Since(promoted)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if most := s.Waits() - g.Lease; last > most {
		t.Errorf("the old primary took a write %v after the promotion, and contenders wait for %v", last, most)
	}
	t.Logf("the last write was %v after the promotion", last)
}

// shortly is a lock that nobody has claimed.
func shortly() driver.Record {
	rec := held("lock-" + strings.ToLower(rand.Text()))
	rec.Lease = small.Lease
	return rec
}

// TestLives: a promotion, a start, a standby that never followed, and a server that went back have a life of their own.
func TestLives(t *testing.T) {
	primary, standbys, relays := cluster(t)
	created(t, primary.URL, &small)
	of := func(s *enginetest.PostgreSQLServer) string { return ask[string](t, s.URL, "SELECT "+lifeNow) }
	seen := map[string]string{}
	begins := func(what string, s *enginetest.PostgreSQLServer) {
		t.Helper()
		life := of(s)
		if before, is := seen[life]; is || strings.Trim(life, "0123456789ABCDEF-") != "" {
			t.Errorf("%s: life %q, which was that of %q", what, life, before)
		}
		seen[life] = what
		if d, err := mustConnectWith(t, s.URL, &Options{Guarded: &small}).Inspect(t.Context()); err != nil || d.Life != life || d.Open != (len(seen) == 1) {
			t.Errorf("%s: %+v, %v", what, d, err)
		}
	}
	begins("the first", primary)
	begins("a restored backup", primary.Restored())
	replayed(t, primary, standbys...)
	for _, r := range relays {
		r.Cut()
	}
	standbys[0].Promote()
	begins("a promotion", standbys[0])
	standbys[0].Kill()
	standbys[1].Promote()
	begins("its sibling, on the same timeline", standbys[1])
	mustExec(t, primary.URL, "CREATE TABLE gone()")
	primary.End(2) // SIGINT: it ends at once, and cleanly
	primary.Name = "back"
	primary.Rewind(standbys[1])
	replayed(t, standbys[1], primary)
	standbys[1].Kill()
	primary.Promote()
	begins("the first server after it went back", primary)
	primary.Restart()
	begins("a restart", primary)
	primary.Kill()
	primary.Start()
	primary.Await()
	begins("a start after a crash", primary)
	if len(seen) != 7 {
		t.Errorf("%d lives", len(seen))
	}
}

// TestGuardedTable: a table is guarded or not, for all programs alike, and its row about the server must stay.
func TestGuardedTable(t *testing.T) {
	server := enginetest.StartPostgreSQL(t, "fsync=on", "wal_sender_timeout=10s")
	opened := func(database string, o *Options) error {
		t.Helper()
		s, err := Open(t.Context(), database, o)
		if err == nil {
			_ = s.Close()
		}
		return err
	}
	longer := *byWatchdog
	longer.Lease = time.Minute
	plain, guarded := newDatabase(t, server.URL), enginetest.Database(t, server.URL)
	created(t, guarded, byWatchdog)
	for _, tc := range []struct {
		database string
		o        *Options
		want     string
	}{
		{guarded, nil, "is guarded (patroni-watchdog lease=15s)"},
		{guarded, &Options{Guarded: &longer}, `created with "patroni-watchdog lease=15s", and this program expects "patroni-watchdog lease=1m0s"`},
		{guarded, &Options{Guarded: &Guarded{Standbys: 1}}, `this program expects "standbys=1 of 1 wal_sender_timeout=10s lease=15s"`},
		{guarded, &Options{Guarded: &Guarded{Standbys: 1, SenderTimeout: 9 * time.Second}}, "wal_sender_timeout is 10s"},
		{plain, &Options{Guarded: byWatchdog}, "is not guarded"},
	} {
		if err := opened(tc.database, tc.o); mentions(err, tc.want) != nil || !errors.Is(err, driver.ErrPermanent) {
			t.Errorf("%+v: %v, want %q", tc.o, err, tc.want)
		}
	}
	for _, wrong := range []Guarded{
		{},
		{Watchdog: true, Standbys: 1},
		{Watchdog: true, Need: 1},
		{Watchdog: true, SenderTimeout: time.Second},
		{Standbys: 1, Need: 2},
		{Standbys: 5, Need: 1},
		{Standbys: -1},
		{Standbys: 1, SenderTimeout: time.Millisecond},
		{Watchdog: true, Lease: time.Millisecond},
		{Watchdog: true, Lease: time.Second + 1},
	} {
		if _, err := wrong.Schema(""); err == nil {
			t.Errorf("%+v is allowed", wrong)
		}
	}
	// Stores that have examined nothing are refused by each statement.
	for database, o := range map[string]*Options{guarded: nil, plain: {Guarded: byWatchdog}} {
		pool := connect(t, database)
		defer pool.Close()
		s, err := New(pool, o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Get(t.Context(), "x", driver.Strong); !errors.Is(err, driver.ErrPermanent) {
			t.Errorf("get: %v", err)
		}
		if _, _, err := s.Claim(t.Context(), held("x")); !errors.Is(err, driver.ErrPermanent) {
			t.Errorf("claim: %v", err)
		}
	}

	s := mustOpenWith(t, guarded, &Options{Guarded: byWatchdog})
	enginetest.Claim(t, s, held("x"))
	mustExec(t, guarded, "UPDATE tenure_records_life SET id = 'another'")
	if _, _, err := s.Claim(t.Context(), held("y")); !errors.Is(err, driver.ErrReplaced) {
		t.Errorf("claim in a store with another id: %v", err)
	}
	if _, err := s.Get(t.Context(), "x", driver.Strong); !errors.Is(err, driver.ErrReplaced) {
		t.Errorf("get after that: %v", err)
	}
	mustExec(t, guarded, "DELETE FROM tenure_records_life")
	if err := opened(guarded, &Options{Guarded: byWatchdog}); mentions(err, "has no row") != nil {
		t.Errorf("without the row: %v", err)
	}

	mustExec(t, plain, "CREATE ROLE watcher LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO watcher")
	standbys := enginetest.Database(t, server.URL)
	created(t, standbys, &Guarded{Standbys: 1})
	mustExec(t, standbys, "GRANT ALL ON ALL TABLES IN SCHEMA public TO watcher")
	watcher := strings.Replace(standbys, "tenure@", "watcher@", 1)
	if err := opened(watcher, &Options{Guarded: &Guarded{Standbys: 1}}); mentions(err, "GRANT pg_read_all_stats") != nil {
		t.Errorf("a role that does not see the standbys: %v", err)
	}
	mustExec(t, standbys, "GRANT pg_read_all_stats TO watcher")
	s = mustOpenWith(t, watcher, &Options{Guarded: &Guarded{Standbys: 1}})
	if _, _, err := s.Claim(t.Context(), held("x")); mentions(err, "0 standbys are connected") != nil {
		t.Errorf("a claim without standbys: %v", err)
	}
}

// TestWhatIsNoStandby: what streams changes and cannot be promoted bounds nothing.
func TestWhatIsNoStandby(t *testing.T) {
	server := enginetest.StartPostgreSQL(t, "fsync=on", "wal_sender_timeout=10s", "wal_level=logical")
	g := &Guarded{Standbys: 1}
	created(t, server.URL, g)
	s := mustOpenWith(t, server.URL, &Options{Guarded: g})
	server.Receive()
	copied := enginetest.Database(t, server.URL)
	mustExec(t, server.URL, "CREATE TABLE copied (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE copied")
	mustExec(t, server.URL, "SELECT pg_create_logical_replication_slot('slot', 'pgoutput')")
	mustExec(t, copied, "CREATE TABLE copied (a int PRIMARY KEY); CREATE SUBSCRIPTION sub CONNECTION '"+server.URL+
		"' PUBLICATION p WITH (create_slot = false, slot_name = 'slot', copy_data = false)")
	defer mustExec(t, copied, "DROP SUBSCRIPTION sub")
	enginetest.Eventually(t, "two stream", func(context.Context) error {
		if n := ask[int](t, server.URL, "SELECT count(*)::int FROM pg_stat_replication WHERE state = 'streaming'"); n != 2 {
			return fmt.Errorf("%d stream", n)
		}
		return nil
	})
	if _, _, err := s.Claim(t.Context(), held("x")); mentions(err, "0 standbys are connected") != nil {
		t.Errorf("claim: %v", err)
	}
	server.Standby()
	enginetest.Eventually(t, "the standby counts", func(ctx context.Context) error {
		_, _, err := s.Claim(ctx, held("x"))
		return err
	})
	server.Standby()
	enginetest.Eventually(t, "there is a standby too many", func(ctx context.Context) error {
		_, _, err := s.Claim(ctx, held("y"+rand.Text()))
		return mentions(err, "2 standbys are connected")
	})
}

// replayed waits until standbys have all that their primary has.
func replayed(t *testing.T, primary *enginetest.PostgreSQLServer, standbys ...*enginetest.PostgreSQLServer) {
	t.Helper()
	at := ask[string](t, primary.URL, "SELECT pg_current_wal_insert_lsn()::text")
	for _, s := range standbys {
		enginetest.Eventually(t, s.Name+" has replayed all", func(context.Context) error {
			if !ask[bool](t, s.URL, "SELECT coalesce(pg_last_wal_replay_lsn() >= '"+at+"'::pg_lsn, false)") {
				return errors.New("not yet")
			}
			return nil
		})
	}
}

func mustConnectWith(t *testing.T, url string, o *Options) *Store {
	t.Helper()
	s, err := Connect(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// mentions returns an error unless err has the text.
func mentions(err error, text string) error {
	if err == nil || !strings.Contains(err.Error(), text) {
		return errors.New("not " + text + ": " + errorText(err))
	}
	return nil
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}
