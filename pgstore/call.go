// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurelock/tenure/driver"
)

// What a connection remembers, by these names in its custom data.
const (
	preparedKey    = "tenure.prepared"    // map[string]*pgconn.StatementDescription, by name
	unconfirmedKey = "tenure.unconfirmed" // true: a standby has not confirmed a commit
	preparesKey    = "tenure.prepares"    // whether statements are prepared on it
)

// answer is what a statement returned.
type answer struct {
	rows    []row
	changed int64 // how many rows of the table, if it returns none
	err     error
}

// life is the life of the server in which a guarded write was made.
func (a answer) life() string {
	if len(a.rows) == 0 {
		return ""
	}
	return a.rows[0].life
}

// run runs a statement and returns its rows.
//
// The statement does not end with the context: the engine is never asked to cancel. While a
// commit waits for a standby, a cancel would make it visible on the primary, and a fail-over
// would then lose a lock that others have seen as held. So an abandoned statement goes on,
// and keeps its connection.
func (s *Store) run(ctx context.Context, st *statement, args []any) ([]row, error) {
	a := s.ask(ctx, st, args, "")
	return a.rows, a.err
}

// ask is run for a statement that changes rows, too. It then notifies others that a key has changed, if it
// names one.
func (s *Store) ask(ctx context.Context, st *statement, args []any, changed string) answer {
	if err := s.ready(ctx); err != nil {
		return answer{err: driver.NotApplied(err)}
	}
	conn, err := s.pool.Acquire(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return answer{err: driver.NotApplied(fmt.Errorf("postgres: %w", s.unconnected(ctx.Err(), noContext(err))))}
	case err != nil:
		return answer{err: driver.NotApplied(s.failed(err))}
	// A pooler may keep it to itself: see Inspect.
	case !s.untested && conn.Conn().PgConn().ParameterStatus("crdb_version") != "":
		conn.Release()
		return answer{err: refusal(cockroachDB)}
	}
	values, err := encoded(conn.Conn().TypeMap(), st.oids, args)
	if err == nil && !s.begin(conn) {
		err = driver.ErrClosed
	}
	if err != nil {
		conn.Release()
		return answer{err: driver.NotApplied(err)}
	}
	answered := make(chan answer, 1)
	go func() {
		defer s.tell.tell()
		defer s.end(conn)
		s.exchange(conn.Conn(), st, values, changed, answered)
	}()
	select {
	case a := <-answered:
		a.err = s.failed(a.err)
		return a
	case <-ctx.Done():
		return answer{err: fmt.Errorf("postgres: no answer: %w", ctx.Err())}
	case <-s.ctx.Done():
		return answer{err: driver.ErrClosed}
	}
}

// unconnected says why a request got no connection before its context ended.
func (s *Store) unconnected(ended, err error) error {
	n := int(s.pool.Config().MaxConns)
	used := int(s.pool.Stat().AcquiredConns())
	s.mu.Lock()
	ours := len(s.running)
	s.mu.Unlock()
	text := "no connection to the server"
	switch {
	case err != nil:
		text += ": " + err.Error()
	case used >= n && ours < n:
		text = fmt.Sprintf("all %d connections of the pool are in use, %d of them by the program's own work: give the store a pool of its own, or raise MaxConns", n, n-ours)
	case used >= n:
		text = fmt.Sprintf("all %d connections of the pool wait for an answer of the server", n)
	}
	return &unconnectedError{text, errors.Join(ended, err)}
}

// unconnectedError has only the text of the cause: the caller adds that the time was over.
type unconnectedError struct {
	text string
	err  error
}

func (e *unconnectedError) Error() string { return e.text }
func (e *unconnectedError) Unwrap() error { return e.err }

// noContext drops an error that says no more than that a context is done.
func noContext(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// begin notes a statement under way, unless the store is closed.
func (s *Store) begin(conn *pgxpool.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.running[conn.Conn().PgConn()] = true
	}
	return !s.closed
}

func (s *Store) end(conn *pgxpool.Conn) {
	s.mu.Lock()
	delete(s.running, conn.Conn().PgConn())
	s.mu.Unlock()
	conn.Release()
}

// renew has the pool of the store connect again, if a connection broke or leads to a
// standby: its other connections are likely to be no better. Connections that break at
// the same time count once.
func (s *Store) renew(pg *pgconn.PgConn, err error) {
	var e *pgconn.PgError
	standby := errors.As(err, &e) && e.Code == "25006"
	if !s.own || !pg.IsClosed() && !standby {
		return
	}
	s.mu.Lock()
	known := s.closed || s.lost[pg]
	if !known {
		s.lost = maps.Clone(s.running)
	}
	s.mu.Unlock()
	if !known {
		s.pool.Reset()
	}
}

// inBinary is the format of all values, so that no setting of the session matters to it.
var inBinary = []int16{pgtype.BinaryFormatCode}

// encoded returns the values as they are sent.
func encoded(types *pgtype.Map, oids []uint32, args []any) ([][]byte, error) {
	values := make([][]byte, len(args))
	for i, arg := range args {
		// Nil is NULL, and nothing else may be nil.
		switch arg := arg.(type) {
		case nil:
		case string:
			values[i] = []byte(arg)
		case []byte:
			values[i] = arg
		case int64:
			values[i] = binary.BigEndian.AppendUint64(nil, uint64(arg))
		default:
			var err error
			if values[i], err = types.Encode(oids[i], pgtype.BinaryFormatCode, arg, []byte{}); err != nil {
				return nil, driver.Permanent(fmt.Errorf("postgres: value %d: %w", i+1, err))
			}
		}
	}
	return values, nil
}

// exchange sends the statement and returns its answer as soon as it is committed.
//
// It is one transaction, and nothing follows it before its answer has come: PgBouncer 1.18
// gives a server's connection to the next client when a client disconnects between the
// answers of two transactions, and from then on each client gets the answer for another.
func (s *Store) exchange(conn *pgx.Conn, st *statement, values [][]byte, changed string, answered chan<- answer) {
	pg := conn.PgConn()
	data := pg.CustomData()
	delete(data, unconfirmedKey)
	p := pg.StartPipeline(context.Background())
	prepared, _ := data[preparedKey].(map[string]*pgconn.StatementDescription)
	if prepared == nil {
		prepared = map[string]*pgconn.StatementDescription{}
		data[preparedKey] = prepared
	}
	switch {
	case !prepares(conn, data):
		p.SendQueryParams(st.sql, values, st.oids, inBinary, inBinary)
	case prepared[st.name] == nil:
		p.SendPrepare(st.name, st.sql, st.oids)
		p.SendQueryPrepared(st.name, values, inBinary, inBinary)
	default:
		p.SendQueryStatement(prepared[st.name], values, inBinary, inBinary)
	}
	p.SendPipelineSync()
	var a answer
	if a.err = p.Flush(); a.err == nil {
		a = collect(p, func(d *pgconn.StatementDescription) {
			d.Name = st.name
			prepared[st.name] = d
		})
	}
	var e *pgconn.PgError
	switch {
	case errors.As(a.err, &e) && e.Code == "26000":
		delete(prepared, st.name) // it is gone
	case e != nil && (e.Code == "0A000" || e.Code == "42P05"):
		defer conn.Close(context.Background()) //nolint:errcheck // it is of a table that has changed, and in the way of another
	case a.err == nil && data[unconfirmedKey] == true:
		a.err = errUnconfirmed
	}
	if a.err != nil {
		s.renew(pg, a.err)
	}
	if changed != "" {
		s.tell.note(changed) // even if the outcome is unknown
	}
	answered <- a
	_ = p.Close() // all of it has been read, or the connection is broken
}

// prepares reports whether the config of a connection has statements prepared, and
// remembers it: to read the config is to copy it.
func prepares(conn *pgx.Conn, data map[string]any) bool {
	does, known := data[preparesKey].(bool)
	if !known {
		does = conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
		data[preparesKey] = does
	}
	return does
}

// collect reads until the transaction has ended. Before that nothing is certain, not even
// rows that have arrived.
func collect(p *pgconn.Pipeline, prepared func(*pgconn.StatementDescription)) (a answer) {
	for {
		result, err := p.GetResults()
		if err != nil {
			if a.err == nil {
				a.err = err
			}
			if e := (*pgconn.PgError)(nil); !errors.As(err, &e) {
				return answer{err: a.err} // the connection is broken
			}
			continue
		}
		switch result := result.(type) {
		case nil:
			if a.err == nil {
				a.err = errors.New("the connection ended without an answer")
			}
			return answer{err: a.err}
		case *pgconn.StatementDescription:
			prepared(result)
		case *pgconn.PipelineSync:
			return a
		case *pgconn.ResultReader:
			for result.NextRow() {
				r, err := rowOf(result.Values())
				if err != nil && a.err == nil {
					a.err = driver.Permanent(fmt.Errorf("a row cannot be decoded: %w", err))
				}
				a.rows = append(a.rows, r)
			}
			tag, err := result.Close()
			a.changed = tag.RowsAffected()
			if err != nil && a.err == nil {
				a.err = err
			}
		}
	}
}
