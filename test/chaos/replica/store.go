// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/etcdstore"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/k8sstore"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/s3store"
	"github.com/tenurelock/tenure/sqlitestore"
	"github.com/tenurelock/tenure/test/bed/dynamo"
	"github.com/tenurelock/tenure/zkstore"
)

// OpenStore opens the store without asking it anything: it may be out of reach
// just now.
func OpenStore(url string) (driver.Store, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		return sqlitestore.Open(rest, nil)
	case "dynamodb":
		db, _ := dynamo.ConnectWide(rest) // a worker has many partitions
		return dynamostore.New(db, Table, nil)
	case "etcd":
		return openEtcd(rest)
	case "zookeeper":
		// A server that does not answer is given up within half of the shortest lease.
		return zkstore.New(strings.Split(rest, ","), &zkstore.Options{Session: zooKeeperSession})
	case "postgres":
		return openPostgres(url)
	case "kubernetes":
		return openKubernetes(rest)
	case "s3":
		return openBucket(strings.Split(rest, ","))
	default:
		return nil, fmt.Errorf("store %q: want sqlite:PATH, dynamodb:URL, s3:HOST:PORT, "+
			"kubernetes:KUBECONFIG,HOST:PORT, etcd:HOST:PORT, postgres:URL or zookeeper:HOST:PORT, "+
			"with commas between several", url)
	}
}

// zooKeeperSession is the shortest that there is.
const zooKeeperSession = time.Second

// openBucket takes one of several gateways, another one in the next process.
func openBucket(addresses []string) (driver.Store, error) {
	url := "http://" + addresses[os.Getpid()%len(addresses)]
	return s3store.New(s3.New(s3.Options{
		BaseEndpoint: &url, Region: launcher.S3Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(launcher.S3Key, launcher.S3Secret, ""),
	}), Table, nil)
}

func openEtcd(addresses string) (driver.Store, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(addresses, ","), Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	store, err := etcdstore.New(client, nil)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &ownEtcd{store, client}, nil
}

func openPostgres(url string) (driver.Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	pgstore.Configure(config)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	store, err := pgstore.New(pool, nil)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return store, nil // the pool ends with the process
}

// Namespace is where the locks are in Kubernetes: that by default is made some time after
// the start of an API server.
const Namespace = "tenure-chaos"

// openKubernetes takes credentials from the file, and goes by the address: that of a gate.
func openKubernetes(at string) (driver.Store, error) {
	file, address, _ := strings.Cut(at, ",")
	config, _, err := k8sstore.Config(file, "")
	if err != nil {
		return nil, err
	}
	config.Host = "https://" + address
	return k8sstore.New(config, Namespace, nil)
}

// ownEtcd is a store that ends its client.
type ownEtcd struct {
	*etcdstore.Store
	client *clientv3.Client
}

func (s *ownEtcd) Close() error { return errors.Join(s.Store.Close(), s.client.Close()) }
