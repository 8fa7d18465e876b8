// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"cmp"
	"context"
	"fmt"
	neturl "net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/etcdstore"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/k8sstore"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/redisstore"
	"github.com/tenurelock/tenure/s3store"
	"github.com/tenurelock/tenure/sqlitestore"
	"github.com/tenurelock/tenure/test/harness/dynamo"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/zkstore"
)

// OpenStore opens the store in a place: a table, a prefix, a root or a namespace; in the place
// of chaos, if it is empty. It sends the store no request, since it may be
// out of reach just now. It is for [must.Try].
func OpenStore(url, place string) driver.Store {
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		return must.Have(sqlitestore.Open(rest, nil))
	case "dynamodb":
		db, _ := dynamo.ConnectWide(rest) // a worker has many partitions
		return must.Have(dynamostore.New(db, cmp.Or(place, Table), nil))
	case "etcd": // the client ends with the process
		client := must.Have(clientv3.New(clientv3.Config{Endpoints: strings.Split(rest, ","), Logger: zap.NewNop()}))
		return must.Have(etcdstore.New(client, &etcdstore.Options{Prefix: place}))
	case "redis": // HOST:PORT?lease=1s&replicas=2&quorum=true&lag=1s, or HOST:PORT?mode=single
		address, query, _ := strings.Cut(rest, "?")
		is := must.Have(neturl.ParseQuery(query))
		lease, _ := time.ParseDuration(is.Get("lease")) // none, for a single server
		lag, _ := time.ParseDuration(is.Get("lag"))
		replicas, _ := strconv.Atoi(is.Get("replicas"))
		return must.Have(redisstore.Connect(rueidis.ClientOption{InitAddress: []string{address}, ForceSingleClient: true},
			&redisstore.Options{
				Prefix: place, Lease: lease, Replicas: replicas, Quorum: is.Get("quorum") != "", Lag: lag,
				Single: is.Get("mode") == "single",
			}))
	case "zookeeper":
		options := &zkstore.Options{Root: place}
		if place == "" { // a server that does not answer is given up within half of the shortest lease
			options.Session = time.Second
		}
		return must.Have(zkstore.New(strings.Split(rest, ","), options))
	case "postgres": // the pool ends with the process
		at, options := postgresOptions(url)
		options.Table = place
		config := must.Have(pgxpool.ParseConfig(at))
		pgstore.Configure(config)
		pool := must.Have(pgxpool.NewWithConfig(context.Background(), config))
		return must.Have(pgstore.New(pool, options))
	case "kubernetes": // credentials are those of the file, the address may be a gate's
		file, address, other := strings.Cut(rest, ",")
		config, _, err := k8sstore.Config(file, "")
		must.Do(err)
		if other {
			config.Host = "https://" + address
		}
		return must.Have(k8sstore.New(config, cmp.Or(place, Namespace), nil))
	case "s3": // one of several gateways, another one in the next process
		addresses := strings.Split(rest, ",")
		url := "http://" + addresses[os.Getpid()%len(addresses)]
		return must.Have(s3store.New(s3.New(s3.Options{
			BaseEndpoint: &url, Region: launcher.S3Region, UsePathStyle: true,
			Credentials: credentials.NewStaticCredentialsProvider(launcher.S3Key, launcher.S3Secret, ""),
		}), Bucket, &s3store.Options{Prefix: place}))
	}
	must.Do(fmt.Errorf("store %q: there is no %s", url, scheme))
	return nil
}

// postgresOptions returns a URL for pgx, and the options that it has as the command's URL has them: guard=standbys with
// need=, of= and wal_sender_timeout=, guard=patroni-watchdog, each with lease=; or standbys=accept.
func postgresOptions(url string) (string, *pgstore.Options) {
	at, query, _ := strings.Cut(url, "?") // there may be several hosts, which net/url does not know
	is := must.Have(neturl.ParseQuery(query))
	lease, _ := time.ParseDuration(is.Get("lease")) // none, where nothing is guarded
	timeout, _ := time.ParseDuration(is.Get("wal_sender_timeout"))
	need, _ := strconv.Atoi(is.Get("need"))
	of, _ := strconv.Atoi(is.Get("of"))
	options := &pgstore.Options{AcceptStandbys: is.Has("standbys")}
	if guard := is.Get("guard"); guard != "" {
		options.Guarded = &pgstore.Guarded{
			Watchdog: guard == "patroni-watchdog", Standbys: of, Need: need, SenderTimeout: timeout,
			Lease: lease,
		}
	}
	for _, own := range []string{"guard", "need", "of", "wal_sender_timeout", "lease", "standbys"} {
		is.Del(own)
	}
	return at + "?" + is.Encode(), options
}

// Where the locks of chaos are, where that is not what a store has by default: the namespace that
// Kubernetes has by itself is made some time after the start of an API server.
const (
	Table     = "chaos"
	Bucket    = "locks" // of scripts/engines, too
	Namespace = "tenure-chaos"
)
