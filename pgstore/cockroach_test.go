// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// cockroach answers on a connection as CockroachDB does: it names itself when the
// connection is established, unless a pooler is in between, and by version(). It refuses
// everything else.
func cockroach(conn net.Conn, pooled bool) {
	defer conn.Close()
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: "13.0.0"})
	if !pooled {
		b.Send(&pgproto3.ParameterStatus{Name: "crdb_version", Value: "CockroachDB CCL v25.2.1"})
	}
	sql := ""
	for ready := true; ; {
		if ready {
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			if b.Flush() != nil {
				return
			}
		}
		message, err := b.Receive()
		if err != nil {
			return
		}
		ready = false
		switch m := message.(type) {
		case *pgproto3.Parse:
			sql = m.Query
		case *pgproto3.Query:
			sql, ready = m.String, true
		case *pgproto3.Sync:
			ready = true
		}
		switch {
		case !ready:
		case strings.Contains(sql, "version()"):
			b.Send(&pgproto3.ParseComplete{})
			b.Send(&pgproto3.BindComplete{})
			b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("version"), DataTypeOID: 25, DataTypeSize: -1, TypeModifier: -1}}})
			b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte("CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu, built 2025/06/24)")}})
			b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		default:
			b.Send(&pgproto3.ErrorResponse{
				Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "0A000",
				Message: "multiple mutations of the same table are not supported unless they all use INSERT without ON CONFLICT",
			})
		}
	}
}

// TestUntestedEngine: an engine that is not PostgreSQL is refused by its name, unless the
// options admit it. Then a claim looks first, and nothing notifies.
func TestUntestedEngine(t *testing.T) {
	database := enginetest.Database(t, enginetest.PostgreSQL(t))
	renameEngine(t, database)
	if _, err := Open(t.Context(), database, nil); !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) ||
		!strings.Contains(err.Error(), "this is "+another+", with which Tenure was not tested") {
		t.Errorf("Open: %v", err)
	}
	relay := enginetest.NewRelay(t, hostOf(t, database))
	s, err := Connect(through(t, database, relay.Addr), &Options{Untested: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Create(t.Context(), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if ask[bool](t, database, "SELECT EXISTS (SELECT FROM pg_class WHERE relname LIKE 'tenure%view')") {
		t.Error("it has created a view, whose functions not every engine has")
	}
	other := mustOpenWith(t, database, &Options{Untested: true})
	if stop, err := s.Watch(t.Context(), "lock", func() {}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Watch: %v", err)
		stop()
	}
	d, err := s.Describe(t.Context(), driver.Timing{})
	if err != nil || len(d.Findings) != 1 || !strings.Contains(d.Findings[0].Finding, another) {
		t.Errorf("Describe: %+v, %v", d, err)
	}
	relay.Trips()
	var rec driver.Record
	costs := func(what string, want int, err error) {
		t.Helper()
		if n := relay.Trips(); err != nil || n != want {
			t.Errorf("%s: %d round trips, %v; want %d", what, n, err, want)
		}
	}
	rec, _, err = s.Claim(t.Context(), held("lock"))
	costs("claim of an absent lock", 2, err)
	_, _, err = s.Claim(t.Context(), held("lock"))
	if is, ok := isConflict(err); !ok || is.Version != rec.Version {
		t.Errorf("claim of a held lock: %v", err)
	}
	costs("claim of a held lock", 1, nil)
	rec, err = s.Swap(t.Context(), rec, released(rec))
	costs("release", 1, err)
	rec, _, err = s.Claim(t.Context(), held("lock"))
	costs("claim of a lock that was released here", 1, err)
	rec = enginetest.Swap(t, other, rec, released(rec))
	rec, prev, err := s.Claim(t.Context(), held("lock"))
	costs("claim of a lock that was released elsewhere", 2, err)
	if rec.Token != 3 || rec.Prev == nil || rec.Prev.Token != 2 || prev.State != driver.Released {
		t.Errorf("token %d after %+v", rec.Token, rec.Prev)
	}
	costs("delete", 1, s.Delete(t.Context(), rec))
}

// TestCockroachDB: an error names a server that speaks the protocol of PostgreSQL but is
// another product, when the store is opened, at its first use, and when the table is
// created.
func TestCockroachDB(t *testing.T) {
	for name, pooled := range map[string]bool{"straight": false, "behind a pooler": true} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go cockroach(conn, pooled)
				}
			}()
			url := "postgres://app@" + listener.Addr().String() + "/app?sslmode=disable"
			check := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), "this is CockroachDB") {
					t.Errorf("%s: %v", what, err)
				}
			}
			s, err := Open(t.Context(), url, nil)
			check("Open", err)
			if s != nil {
				t.Error("Open returns a store")
			}
			pool, err := pgxpool.New(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			check("CreateTable", CreateTable(t.Context(), pool, ""))
			if s, err = New(pool, nil); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, err = s.Inspect(t.Context())
			check("Inspect", err)
			if !pooled {
				_, _, err = s.Claim(t.Context(), held("k"))
				check("Claim", err)
				_, err = s.Get(t.Context(), "k", driver.Strong)
				check("Get", err)
			}
		})
	}
}
