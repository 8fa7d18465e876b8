// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/internal/enginetest/relay"
	"github.com/tenurelock/tenure/k8sstore"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/harness/dynamo"
	"github.com/tenurelock/tenure/test/harness/gate"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/postgres"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers/serve"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// engine is where clients keep their locks.
type engine struct {
	title string // as the page calls it
	name  string // as scripts/engines does

	// Of Tenure's store there, if it has its own column. A fixture has a place for
	// itself, in which WORD is replaced by the fixture's word.
	place  string
	url    string // as Tenure's command has it, at AT and in PLACE
	scheme string // of [replica.OpenStore]; AT is behind it
}

var (
	dynamoDB    = &engine{title: "DynamoDB", name: "dynoxide"}
	postgreSQL  = &engine{"PostgreSQL", "postgres", "tenure_faults_WORD", "AT&table=PLACE", ""}
	etcd        = &engine{"etcd", "etcd", "tenure-faults-WORD/", "etcd://AT/PLACE", "etcd:"}
	zookeeper   = &engine{"ZooKeeper", "zookeeper", "/tenure-faults-WORD", "zookeeper://ATPLACE", "zookeeper:"}
	redisEngine = &engine{"Redis", "redis", "tenure-faults-WORD", "redis://AT&prefix=PLACE", "redis:"}
	kubernetes  = &engine{
		"Kubernetes", "kubernetes", "tenure-faults-WORD", "kubernetes://PLACE?kubeconfig=AT", "kubernetes:",
	}
	bucket = &engine{
		"a bucket", "versitygw", "tenure-faults-WORD/",
		"s3://" + replica.Bucket + "/PLACE?path_style=1&region=" + launcher.S3Region + "&endpoint=http://AT", "s3:",
	}
)

// kind is the engine's, for scripts that start it.
func (e *engine) kind() launcher.Kind { return must.Have(launcher.Find(e.name)) }

// at is the address of the engine.
func (e *engine) at() string {
	kind := e.kind()
	address := os.Getenv(kind.Variable)
	if address == "" {
		must.Do(fmt.Errorf("there is no %s: scripts/engines run %s -- go run ./test/faults starts it, or name it in %s",
			e.title, e.name, kind.Variable))
	}
	return address
}

// host is the host and port of the engine.
func (e *engine) host() string {
	if address := e.at(); strings.Contains(address, "://") {
		return must.Have(url.Parse(address)).Host
	}
	return e.at()
}

// place is where one client keeps its locks in one row.
type place struct {
	table   string // in the request to open a client: a table, a prefix, a root or a namespace
	secret  string // the same
	direct  string // the address of the engine
	gate    func(owner string) gate.Gate
	reached func(address string) string // how a client names the address of a gate; nil: as it is
	prepare func(ctx context.Context, lock string)
	url     func(endpoint string) string // how Tenure's command names the store
	forget  func(ctx context.Context, lock string) error
}

// endpoint is how a client names the address of a gate or of the engine.
func (p *place) endpoint(address string) string {
	if p.reached == nil {
		return address
	}
	return p.reached(address)
}

// openFunc makes a place. It is for [must.Try].
type openFunc func(context.Context, *fixture) *place

func onDynamoDB(ctx context.Context, s *fixture) *place {
	at := dynamoDB.at()
	table := must.Have(dynamo.NewTable(ctx, dynamo.Connect(at), "tenure-faults"))
	s.After(func() { _ = table.Drop(ctx) }) // the engine is in memory, and ended soon
	return &place{
		table: table.Name, direct: at,
		gate: func(string) gate.Gate { return gate.NewDynamoDB(at, false) },
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
func onEtcd(context.Context, *fixture) *place {
	at := etcd.host()
	return &place{direct: at, gate: func(string) gate.Gate { return must.Have(relay.New(at)) }}
}

// reachedBy names an address by the URL of the engine, with a query.
func (e *engine) reachedBy(query string) func(address string) string {
	return func(address string) string {
		u := must.Have(url.Parse(e.at()))
		u.Host, u.RawQuery = address, strings.Trim(u.RawQuery+"&"+query, "&")
		return u.String()
	}
}

// database is a pool of connections to PostgreSQL.
func (s *fixture) database(ctx context.Context) *pgxpool.Pool {
	pool := must.Have(pgxpool.New(ctx, postgreSQL.at()))
	s.After(pool.Close)
	return pool
}

// onRiver is the place of River: a schema for each lock, since a schema has one election.
func onRiver(ctx context.Context, s *fixture) *place {
	pool, at := s.database(ctx), postgreSQL.host()
	return &place{
		direct:  at,
		gate:    func(string) gate.Gate { return must.Have(relay.NewWrites(at, riverWrites)) },
		reached: postgreSQL.reachedBy(""),
		prepare: func(ctx context.Context, lock string) {
			schema := riverSchema(lock)
			must.Have(pool.Exec(ctx, "CREATE SCHEMA "+schema))
			s.After(func() { // the server is ended soon
				_, _ = pool.Exec(context.WithoutCancel(ctx), "DROP SCHEMA "+schema+" CASCADE")
			})
			config := rivermigrate.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)}
			migrator := must.Have(rivermigrate.New(riverpgxv5.New(pool), &config))
			must.Have(migrator.Migrate(ctx, rivermigrate.DirectionUp, nil))
		},
	}
}

// riverSchema is where River has the tables of a lock.
func riverSchema(lock string) string { return strings.ReplaceAll(lock, "-", "_") }

// riverWrites lets a gate recognize the writes of River's election: the commit of a bid,
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

// openStore makes a place of Tenure on another store.
func openStore(ctx context.Context, s *fixture) *place { return s.storeAt(ctx, s.engine.host(), "") }

// storeAt makes it at an address. How is what the URL of a store says about the servers that follow the one there.
func (s *fixture) storeAt(ctx context.Context, address, how string) *place {
	p := &place{table: strings.ReplaceAll(s.engine.place, "WORD", s.word), direct: address}
	p.url = func(at string) string { return strings.NewReplacer("AT", at, "PLACE", p.table).Replace(s.engine.url) }
	p.gate = func(owner string) gate.Gate {
		// A record has its owner in it, whatever the store. So what is sent with the owner in it
		// is a write of a record; a read, a watch or a keep-alive of a connection is not.
		return must.Have(relay.NewWrites(p.direct, func() func([]byte) bool {
			return func(piece []byte) bool { return bytes.Contains(piece, []byte(owner)) }
		}))
	}
	switch {
	case s.engine == postgreSQL && how != "":
		p.reached = func(address string) string { return postgres.URL(address) + how }
	case s.engine == postgreSQL:
		// The connections that a store opens by default are enough for 1,000 locks at 10 ms with little
		// to spare.
		p.reached = postgreSQL.reachedBy("pool_max_conns=64")
		pool := s.database(ctx)
		must.Do(pgstore.CreateTable(ctx, pool, p.table))
		s.After(func() { _, _ = pool.Exec(context.WithoutCancel(ctx), "DROP TABLE "+p.table) }) // the server is ended soon
	case s.engine == redisEngine:
		p.reached = func(address string) string { return address + "?lease=" + s.lease.String() + how }
	case s.engine == kubernetes:
		p.prepareKubernetes(ctx)
		p.reached = func(address string) string {
			if address == p.direct {
				return address // the file of the engine
			}
			return s.file("kubeconfig-", `apiVersion: v1
kind: Config
clusters: [{name: gate, cluster: {server: "`+address+`"}}]
contexts: [{name: gate, context: {cluster: gate}}]
current-context: gate
`)
		}
	}
	records := replica.OpenStore(s.engine.scheme+p.endpoint(p.direct), p.table)
	s.After(func() { _ = records.Close() }) // the engine is ended soon
	if s.engine == redisEngine || how != "" {
		create(ctx, records)
	}
	p.forget = func(ctx context.Context, lock string) error {
		rec, err := records.Get(ctx, lock, driver.Strong)
		if err != nil {
			return err
		}
		return records.Delete(ctx, rec)
	}
	// A program finds a store that was used before. In ZooKeeper the first record of a folder
	// takes more than one write.
	p.prepare = func(ctx context.Context, lock string) {
		bound, cancel := context.WithTimeout(ctx, wait.Bound) // it has to connect
		defer cancel()
		rec, _, err := records.Claim(bound, driver.Record{
			Key: lock, Version: "prepared", Beat: "prepared", Owner: "faults", State: driver.Held, Lease: s.lease,
		})
		must.Do(err)
		must.Do(records.Delete(bound, rec))
	}
	return p
}

// create makes a store that must be made first.
func create(ctx context.Context, store driver.Store) {
	made := store.(driver.Provisioner) //nolint:forcetypeassert // its package says so
	must.Have(made.Create(ctx, driver.CreateOptions{}))
}

// onRedis is the place of a library on Redis. All that it sends about a lock is a write.
func onRedis(_ context.Context, s *fixture) *place { return s.redisAt(redisEngine.host()) }

func (s *fixture) redisAt(address string) *place {
	return &place{direct: address, gate: func(string) gate.Gate {
		return must.Have(relay.NewWrites(address, func() func([]byte) bool {
			return func(piece []byte) bool { return bytes.Contains(piece, []byte(s.word)) }
		}))
	}}
}

// tenureOn is this library on a store, whose place is the request's table. The store is closed with
// the process.
func tenureOn(e *engine) serve.Library {
	return serve.Library{Open: func(r *wire.Request) serve.Client {
		return serve.TenureOn(replica.OpenStore(e.scheme+r.Endpoint, r.Table), r)
	}}
}

// prepareKubernetes makes a namespace on an API server. Clients speak to a gate without TLS, which
// speaks to the server by TLS, as the user of the kubeconfig.
func (p *place) prepareKubernetes(ctx context.Context) {
	config, _, err := k8sstore.Config(p.direct, "")
	must.Do(err)
	target := must.Have(url.Parse(config.Host))
	namespace := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.table}}
	client := must.Have(clientset.NewForConfig(config))
	must.Have(client.CoreV1().Namespaces().Create(ctx, &namespace, metav1.CreateOptions{}))
	server := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     must.Have(rest.TransportFor(config)),
		FlushInterval: -1, // a watch tells at once
		// Of processes that were killed in the middle of a request.
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) },
	}
	p.gate = func(string) gate.Gate { return gate.NewHTTP(server, isWrite) }
}

// isWrite reports whether a request to an API server changes something.
func isWrite(r *http.Request) bool { return r.Method != http.MethodGet }

// leaseAPI is the part of a Kubernetes API server that client-go's lease lock
// talks to: leases of coordination.k8s.io/v1, with the same check of the resource
// version. An update that names another version than the stored one is a conflict.
type leaseAPI struct {
	mu      sync.Mutex
	version int64
	leases  map[string]coordination.Lease // by name
}

// onLeaseAPI is the place of client-go.
func onLeaseAPI(context.Context, *fixture) *place {
	api := &leaseAPI{leases: map[string]coordination.Lease{}}
	return &place{
		gate: func(string) gate.Gate {
			return gate.NewHTTP(api, isWrite)
		},
		forget: func(_ context.Context, lock string) error {
			api.mu.Lock()
			defer api.mu.Unlock()
			delete(api.leases, lock)
			return nil
		},
	}
}

func (a *leaseAPI) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	lease, err := a.act(r)
	code, body := http.StatusOK, any(lease)
	switch {
	case err != nil:
		code, body = int(err.ErrStatus.Code), err.ErrStatus
	case r.Method == http.MethodPost:
		code = http.StatusCreated
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	_ = json.NewEncoder(rw).Encode(body) // the client may be gone
}

func (a *leaseAPI) act(r *http.Request) (*coordination.Lease, *errors.StatusError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	resource := coordination.Resource("leases")
	var sent coordination.Lease
	name := path.Base(r.URL.Path)
	if r.Method != http.MethodGet {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			return nil, errors.NewBadRequest(err.Error())
		}
		name = sent.Name
	}
	stored, found := a.leases[name]
	switch {
	case r.Method == http.MethodPost && found:
		return nil, errors.NewAlreadyExists(resource, name)
	case r.Method != http.MethodPost && !found:
		return nil, errors.NewNotFound(resource, name)
	case r.Method == http.MethodGet:
		return &stored, nil
	case found && sent.ResourceVersion != "" && sent.ResourceVersion != stored.ResourceVersion:
		return nil, errors.NewConflict(resource, name, nil)
	}
	a.version++
	sent.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	sent.Namespace, sent.ResourceVersion = namespace, strconv.FormatInt(a.version, 10)
	a.leases[name] = sent
	return &sent, nil
}
