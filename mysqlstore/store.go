// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// The defaults of [Options].
const (
	DefaultTable    = "tenure_records"
	DefaultMaxConns = 16
)

// Options are for one store. Nil means the defaults.
type Options struct {
	// Table has the records: "tenure_records" if empty. Letters, digits and underscores, with a database and a dot
	// before it if it is not in the database of the connection. It has at most 59 bytes, since its view has 5 more.
	Table string

	// NoPromotion says that no asynchronous replica is ever promoted, and allows a server to have some: for reports,
	// backups and readers of its binary log. The store cannot see whether that is true. If a replica is promoted
	// nevertheless, two processes may hold one lock, under one token.
	NoPromotion bool

	// MaxConns is how many connections the store makes at most: 16 if zero. A call takes one for its time.
	MaxConns int
}

const (
	// dialTimeout bounds an attempt to connect if the config does not, and connectTimeout all of it, with the
	// examination of the server.
	dialTimeout    = 5 * time.Second
	connectTimeout = 10 * time.Second
	// connIdle is shorter than what balancers allow, and connLife how long a change of a server may go unnoticed.
	connIdle = time.Minute
	connLife = 10 * time.Minute
	// lockWait is how long a statement waits for a row, in seconds: a transaction with a guard may keep it.
	lockWait = "5"
)

// Store keeps records in a table of MySQL or MariaDB. All methods may be called concurrently.
type Store struct {
	options Options
	config  *mysql.Config
	place   place
	sql     statements
	direct  sqldriver.Connector // without an examination
	db      *sql.DB
	life    *versioned.Life
	free    versioned.Memory[freed]
	writer  versioned.Writer[freed]
	galera  atomic.Bool
	page    int // how many records List returns at once
}

var (
	_ driver.Store       = (*Store)(nil)
	_ driver.BatchGetter = (*Store)(nil)
	_ driver.Raiser      = (*Store)(nil)
	_ driver.Diagnoser   = (*Store)(nil)
	_ driver.Provisioner = (*Store)(nil)
	_ driver.Granter     = (*Store)(nil)
)

// Connect returns a store on a pool of its own. It sends nothing: each connection, with the first call, examines the
// server as [Open] does. Options may be nil.
//
// The config names the server, the user and the database, as mysql.ParseDSN reads them from a DSN. For credentials
// that change, give it a mysql.BeforeConnect. The store sets what its statements rely on, in a copy: values are put
// into the statements by the client, the characters are utf8mb4, and autocommit, sql_mode and innodb_lock_wait_timeout
// are its own. There is no constructor for a pool of the program: heartbeats would wait for its other work, and it
// could leave a transaction open.
func Connect(config *mysql.Config, options *Options) (*Store, error) {
	if config == nil {
		return nil, errors.New("mysqlstore: the config is nil")
	}
	s := &Store{config: config.Clone(), life: versioned.NewLife(), page: pageSize}
	if options != nil {
		s.options = *options
	}
	var err error
	if s.place, err = placeOf(s.options.Table, config.DBName); err != nil {
		return nil, fmt.Errorf("mysqlstore: %w", err)
	}
	s.sql = newStatements(s.place)
	c := s.config
	switch {
	case c.AllowFallbackToPlaintext || c.TLSConfig == "preferred":
		return nil, errors.New("mysqlstore: tls=preferred would go on without encryption if someone on the network path " +
			"asks for that: write tls=true, or tls=false for a server of this machine")
	case s.options.MaxConns < 0:
		return nil, fmt.Errorf("mysqlstore: %d connections: at least one is needed", s.options.MaxConns)
	case s.options.MaxConns == 0:
		s.options.MaxConns = DefaultMaxConns
	}
	if c.Timeout == 0 {
		c.Timeout = dialTimeout
	}
	c.InterpolateParams = true // one round trip, instead of three for a prepared statement
	c.ClientFoundRows = true   // a row that matches counts
	c.MultiStatements, c.RejectReadOnly, c.CheckConnLiveness = false, false, true
	c.Logger = &mysql.NopLogger{}
	if c.Params == nil {
		c.Params = map[string]string{}
	}
	maps.Copy(c.Params, map[string]string{
		"autocommit": "1", "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'", "innodb_lock_wait_timeout": lockWait,
	})
	if err := c.Apply(mysql.Charset("utf8mb4", "utf8mb4_bin")); err != nil {
		return nil, fmt.Errorf("mysqlstore: %w", err)
	}
	if s.direct, err = mysql.NewConnector(c); err != nil {
		return nil, fmt.Errorf("mysqlstore: %w", err)
	}
	s.db = sql.OpenDB(examiner{s})
	s.db.SetMaxOpenConns(s.options.MaxConns)
	s.db.SetMaxIdleConns(s.options.MaxConns)
	s.db.SetConnMaxIdleTime(connIdle)
	s.db.SetConnMaxLifetime(connLife)
	s.writer = versioned.Writer[freed]{
		Known: &s.free, Ready: s.life.Ready, Read: s.look, Write: s.write, LookUnseen: true,
	}
	return s, nil
}

// Open is [Connect] for a program that wants to know at once whether that works. It examines the server, and refuses,
// with an error that matches [driver.ErrPermanent] unless it may pass:
//
//   - a server that is neither MySQL 8.0 nor MariaDB 10.6 or later, or only speaks their protocol;
//   - a replica, and a server that is still applying, or has not removed, what it has received as a replica;
//   - innodb_flush_log_at_trx_commit other than 1, and with a binary log sync_binlog other than 1;
//   - asynchronous replicas, without [Options.NoPromotion];
//   - semi-synchronous replication that gives up waiting in less than 30 days, does without replicas when there are
//     too few, or shows a write before it waits (AFTER_COMMIT), and a user who may write in spite of read_only;
//   - Group Replication with several primaries, or with reads that a new primary may answer too early;
//   - a node of Galera whose reads do not wait (wsrep_sync_wait), or that has lost the majority;
//   - a missing table, one of another engine than InnoDB, or one of another layout.
func Open(ctx context.Context, config *mysql.Config, options *Options) (*Store, error) {
	s, err := Connect(config, options)
	if err != nil {
		return nil, err
	}
	if _, err := s.Get(ctx, driver.OwnPrefix+"open", driver.Strong); err != nil && !errors.Is(err, driver.ErrNotFound) {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// examiner makes the connections of the pool.
type examiner struct{ s *Store }

// Driver is part of the interface.
func (e examiner) Driver() sqldriver.Driver { return e.s.direct.Driver() }

// Connect connects, and refuses a server that the store must not use. Its error says that nothing was sent.
func (e examiner) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := e.s.connect(ctx, func(ctx context.Context, l link) error {
		server, err := e.s.examine(ctx, l)
		if err != nil {
			return err
		}
		e.s.galera.Store(server.on("wsrep_on"))
		return errors.Join(server.refused(), server.table.refused())
	})
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// connect makes a connection, and closes it if do returns an error. The error is not that of a write.
func (s *Store) connect(ctx context.Context, do func(context.Context, link) error) (sqldriver.Conn, error) {
	bound, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := s.direct.Connect(bound)
	if err == nil {
		if err = do(bound, link{conn}); err != nil {
			_ = conn.Close()
		}
	}
	if err != nil {
		return nil, driver.NotApplied(s.failed(ctx, err))
	}
	return conn, nil
}

// Close closes the connections of the store. Calls that are under way end with an unknown outcome.
func (s *Store) Close() error {
	if !s.life.End() {
		return nil
	}
	return s.db.Close()
}

// String names the store by its table.
func (s *Store) String() string { return "mysql table " + s.place.String() }

// host is that of the server, without its port; a socket has none.
func (s *Store) host() string {
	host, _, _ := net.SplitHostPort(s.config.Addr)
	return host
}
