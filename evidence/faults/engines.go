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
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
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

// engine is what clients keep their locks in, on this machine.
type engine struct {
	name, program string // as the page and as scripts/engines call it
	flag, usage   string
	address       string
}

func newEngines() []engine {
	return []engine{
		{dynamoDB, "dynoxide", "engine", "the `URL` of a DynamoDB engine", ""},
		{postgreSQL, "postgres", "postgres", "the `URL` of a PostgreSQL whose user may make schemas", ""},
		{etcd, "etcd", "etcd", "the `URL` of an etcd, for its concurrency package and Tenure", ""},
		{zooKeeper, "zookeeper", "zookeeper", "the `address` of a ZooKeeper, HOST:PORT, for Tenure", ""},
		{kubernetes, "kubernetes", "kubernetes", "the `kubeconfig` of an API server whose user may make namespaces", ""},
		{bucket, "versitygw", "bucket", "the `URL` of a server of S3's protocol, for Tenure", ""},
	}
}

// variable is that of the environment which names the address.
func (e engine) variable() string {
	kind, err := launcher.Find(e.program)
	if err != nil {
		panic(err) //nolint:forbidigo // the table above names engines that there are
	}
	return kind.Variable
}

// version says what the engine is.
func (e engine) version(ctx context.Context) (string, error) {
	kind, err := launcher.Find(e.program)
	if e.name == postgreSQL { // it is the system's
		kind.Version, err = postgresVersion(ctx, e.address)
	}
	return fmt.Sprintf("%s %s, one server, on loopback", kind.Name, kind.Version), err
}

func postgresVersion(ctx context.Context, server string) (version string, err error) {
	pool, err := pgxpool.New(ctx, server)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	err = pool.QueryRow(ctx, "SHOW server_version").Scan(&version)
	return version, err
}

// chosenEngines are those that columns need. Each must have an address.
func chosenEngines(all []engine, chosen []column) (map[string]engine, error) {
	needed := map[string]engine{}
	for _, e := range all {
		if !slices.ContainsFunc(chosen, func(c column) bool { return c.engine == e.name }) {
			continue
		}
		if e.address == "" {
			return nil, fmt.Errorf("there is no %s: scripts/engines run %s -- go run ./evidence/faults starts it, or name it in %s",
				e.name, e.program, e.variable())
		}
		needed[e.name] = e
	}
	return needed, nil
}

// place is where one client keeps its locks in one row.
type place struct {
	table   string // in the request to open a client: a table, a prefix, a root or a namespace
	secret  string // the same
	direct  string // the address of the engine
	gate    func(owner string) (gate.Gate, error)
	reached func(address string) (string, error) // how a client is told of the address of a gate; nil: as it is
	url     func(endpoint string) string         // how Tenure's command names the store
	forget  func(ctx context.Context, lock string) error
	close   func(context.Context)
}

// opener makes a place.
type opener func(context.Context, *scene) (*place, error)

// preparedLocks is for how many locks of a scene things are made beforehand: River's tables,
// folders in ZooKeeper. Those rows that need it take no more.
const preparedLocks = 6

func onDynamoDB(ctx context.Context, s *scene) (*place, error) {
	at := s.engines[dynamoDB].address
	table, err := dynamo.NewTable(ctx, dynamo.Connect(at), "tenure-faults")
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
		close: func(ctx context.Context) { _ = table.Drop(ctx) }, // the engine is in memory, and ended soon
	}, err
}

// onEtcd is the place of etcd's concurrency package, whose release deletes the record.
func onEtcd(_ context.Context, s *scene) (*place, error) {
	at, err := s.engines[etcd].host()
	return &place{direct: at, gate: func(string) (gate.Gate, error) { return gate.NewTCP(at) }}, err
}

// host is the engine's host and port.
func (e engine) host() (string, error) {
	if e.name == zooKeeper {
		return e.address, nil
	}
	u, err := url.Parse(e.address)
	if err != nil {
		return "", err
	}
	return u.Host, nil
}

// postgresURL is the URL of a server by way of another host and port.
func postgresURL(server, address string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	u.Host = address
	return u.String(), nil
}

// onRiver is the place of River: a schema for each lock, since a schema has one election.
func onRiver(ctx context.Context, s *scene) (*place, error) {
	server := s.engines[postgreSQL]
	at, err := server.host()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, server.address)
	if err != nil {
		return nil, err
	}
	p := &place{
		direct:  at,
		gate:    func(string) (gate.Gate, error) { return gate.NewTCPWrites(at, riverWrites) },
		reached: func(address string) (string, error) { return postgresURL(server.address, address) },
		close: func(ctx context.Context) {
			for n := range preparedLocks {
				_, _ = pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+riverSchema(s.named(n+1))+" CASCADE") // the server is ended soon
			}
			pool.Close()
		},
	}
	for n := range preparedLocks {
		schema := riverSchema(s.named(n + 1))
		if _, err := pool.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
			return nil, err
		}
		config := rivermigrate.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)}
		migrator, err := rivermigrate.New(riverpgxv5.New(pool), &config)
		if err != nil {
			return nil, err
		}
		if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return nil, err
		}
	}
	return p, nil
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

// writeFile writes a file of a name that nobody has, and returns its path.
func writeFile(dir, name, text string) (string, error) {
	file, err := os.CreateTemp(dir, name)
	if err != nil {
		return "", err
	}
	if _, err := file.WriteString(text); err != nil {
		_ = file.Close()
		return "", err
	}
	return file.Name(), file.Close()
}
