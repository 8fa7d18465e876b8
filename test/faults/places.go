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
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

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
	"github.com/tenurelock/tenure/k8sstore"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/test/bed/dynamo"
	"github.com/tenurelock/tenure/test/bed/gate"
	"github.com/tenurelock/tenure/test/bed/must"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/peers/serve"
	"github.com/tenurelock/tenure/test/peers/wire"
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
		must.Do(fmt.Errorf("there is no %s: scripts/engines run %s -- go run ./test/faults starts it, or name it in %s",
			c.engine, kind.Name, kind.Variable))
	}
	r.engines[c.engine] = address
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
	s.After(func() { _ = table.Drop(ctx) }) // the engine is in memory, and ended soon
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
	s.After(func() {
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

// store is one of Tenure on another engine than DynamoDB. A scene has a place there for
// itself.
type store struct {
	place  string // WORD stands for a scene's
	url    string // as Tenure's command has it, at AT and in PLACE
	scheme string // of [replica.OpenStore]; AT is behind it
}

// stores are those that are looked at, by their columns.
var stores = map[string]store{
	"tenure-postgres":   {"tenure_faults_WORD", "AT&table=PLACE", ""},
	"tenure-etcd":       {"tenure-faults-WORD/", "etcd://AT/PLACE", "etcd:"},
	"tenure-zookeeper":  {"/tenure-faults-WORD", "zookeeper://ATPLACE", "zookeeper:"},
	"tenure-kubernetes": {"tenure-faults-WORD", "kubernetes://PLACE?kubeconfig=AT", "kubernetes:"},
	"tenure-bucket": {
		"tenure-faults-WORD/",
		"s3://" + replica.Bucket + "/PLACE?path_style=1&region=" + launcher.S3Region + "&endpoint=http://AT", "s3:",
	},
}

// openBound bounds the opening of a store.
const openBound = 30 * time.Second

// openStore makes a place of Tenure on another store.
func openStore(ctx context.Context, s *scene) *place {
	of := stores[s.id]
	p := &place{table: strings.ReplaceAll(of.place, "WORD", s.word), direct: s.host()}
	p.url = func(at string) string { return strings.NewReplacer("AT", at, "PLACE", p.table).Replace(of.url) }
	p.gate = func(owner string) (gate.Gate, error) {
		// A record has its owner in it, whatever the store. So what is sent with the owner in it
		// is a write of a record; a read, a watch or a sign of life of a connection is none.
		return gate.NewTCPWrites(p.direct, func() func([]byte) bool {
			return func(piece []byte) bool { return bytes.Contains(piece, []byte(owner)) }
		})
	}
	switch s.engine {
	case postgreSQL:
		// The connections that a store opens by default are enough for 1,000 locks at 10 ms with little
		// to spare.
		p.reached = s.reachedBy("pool_max_conns=64")
		must.Do(pgstore.CreateTable(ctx, s.database(ctx, "DROP TABLE IF EXISTS "+p.table), p.table))
	case kubernetes:
		p.prepareKubernetes(ctx, s)
	}
	bound, cancel := context.WithTimeout(ctx, openBound)
	defer cancel()
	records := must.Have(replica.OpenStore(of.scheme+p.endpoint(p.direct), p.table))
	s.After(func() { _ = records.Close() }) // the engine is ended soon
	p.forget = func(ctx context.Context, lock string) error {
		rec, err := records.Get(ctx, lock, driver.Strong)
		if err != nil {
			return err
		}
		return records.Delete(ctx, rec)
	}
	// A program finds a store that was used before. In ZooKeeper the first record of a folder
	// takes more than one write.
	for n := range preparedLocks {
		rec, _, err := records.Claim(bound, driver.Record{
			Key: s.named(n + 1), Version: "prepared", Beat: "prepared", Owner: "faults", State: driver.Held, Lease: s.lease,
		})
		must.Do(err)
		must.Do(records.Delete(bound, rec))
	}
	return p
}

// tenureOn is this library on a store, whose place is the request's table. The store is closed with
// the process.
func tenureOn(id string) serve.Library {
	return serve.Library{Name: id, Open: func(r *wire.Request) (serve.Client, error) {
		records, err := replica.OpenStore(stores[id].scheme+r.Endpoint, r.Table)
		if err != nil {
			return nil, err
		}
		return serve.TenureOn(records, r)
	}}
}

// prepareKubernetes makes a namespace on an API server. Gates know the writes of a store by
// their bytes, so they are spoken to without TLS, and what they let through goes to a bridge,
// which speaks to the server by TLS, as the user of the kubeconfig.
func (p *place) prepareKubernetes(ctx context.Context, s *scene) {
	config, _, err := k8sstore.Config(s.engines[kubernetes], "")
	must.Do(err)
	target := must.Have(url.Parse(config.Host))
	namespace := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.table}}
	client := must.Have(clientset.NewForConfig(config))
	must.Have(client.CoreV1().Namespaces().Create(ctx, &namespace, metav1.CreateOptions{}))
	bridge := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     must.Have(rest.TransportFor(config)),
		FlushInterval: -1, // a watch tells at once
		// Of processes that were killed in the middle of a request.
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) },
	})
	s.After(func() {
		bridge.CloseClientConnections()
		bridge.Close()
	})
	p.direct = bridge.Listener.Addr().String()
	p.reached = func(address string) string {
		return s.file("kubeconfig-", `apiVersion: v1
kind: Config
clusters: [{name: gate, cluster: {server: "http://`+address+`"}}]
contexts: [{name: gate, context: {cluster: gate}}]
current-context: gate
`)
	}
}

// leaseAPI is the part of a Kubernetes API server that client-go's lease lock
// talks to: leases of coordination.k8s.io/v1, with the same check of the resource
// version. An update that names another version than the stored one is a conflict.
type leaseAPI struct {
	mu      sync.Mutex
	version int64
	leases  map[string]coordination.Lease // by name
}

// onLeaseAPI is the place of client-go.
func onLeaseAPI(context.Context, *scene) *place {
	api := &leaseAPI{leases: map[string]coordination.Lease{}}
	return &place{
		gate: func(string) (gate.Gate, error) {
			return gate.NewHTTP(api, func(r *http.Request) bool { return r.Method != http.MethodGet }), nil
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
