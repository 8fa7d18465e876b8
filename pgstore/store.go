// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// Options are for one store. Nil means the defaults.
type Options struct {
	// Table has the records: "tenure_records" if empty. Letters, digits and underscores,
	// with a schema and a dot before it if needed; capitals stay as they are. Without a
	// schema it is the only table of that name in the database, in whatever schema it is:
	// the role's search_path does not matter. If there are two, the store refuses to work,
	// with ErrTwoTables.
	Table string

	// Commit is CommitOn if empty.
	Commit Commit

	// Listen is where the store listens for changes: the URL of the server itself, if the pool goes
	// through a pooler, since LISTEN gets no notifications behind a transaction pooler; "off" for
	// no listening, so that acquirers see a release at their next poll. If empty, it is the pool's
	// own address, on one more connection.
	Listen string

	// BeforeConnect is called before each connection that the store makes, with a copy of
	// its config: to set a password that was read again, or a short-lived token. These are
	// the connections of [Open], and the connection to the address in Listen, which differs
	// by its ConnString. A pool that is passed to [New] has a BeforeConnect of its own,
	// which its listener uses as well. If nil, nothing is called.
	BeforeConnect func(context.Context, *pgx.ConnConfig) error

	// Untested admits an engine that speaks the protocol of PostgreSQL, and is another
	// product: CockroachDB, YugabyteDB. Tenure was not tested with any. There the store makes
	// the claim of a lock that it does not know in two requests, and takes the engine's own
	// durability as it is; it neither notifies nor listens, and a waiter sees a release at its next
	// poll. With PostgreSQL it changes nothing. If false, such an engine is refused.
	Untested bool

	// Guarded is for a primary with asynchronous standbys that may be promoted. If nil, nothing is guarded, and
	// [Open] refuses a primary that has some, unless a synchronous standby is named or AcceptStandbys is set.
	Guarded *Guarded

	// AcceptStandbys admits a primary that has asynchronous standbys where none is ever promoted: after a failover
	// locks could be held twice.
	AcceptStandbys bool
}

// ListenOff is the value of Options.Listen that switches listening off.
const ListenOff = "off"

// MaxConns is the size of the pool that [Open] makes if its URL has no pool_max_conns.
const MaxConns = 16

// Store keeps records in a table of PostgreSQL. All methods may be called concurrently.
type Store struct {
	pool     *pgxpool.Pool
	own      bool   // the pool was made by Open
	schema   string // as in the options, "" for that of the only such table
	table    string // without its schema
	untested bool   // as in the options
	accepted bool   // likewise
	guard    *guard // nil: nothing is guarded
	commit   string
	place    atomic.Pointer[place] // nil: not asked for yet
	notes    *statement
	listen   *listener
	tell     teller
	free     versioned.Memory[freed]
	page     int // how many records List returns at once

	// Of a guarded store:
	id       atomic.Pointer[string] // nil before the first answer
	opened   atomic.Pointer[string] // the life that needs no opening
	replaced atomic.Bool

	ctx    context.Context // ends with the store
	cancel context.CancelFunc

	mu      sync.Mutex
	running map[*pgconn.PgConn]bool // connections with a statement under way
	lost    map[*pgconn.PgConn]bool // those at the time of the last reset
	closed  bool
}

var (
	_ driver.Store       = (*Store)(nil)
	_ driver.Watcher     = (*Store)(nil)
	_ driver.BatchGetter = (*Store)(nil)
	_ driver.Raiser      = (*Store)(nil)
	_ driver.Guarded     = (*Store)(nil)
	_ driver.Diagnoser   = (*Store)(nil)
	_ driver.Provisioner = (*Store)(nil)
	_ driver.Granter     = (*Store)(nil)
)

// New returns a store on a pool of the program, which should serve nothing else: heartbeats take
// connections from it, and a lease ends while other work holds them all. The pool must outlive the
// store. New sends nothing; the first call finds the table, if the options name no schema. Options
// may be nil. Call [Configure] on the config of the pool before.
func New(pool *pgxpool.Pool, options *Options) (*Store, error) {
	if pool == nil {
		return nil, errors.New("pgstore: the pool is nil")
	}
	o, err := options.filled()
	if err != nil {
		return nil, err
	}
	g, err := o.Guarded.guard()
	switch {
	case err != nil:
		return nil, err
	case g != nil && (o.Untested || o.AcceptStandbys):
		return nil, errors.New("pgstore: a guarded store is of PostgreSQL, and counts the standbys: leave out Untested " +
			"and AcceptStandbys")
	}
	s := &Store{
		accepted: o.AcceptStandbys, guard: g,
		pool: pool, untested: o.Untested, commit: string(o.Commit), notes: newNotify(), page: pageSize,
		running: map[*pgconn.PgConn]bool{},
	}
	if s.schema, s.table = cut(o.Table); s.schema != "" && !o.Untested {
		s.settle(s.schema, "")
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.tell.store = s
	if s.listen, err = newListener(s, o); err != nil {
		return nil, err
	}
	return s, nil
}

func (o *Options) filled() (Options, error) {
	var filled Options
	if o != nil {
		filled = *o
	}
	if filled.Table == "" {
		filled.Table = DefaultTable
	}
	if filled.Commit == "" {
		filled.Commit = CommitOn
	}
	return filled, errors.Join(checkTable(filled.Table), filled.Commit.check())
}

// Connect returns a store on a pool that it creates, and that [Store.Close] closes. The URL
// is a URL of pgx: postgres://USER:PASSWORD@HOST,HOST/DATABASE?sslmode=verify-full, or
// empty; the environment, PGHOST and so on, fills in the rest. It sends nothing. Each
// connection except the first reads the files that the URL or the environment names again:
// see [Refresh]. Options may be nil.
func Connect(url string, options *Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", driver.NotApplied(driver.Permanent(err)))
	}
	if !strings.Contains(url, "pool_max_conns=") {
		config.MaxConns = MaxConns
	}
	o, err := options.filled()
	if err != nil {
		return nil, err
	}
	config.BeforeConnect = o.refresh(config.ConnConfig)
	Configure(config)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", driver.NotApplied(err))
	}
	s, err := New(pool, options)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.own = true
	return s, nil
}

// Open is [Connect], and examines the table once, so that it reports a wrong address, a wrong
// password, a missing table and a missing right. Options may be nil.
func Open(ctx context.Context, url string, options *Options) (*Store, error) {
	s, err := Connect(url, options)
	if err != nil {
		return nil, err
	}
	if err := s.examine(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the watches of the store, and the pool if [Open] has made it. A call that is
// under way ends with an unknown outcome. Notifications of changes are sent first, for a
// second at most.
func (s *Store) Close() error {
	s.tell.await()
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.cancel()
	if s.own {
		for c := range s.running {
			// Its statement goes on at the server. Nothing asks the server to cancel it.
			_ = c.Conn().Close()
		}
	}
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.listen.end()
	if s.own {
		s.pool.Close()
	}
	return nil
}

func (s *Store) ready(ctx context.Context) error {
	switch {
	case s.ctx.Err() != nil:
		return driver.ErrClosed
	case s.replaced.Load():
		return s.gone()
	}
	return ctx.Err()
}

// String names the store by its table: see [Store.Table].
func (s *Store) String() string { return "postgres table " + s.Table() }
