// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenurelock/tenure/driver"
)

// The layout of a guarded store. Beside the table of records there is one of a single row, about the lives of
// the server: an id of the store, its settings, the life that is open, and the least token of that life. The table of
// records has one column more, the life in which a session was opened; and its version has another
// name, so that a store that is not guarded cannot use it.

// lifeSuffix makes the name of the table of lives from that of the records.
const lifeSuffix = "_life"

// guardedVersion is the name of the column version in a guarded table.
const guardedVersion = "guarded_version"

// guardedNames are the columns of a guarded table that a record has.
var guardedNames = append([]string{columns[0], guardedVersion}, columns[2:]...)

// lifeNow is the name of the life of the server: its timeline and its start in microseconds. The control file
// still has the old timeline after a promotion, until the first checkpoint. A timeline alone is no name: two
// standbys that did not follow each other are promoted to the same one. The identifier of the system is left out,
// since a standby has that of its primary. It fails on a standby.
const lifeNow = `substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '-' ||` +
	` (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint`

// physical are the standbys that may be promoted. What replays nothing is a backup, or pg_receivewal. The view
// pg_stat_replication would copy the state of all connections for each write.
const physical = `pg_stat_get_wal_senders() AS r WHERE r.state = 'streaming' AND r.replay_lsn IS NOT NULL AND ` +
	`(current_setting('wal_level') <> 'logical' OR NOT EXISTS ` +
	`(SELECT FROM pg_get_replication_slots() AS s WHERE s.active_pid = r.pid AND s.slot_type = 'logical'))`

// lifeTable is the table of lives. %[1]s is its name, %[2]s what it is for.
const lifeTable = `CREATE TABLE %[1]s (
	one      boolean PRIMARY KEY DEFAULT true CHECK (one),
	id       text NOT NULL,  -- of this store
	settings text NOT NULL,  -- those of all programs
	open     text NOT NULL,  -- the life of the server in which locks are granted
	base     bigint NOT NULL -- the least token of that life
);
INSERT INTO %[1]s (id, settings, open, base)
SELECT md5(clock_timestamp()::text || random()::text), '%[2]s', ` + lifeNow + `, 0`

// guardedTable is the table of records of a guarded store.
func guardedTable(table string) string {
	return strings.NewReplacer("\tversion text", "\t"+guardedVersion+" text",
		"\tdata    bytea            -- the holder's own", "\tdata    bytea,           -- the holder's own\n"+
			"\tlife    text             -- the life of the server in which a session was opened").Replace(table)
}

// counts counts the standbys: those that have answered within the timeout, and all. The clock of a standby takes
// part in that: the setting wal_sender_timeout bounds an old primary without any clock, unless the whole server
// stood still. Then the answer is too old.
func (g *guard) counts() string {
	if g.Watchdog {
		return "(SELECT 0::bigint AS fresh, 0::bigint AS connected)"
	}
	return fmt.Sprintf("(SELECT count(*) FILTER (WHERE r.reply_time > clock_timestamp() - interval '%d s') AS fresh,"+
		" count(*) AS connected FROM %s)", int(g.SenderTimeout.Seconds()), physical)
}

// bound is the condition of each write that a server meets only if it would stop when it was cut off.
func (g *guard) bound() string {
	if g.Watchdog {
		return ""
	}
	return fmt.Sprintf(" AND (SELECT s.fresh >= %d AND s.connected <= %d FROM %s AS s)", g.Need, g.Standbys, g.counts())
}

// lifeColumns are what a guarded read has before the columns of a record.
const lifeColumns = "e.life, e.id, e.settings, e.open, e.base, e.fresh, e.connected"

// newGuardedStatements returns the statements of a guarded store, for tables t and life. What the conditions
// compare beside the row stays true as long as the server lives, except that standbys go: for that a statement counts
// from when it was sent.
func newGuardedStatements(t, life, commit string, g *guard) statements {
	settled := g.bound() + settings(commit)
	all := strings.Join(guardedNames, ", ")
	const isLock = "$4 IN ('held', 'resting')"
	const opened = "CASE WHEN $4 = 'alive' THEN " + lifeNow + " END"
	const keep = guardedVersion + " = $2, token = $3, state = $4, owner = $5, record = $6"
	const withData = keep + ", data = $7"
	const answers = " RETURNING true, " + lifeNow
	// base is the least token of a life that is open, and NULL while it is closed. $id is the id of the store.
	base := func(id string) string {
		return "(SELECT l.base FROM " + life + " AS l WHERE l.open = " + lifeNow + " AND l.id = " + id + ")"
	}
	types := func(all ...any) (oids []uint32) {
		for _, of := range all {
			switch of := of.(type) {
			case uint32:
				oids = append(oids, of)
			case []uint32:
				oids = append(oids, of...)
			}
		}
		return oids
	}
	const text, number = uint32(pgtype.TextOID), uint32(pgtype.Int8OID)
	// $8 and $9 are what it replaces, $10 is the life to which it is bound.
	update := func(sets, also, settled string, more ...any) *statement {
		return newStatement("UPDATE "+t+" AS t SET "+sets+" WHERE t.name = $1 AND t."+guardedVersion+" = $8 AND t.token = $9"+
			" AND ($10 = '' OR $10 = "+lifeNow+")"+also+settled+answers, types(oids, text, number, text, more)...)
	}
	beats := " AND (t.state <> 'alive' OR $4 <> 'alive' OR t.life = " + lifeNow + ")"
	isReleased := " AND t.state = '" + string(driver.Released) + "'"
	raises := " AND $9 >= " + base("$11")
	insert := "INSERT INTO " + t + " (" + all + ", life) SELECT $1, $2, $3, $4, $5, $6, $7, " + opened
	read := func(counts, from, order string, of ...any) *statement {
		server := "(SELECT l.*, s.*, CASE WHEN pg_is_in_recovery() THEN '' ELSE " + lifeNow + " END AS life" +
			" FROM " + life + " AS l, " + counts + " AS s OFFSET 0)" // each is found once
		return newStatement("SELECT pg_is_in_recovery(), "+lifeColumns+", "+all+", t.life FROM (VALUES (1)) AS one LEFT JOIN "+
			server+" AS e ON true"+from+order, types(of...)...)
	}
	quick, one := (&guard{Guarded: Guarded{Watchdog: true}}).counts(), " LEFT JOIN "+t+" AS t ON t.name = $1"
	return statements{
		get:  read(quick, one, "", text),
		look: read(g.counts(), one, "", text),
		getBatch: read(quick, " JOIN unnest($1) WITH ORDINALITY AS wanted (key, n) ON true"+
			" LEFT JOIN "+t+" AS t ON t.name = key", " ORDER BY n", uint32(pgtype.TextArrayOID)),
		list: read(quick, " LEFT JOIN (SELECT * FROM "+t+
			" WHERE name >= $1 AND name > $2 AND starts_with(name, $1) ORDER BY name LIMIT $3) AS t ON true", " ORDER BY name",
			text, text, number),
		// As where nothing is guarded.
		claim: newStatement("WITH seen AS MATERIALIZED (SELECT "+all+" FROM "+t+" WHERE name = $1)"+
			", updated AS (UPDATE "+t+" AS t SET "+guardedVersion+" = $2, token = t.token + 1, state = $4, owner = $5"+
			", data = COALESCE($7, t.data), record = "+claimedText+", life = "+opened+" FROM seen WHERE t.name = $1"+isReleased+
			fmt.Sprintf(" AND t.token < %d", uint64(driver.MaxToken))+
			" AND t."+guardedVersion+" = seen."+guardedVersion+" AND t.token = seen.token AND t.record::json ->> 'lease' <> ''"+
			" AND (NOT "+isLock+" OR t.token >= "+base("$8")+")"+settled+" RETURNING 1)"+
			", inserted AS ("+insert+" WHERE NOT EXISTS (SELECT FROM seen) AND (NOT "+isLock+" OR 0 >= "+base("$8")+")"+
			settled+" ON CONFLICT (name) DO NOTHING RETURNING 1)"+
			" SELECT EXISTS (SELECT FROM updated UNION ALL SELECT FROM inserted), "+lifeNow+", "+all+
			" FROM (VALUES (1)) AS one LEFT JOIN seen ON true", types(oids, text)...),
		swap:            update(withData, beats, settled),
		swapKeepingData: update(keep, beats, settled),
		release:         update(withData, "", settings(commit)), // a server that was cut off may do it: it refuses the next claim
		takeover:        update(withData, raises, settled, text),
		take:            update(withData, raises+isReleased, settled, text),
		takeKeepingData: update(keep, raises+isReleased, settled, text),
		remove: newStatement("DELETE FROM "+t+" AS t WHERE t.name = $1 AND t."+guardedVersion+" = $2 AND t.token = $3"+
			" AND ($4 = '' OR $4 = "+lifeNow+")"+settled+answers, text, text, number, text),
		// $1 is the life that was seen, $2 its base by a clock.
		open: newStatement("UPDATE "+life+" AS l SET open = $1, base = greatest(l.base + 1048576, $2)"+
			" WHERE l.id = $3 AND l.open <> $1 AND $1 = "+lifeNow+settled+answers, text, number, text),
		// What driver.RaisedAtOpening returns. $11 is the open life, $12 its base, $13 the id.
		raise: update(keep+", life = NULL", " AND $11 = "+lifeNow+" AND $12 = "+base("$13"), settled, text, number, text),
		raiseAbsent: newStatement(insert+" WHERE $8 = "+lifeNow+" AND $9 = "+base("$10")+settled+
			" ON CONFLICT (name) DO NOTHING"+answers, types(oids, text, number, text)...),
		guard: "SELECT token, state FROM " + t + " WHERE name = $1 FOR SHARE",
	}
}

// server is what a guarded answer tells of the store and the server.
type server struct {
	life, id, settings, open string
	base                     int64
	fresh, connected         int64 // standbys
}

// closed says that the life of the server is not open.
func (s *server) closed() bool { return s.open != s.life }

// stands returns an error if the server has not the store of this program.
func (s *Store) stands(r *row) error {
	known := s.id.Load()
	switch {
	case s.guard == nil || r.id != "" && known != nil && *known == r.id && r.settings == s.guard.settings:
		return nil
	case known != nil && r.id != *known:
		s.replaced.Store(true)
		return s.gone()
	case r.id == "":
		return driver.NotApplied(driver.Permanent(fmt.Errorf("postgres: "+noRow, s.Table(), s.Waits())))
	case r.settings != s.guard.settings:
		return driver.NotApplied(driver.Permanent(fmt.Errorf("postgres: "+otherSettings, s.Table(), r.settings, s.guard.settings)))
	}
	s.id.CompareAndSwap(nil, &r.id)
	return nil
}

const (
	noRow = "table %s" + lifeSuffix + " has no row: it was emptied; if no backup can be restored, stop all programs, " +
		"wait for %v, drop both tables, and run tenure table create"
	otherSettings = "table %s was created with %q, and this program expects %q: all programs use the same " +
		"Options.Guarded, and parameters of their URLs"
)

// gone is the error of a store that was replaced.
func (s *Store) gone() error {
	return driver.NotApplied(driver.Replaced(fmt.Errorf("postgres: table %s is another than this program has used: "+
		"it was dropped, emptied, or is in another cluster; if the data cannot be restored, stop all programs, "+
		"and wait for %v", s.Table(), s.Waits())))
}

// record returns what the row of an answer shows, and whether that is anything.
func (s *Store) record(key string, r *row) (rec driver.Record, found bool, err error) {
	if r.found {
		if rec, err = r.Record(); err != nil {
			return rec, true, err
		}
	}
	found = r.found
	if s.guard == nil {
		return rec, found, nil
	}
	free := !found || rec.State == driver.Released || rec.State == driver.Reserved
	if free && r.closed() && !strings.HasPrefix(key, driver.OwnPrefix) {
		return driver.InClosedLife(rec, key, r.life, s.guard.waits), true, nil
	}
	if found {
		rec.Life = r.life
	}
	return rec, found, nil
}

// opens has a guarded store know its id before its first write, and opens the life of the server if a write
// allows that: once for each store, and once for each life, in requests of their own.
func (s *Store) opens(ctx context.Context, at *place, o driver.Opening) error {
	if s.guard == nil {
		return nil
	}
	if s.id.Load() == nil {
		if _, err := s.look(ctx, driver.OwnPrefix+"id", looking); err != nil {
			return driver.NotApplied(err)
		}
	}
	if open := s.opened.Load(); o.Life == "" || open != nil && *open == o.Life {
		return nil
	}
	a := s.ask(ctx, at.sql.open, []any{o.Life, int64(min(o.Base, driver.MaxToken)), *s.id.Load()}, "")
	if a.err == nil && a.changed == 0 { // another process has opened it, or it may not be opened now
		var r row
		r, a.err = s.look(ctx, driver.OwnPrefix+"id", looking)
		if a.err == nil && r.open != o.Life {
			return nil
		}
	}
	if a.err != nil {
		return driver.NotApplied(a.err) // it may be open, but nothing else was written
	}
	s.opened.Store(&o.Life)
	return nil
}

// shown is a record that was written in a life of the server as the store returns it.
func (s *Store) shown(next driver.Record, life string) driver.Record {
	if s.guard != nil {
		next.Life, next.Opens = life, driver.Opening{}
	}
	return next
}

// bounded says that the server may answer a write: it would stop if it was cut off.
func (g *guard) bounded(r *row) bool {
	return r.fresh >= int64(g.Need) && r.connected <= int64(g.Standbys)
}

// refused returns the error of a write that was not carried out, by what was found then.
func (s *Store) refused(ctx context.Context, at *place, r *row, prev, next driver.Record, raises bool) error {
	if err := s.stands(r); err != nil {
		return err
	}
	if g := s.guard; g != nil && !g.bounded(r) && (raises || next.State != driver.Released) {
		return driver.NotApplied(fmt.Errorf("postgres: %d standbys are connected, %d have answered within %v, and writes "+
			"need %s: a primary that was cut off must not go on", r.connected, r.fresh, g.SenderTimeout, g.needs()))
	}
	stored, found := driver.Record{}, r.found
	if found {
		var err error
		if stored, err = r.Record(); err != nil {
			return driver.NotApplied(err)
		}
	}
	if s.guard != nil && !r.closed() && raises && int64(stored.Token) < r.base && s.replaces(r, stored, prev) {
		return s.raise(ctx, at, r, stored, next)
	}
	shown, found, err := s.record(next.Key, r)
	switch {
	case err != nil:
		return driver.NotApplied(err)
	case s.guard != nil && stored.State == driver.Alive && next.State == driver.Alive && r.session != r.life:
		shown.State, shown.End, shown.Requests = driver.Closed, driver.EndExpired, nil
	}
	return &driver.ConflictError{Key: next.Key, Current: shown, Absent: !found}
}

// replaces says whether a write that raises the token of a lock replaces what is stored, or what was
// shown of that while the life was closed. A claim replaces what is absent or released.
func (s *Store) replaces(r *row, stored, prev driver.Record) bool {
	free := stored.State == "" || stored.State == driver.Released
	if prev.Version == "" {
		return free
	}
	bound := prev.Life == "" || prev.Life == r.life
	same := stored.Version == prev.Version
	shown := prev.Version == r.life && (free || stored.State == driver.Reserved)
	return bound && stored.Token == prev.Token && (same || shown)
}

// raise raises the token of a lock, absent (a zero record) or not, to the base of the life, before next may raise
// it. That is one more request, which other processes may come before. Whatever becomes of it, next was not written.
func (s *Store) raise(ctx context.Context, at *place, r *row, stored, next driver.Record) error {
	raised := driver.RaisedAtOpening(stored, next, r.life, uint64(r.base))
	st, args := at.sql.raiseAbsent, valuesOf(raised)
	if r.found {
		st, args = at.sql.raise, append(args, stored.Version, int64(stored.Token), "")
	}
	a := s.ask(ctx, st, append(args, r.life, r.base, *s.id.Load()), "")
	switch {
	case a.err != nil:
		return driver.NotApplied(fmt.Errorf("the token of %q must be raised first, since the server may have lost writes: %w",
			next.Key, a.err))
	case a.changed == 0:
		return s.conflict(ctx, at, driver.Record{}, driver.Record{Key: next.Key}, false)
	}
	raised.Life = r.life
	return &driver.ConflictError{Key: next.Key, Current: raised.Detach()}
}

// serverProblems are what makes the server unusable for any table of the store.
func (d *Description) serverProblems(problem func(is bool, text string, args ...any)) {
	g := d.guard
	if g == nil {
		problem(d.Settings == "" && d.Asynchronous > 0 && d.SynchronousNames == "" && !d.accepted, "%w", errAsynchronous)
		return
	}
	problem(!d.Fsync, "fsync is off: a crash may lose any write, and a guard does not help")
	problem(!g.Watchdog && (d.SenderTimeout <= 0 || d.SenderTimeout > g.SenderTimeout), "wal_sender_timeout is %v, which bounds "+
		"for how long a primary that was cut off goes on: set it to %v or less, and not to 0", d.SenderTimeout, g.SenderTimeout)
}

// guardProblems are what makes the table unusable because it is guarded, or because it is not.
func (d *Description) guardProblems(problem func(is bool, text string, args ...any)) {
	switch g := d.guard; {
	case g == nil:
		problem(d.Settings != "", "table %s is guarded (%s): write guard= and what else it was created with in the URL, "+
			"or Options.Guarded", d.Table, d.Settings)
	case !d.Exists:
	case d.Settings == "":
		problem(true, "table %s is not guarded: leave out guard= or Options.Guarded, or name another table", d.Table)
	default:
		problem(d.Settings == "?" && !d.Standby, noRow, d.Table, g.waits)
		problem(d.Settings != g.settings && d.Settings != "?", otherSettings, d.Table, d.Settings, g.settings)
		problem(!g.Watchdog && !d.Sees, "the role may not see which standbys are connected: GRANT pg_read_all_stats TO it")
	}
}

// describeLife asks for the settings of a guarded store, and whether locks are granted.
func describeLife(life string) string {
	return "SELECT settings, e.life, open = e.life FROM " + life +
		", (SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE " + lifeNow + " END AS life) AS e"
}

// guardFindings say what a failover or a restart costs.
func (d *Description) guardFindings() []driver.Finding {
	g := d.guard
	if g == nil || !d.Exists {
		return nil
	}
	all := []driver.Finding{driver.OK("guard", "%s: after a start or a promotion no lock is granted for %v, and a failover "+
		"gives none twice", g.settings, g.waits)}
	switch {
	case g.Watchdog:
		all[0].Advice = "make sure that Patroni has watchdog mode: required: the store cannot see it"
	case g.Need < g.Standbys:
		all[0].Advice = fmt.Sprintf("make sure that after a promotion the other standbys leave the old primary within %v: "+
			"the store cannot see it", g.SenderTimeout)
	}
	switch n := d.Asynchronous + d.Synchronous; {
	case g.Watchdog:
	case n < g.Need || n > g.Standbys:
		all = append(all, driver.Bad("standbys", "%d connected, and writes need %s: all are refused", n, g.needs()).
			Advise("start the others, or stop what is too many; for another number, create another table"))
	case n == g.Need && n < g.Standbys:
		all = append(all, driver.Warn("standbys", "%d of %d connected: if one more is lost, all writes are refused",
			n, g.Standbys).Advise("start the others"))
	}
	if d.Open {
		return append(all, driver.OK("life", "the server is known: locks are granted"))
	}
	return append(all, driver.Warn("life", "the server was started or promoted, and may have lost writes: no lock is "+
		"granted until a process has seen it for %v", g.waits).Advise("wait; leases that are held go on"))
}

// errAsynchronous refuses a primary whose failover loses writes.
var errAsynchronous = errors.New("the server has asynchronous standbys, and a failover to one would lose the last locks " +
	"and give their tokens again: name a synchronous standby in synchronous_standby_names; or guard the table, by guard= " +
	"in the URL; or write standbys=accept if none is ever promoted: see docs/guides/postgres.md")

func quotedLife(p *place) string { return pgx.Identifier{p.schema, p.name + lifeSuffix}.Sanitize() }
