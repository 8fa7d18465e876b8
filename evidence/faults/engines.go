// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/must"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// The engines, as the page calls them.
const (
	dynamoDB   = "DynamoDB"
	postgreSQL = "PostgreSQL"
	etcd       = "etcd"
	zooKeeper  = "ZooKeeper"
	kubernetes = "Kubernetes"
	bucket     = "a bucket"
)

// engines are what clients keep their locks in, and what scripts/engines calls that.
var engines = map[string]string{
	dynamoDB: "dynoxide", postgreSQL: "postgres", etcd: "etcd", zooKeeper: "zookeeper", kubernetes: "kubernetes",
	bucket: "versitygw",
}

// engineOf is the kind of a column's engine.
func engineOf(c column) launcher.Kind { return must.Have(launcher.Find(engines[c.engine])) }

// need takes down the address of a column's engine, if it has one.
func (r *rig) need(c column) {
	if c.engine == "" {
		return
	}
	kind := engineOf(c)
	address := os.Getenv(kind.Variable)
	if address == "" {
		must.Do(fmt.Errorf("there is no %s: scripts/engines run %s -- go run ./evidence/faults starts it, or name it in %s",
			c.engine, kind.Name, kind.Variable))
	}
	r.engines[c.engine] = address
}

// versionOf says what a column's engine is.
func (r *rig) versionOf(ctx context.Context, c column) string {
	kind := engineOf(c)
	switch c.engine {
	case dynamoDB:
		return must.Have(machine.Engine(ctx, r.engines[c.engine]))
	case postgreSQL: // it is the system's
		pool := must.Have(pgxpool.New(ctx, r.engines[c.engine]))
		defer pool.Close()
		must.Do(pool.QueryRow(ctx, "SHOW server_version").Scan(&kind.Version))
	}
	return fmt.Sprintf("%s %s, one server, on loopback", kind.Name, kind.Version)
}

// place is where one client keeps its locks in one row.
type place struct {
	table   string // in the request to open a client: a table, a prefix, a root or a namespace
	secret  string // the same
	direct  string // the address of the engine
	gate    func(owner string) (gate.Gate, error)
	reached func(address string) string  // how a client is told of the address of a gate; nil: as it is
	url     func(endpoint string) string // how Tenure's command names the store
	forget  func(ctx context.Context, lock string) error
}

// endpoint is how a client is told of an address, that of a gate or of the engine.
func (p *place) endpoint(address string) string {
	if p.reached == nil {
		return address
	}
	return p.reached(address)
}

// opener makes a place. It is for [must.Try].
type opener func(context.Context, *scene) *place

// preparedLocks is for how many locks of a scene things are made beforehand: River's tables,
// folders in ZooKeeper. Those rows that need it take no more.
const preparedLocks = 6

func onDynamoDB(ctx context.Context, s *scene) *place {
	at := s.engines[dynamoDB]
	table := must.Have(dynamo.NewTable(ctx, dynamo.Connect(at), "tenure-faults"))
	s.after(func() { _ = table.Drop(ctx) }) // the engine is in memory, and ended soon
	return &place{
		table: table.Name, direct: at,
		gate: func(string) (gate.Gate, error) { return gate.NewDynamoDB(at) },
		url: func(endpoint string) string {
			return "dynamodb://" + table.Name + "?region=" + dynamo.Region + "&endpoint=" + url.QueryEscape(endpoint)
		},
		forget: func(ctx context.Context, lock string) error {
			key := map[string]types.AttributeValue{"key": &types.AttributeValueMemberS{Value: lock}}
			_, err := table.DB.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &table.Name, Key: key})
			return err
		},
	}
}

// onEtcd is the place of etcd's concurrency package, whose release deletes the record.
func onEtcd(_ context.Context, s *scene) *place {
	at := s.host()
	return &place{direct: at, gate: func(string) (gate.Gate, error) { return gate.NewTCP(at) }}
}

// host is the host and port of the column's engine.
func (s *scene) host() string {
	if address := s.engines[s.engine]; strings.Contains(address, "://") {
		return must.Have(url.Parse(address)).Host
	}
	return s.engines[s.engine]
}

// reachedBy is how a client is told of an address: by the URL of the column's engine, with a query
// besides.
func (s *scene) reachedBy(query string) func(address string) string {
	return func(address string) string {
		u := must.Have(url.Parse(s.engines[s.engine]))
		u.Host, u.RawQuery = address, strings.Trim(u.RawQuery+"&"+query, "&")
		return u.String()
	}
}

// database is a pool of connections to PostgreSQL, and what is done there at the scene's end.
func (s *scene) database(ctx context.Context, ends ...string) *pgxpool.Pool {
	pool := must.Have(pgxpool.New(ctx, s.engines[postgreSQL]))
	s.after(func() {
		for _, statement := range ends {
			_, _ = pool.Exec(context.WithoutCancel(ctx), statement) // the server is ended soon
		}
		pool.Close()
	})
	return pool
}

// onRiver is the place of River: a schema for each lock, since a schema has one election.
func onRiver(ctx context.Context, s *scene) *place {
	var schemas, ends []string
	for n := range preparedLocks {
		schemas = append(schemas, riverSchema(s.named(n+1)))
		ends = append(ends, "DROP SCHEMA IF EXISTS "+schemas[n]+" CASCADE")
	}
	pool := s.database(ctx, ends...)
	for _, schema := range schemas {
		must.Have(pool.Exec(ctx, "CREATE SCHEMA "+schema))
		config := rivermigrate.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)}
		migrator := must.Have(rivermigrate.New(riverpgxv5.New(pool), &config))
		must.Have(migrator.Migrate(ctx, rivermigrate.DirectionUp, nil))
	}
	at := s.host()
	return &place{
		direct:  at,
		gate:    func(string) (gate.Gate, error) { return gate.NewTCPWrites(at, riverWrites) },
		reached: s.reachedBy(""),
	}
}

// riverSchema is where River has the tables of a lock.
func riverSchema(lock string) string { return strings.ReplaceAll(lock, "-", "_") }

// riverWrites tells a gate what River's writes of its election are: the commit of a bid,
// and a renewal. Each of River's statements has its name in a comment.
func riverWrites() func([]byte) bool {
	bidding := false
	return func(piece []byte) bool {
		switch {
		case bytes.Contains(piece, []byte("LeaderAttemptElect")):
			bidding = true
		case bidding && (bytes.Contains(piece, []byte("commit")) || bytes.Contains(piece, []byte("rollback"))):
			bidding = false
			return bytes.Contains(piece, []byte("commit"))
		}
		return bytes.Contains(piece, []byte("LeaderAttemptReelect"))
	}
}
