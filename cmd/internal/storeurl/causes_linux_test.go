// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/pgstore"
)

// cause is one way in which a store cannot be used, and what an acquire says of it.
type cause struct {
	name string
	// url is the URL of the store. If it is empty, open is called.
	url  string
	open func(t *testing.T) driver.Store
	// meanwhile happens after the store has answered once; nil: it is asked at once.
	meanwhile func(t *testing.T)
	says      string
}

// TestEachCauseIsNamed: on the engines that are servers of their own, what a person reads when the
// lock cannot be had. What a command finds as it begins, the scripts of package cli show.
func TestEachCauseIsNamed(t *testing.T) {
	enginetest.MakeVerify(t)
	for engine, causes := range map[string]func(*testing.T) []cause{
		"etcd": etcdCauses, "postgres": postgresCauses, "zookeeper": zooKeeperCauses,
	} {
		t.Run(engine, func(t *testing.T) {
			for _, c := range causes(t) {
				t.Run(c.name, c.test)
			}
		})
	}
}

func (c cause) test(t *testing.T) {
	err := c.happens(t)
	if err == nil || !strings.Contains(err.Error(), c.says) {
		t.Errorf("it says\n\t%v\nwhich does not name\n\t%s", err, c.says)
	}
	if err != nil && strings.Contains(err.Error(), "LeaseDuration") && !strings.Contains(c.says, "LeaseDuration") {
		t.Errorf("it advises a longer lease: %v", err)
	}
}

func (c cause) happens(t *testing.T) error {
	var store driver.Store
	if c.url != "" {
		at, err := Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if store, err = at.Open(); err != nil {
			return err
		}
	} else {
		store = c.open(t)
	}
	defer store.Close() // it may be what cannot be reached
	client, err := tenure.New(store, &tenure.Options{LeaseDuration: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(endedContext()) // so may this
	if c.meanwhile != nil {
		if _, err := client.Status(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		c.meanwhile(t)
	}
	_, err = client.TryAcquire(t.Context(), "x", nil)
	return err
}

func endedContext() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	return ctx
}

func etcdCauses(t *testing.T) []cause {
	m := enginetest.StartEtcd(t, 1)[0]
	at := strings.TrimPrefix(m.URL, "http://")
	addUsers(t, m.URL, "before", "before")
	front := newTLSFront(t, at)
	full := enginetest.StartEtcd(t, 1, "--quota-backend-bytes", "65536")[0]
	return []cause{
		{name: "untrusted certificate", url: "etcds://" + front.addr + "/p", says: "certificate signed by unknown authority"},
		{
			name: "certificate changed", url: "etcds://locks:before@" + front.addr + "/p?ca=" + front.file,
			meanwhile: front.change, says: "failed to verify certificate",
		},
		{name: "no encryption there", url: "etcds://" + at + "/p", says: "TLS handshake: "},
		{
			name: "the quota is full", url: "etcd://" + strings.TrimPrefix(full.URL, "http://") + "/p",
			meanwhile: func(t *testing.T) { fill(t, full.URL) }, says: "the quota is full",
		},
		{
			name: "the password changed", url: "etcd://locks:before@" + at + "/p", says: "the user or its password is wrong",
			meanwhile: func(t *testing.T) {
				root, err := clientv3.New(clientv3.Config{Endpoints: []string{m.URL}, Username: "root", Password: "before"})
				if err != nil {
					t.Fatal(err)
				}
				defer root.Close() // it has done its work
				if _, err := root.UserChangePassword(t.Context(), "locks", "after"); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "stopped", url: "etcd://locks:after@" + at + "/p", meanwhile: func(*testing.T) { m.Stop() },
			says: "use a longer lease",
		},
		{
			name: "killed", url: "etcd://" + strings.TrimPrefix(full.URL, "http://") + "/p",
			meanwhile: func(*testing.T) { full.Kill() }, says: "connection refused",
		},
	}
}

// fill writes until etcd refuses.
func fill(t *testing.T, url string) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() // it has done its work
	for i := range 1000 {
		if _, err := client.Put(t.Context(), fmt.Sprint("fill", i), strings.Repeat("x", 10_000)); err != nil {
			return
		}
	}
	t.Fatal("etcd takes all of it")
}

func postgresCauses(t *testing.T) []cause {
	s := enginetest.StartPostgreSQL(t, "max_connections=20", "superuser_reserved_connections=0")
	direct := func(t *testing.T) *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), s.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		return conn
	}
	const roles = "CREATE ROLE still SUPERUSER LOGIN; ALTER ROLE still SET " +
		"default_transaction_read_only = on; CREATE ROLE one LOGIN CONNECTION LIMIT 0"
	if _, err := direct(t).Exec(t.Context(), roles); err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 3
	pgstore.Configure(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pgstore.CreateTable(t.Context(), pool, pgstore.DefaultTable); err != nil {
		t.Fatal(err)
	}
	at := func(user string) string { return "postgres://" + user + "@" + s.Addr + "/postgres?sslmode=disable" }
	return []cause{
		{name: "the pool is used up", open: func(t *testing.T) driver.Store {
			store, err := pgstore.New(pool, nil)
			if err != nil {
				t.Fatal(err)
			}
			return store
		}, meanwhile: func(t *testing.T) {
			for range 3 {
				conn, err := pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(conn.Release)
			}
		}, says: "all 3 connections of the pool are in use, 3 of them by the program's own work"},
		{name: "read-only", url: at("still"), says: "the server is a standby, or read-only"},
		{name: "no connection left", url: at("one"), says: "too many connections for role"},
		{name: "the table is locked", url: at("tenure"), meanwhile: func(t *testing.T) {
			tx, err := direct(t).Begin(t.Context())
			if err == nil {
				_, err = tx.Exec(t.Context(), "LOCK TABLE "+pgstore.DefaultTable)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, says: "use a longer lease"},
		{
			name: "the server was killed", url: at("tenure"), meanwhile: func(*testing.T) { s.Kill() },
			says: "connection refused",
		},
	}
}

func zooKeeperCauses(t *testing.T) []cause {
	z := enginetest.StartZooKeeper(t, 1, "forceSync=no")[0]
	plain := "zookeeper://" + z.Addr + "/p"
	front := newTLSFront(t, z.Addr)
	return []cause{
		{name: "no encryption there", url: plain + "?ca=" + newTLSFront(t, z.Addr).file, says: "TLS handshake: "},
		{
			name: "certificate changed", url: "zookeeper://" + front.addr + "/p?ca=" + front.file, meanwhile: front.change,
			says: "failed to verify certificate",
		},
		{name: "killed", url: plain, meanwhile: func(*testing.T) { z.Kill() }, says: "connection refused"},
	}
}

// tlsFront ends encryption in front of an engine.
type tlsFront struct {
	addr string
	cert chan tls.Certificate // has the certificate that the server shows
	stop chan func()
	file string
}

func newTLSFront(t *testing.T, engine string) *tlsFront {
	t.Helper()
	f := &tlsFront{cert: make(chan tls.Certificate, 1), stop: make(chan func(), 1)}
	first := issue(t)
	f.cert <- first.own.Certificate
	f.file = filepath.Join(t.TempDir(), "ca.pem")
	write(t, f.file, string(first.ca.Text))
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		NextProtos: []string{"h2"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c := <-f.cert
			f.cert <- c
			return &c, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	f.addr = l.Addr().String()
	conns := make(chan net.Conn, 100)
	f.stop <- func() {
		for len(conns) > 0 {
			_ = (<-conns).Close()
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns <- conn
			go func() {
				defer conn.Close() // it is over
				to, err := net.Dial("tcp", engine)
				if err != nil {
					return
				}
				defer to.Close()                                           // likewise
				go func() { _, _ = io.Copy(conn, to); _ = conn.Close() }() // ends with the engine's side
				_, _ = io.Copy(to, conn)
			}()
		}
	}()
	return f
}

// change shows another certificate from now on, and ends the connections.
func (f *tlsFront) change(t *testing.T) {
	<-f.cert
	f.cert <- issue(t).own.Certificate
	stop := <-f.stop
	stop()
}
