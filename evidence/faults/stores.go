// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/etcdstore"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/k8sstore"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/s3store"
	"github.com/tenurelock/tenure/zkstore"
)

// tenureStore is a store of Tenure on another engine than DynamoDB. A scene has a place
// there for itself: a table, a prefix, a root or a namespace.
type tenureStore struct {
	// place returns that of a scene's word.
	place func(word string) string
	// open opens the store. The endpoint is that of [scene.endpoint].
	open func(ctx context.Context, endpoint, place string) (driver.Store, error)
	// url is how Tenure's command names the store.
	url func(endpoint, place string) string
	// writes tells a gate which of the bytes write a record.
	writes func() func(piece []byte) bool
}

// tenureStores are those that are looked at, by the names of their subjects.
var tenureStores = map[string]tenureStore{
	onPostgresName: {
		place: func(word string) string { return "tenure_faults_" + word },
		open: func(ctx context.Context, endpoint, table string) (driver.Store, error) {
			return pgstore.Open(ctx, endpoint, &pgstore.Options{Table: table})
		},
		url:    func(endpoint, table string) string { return endpoint + "&table=" + table },
		writes: postgresWrites,
	},
	onEtcdName: {
		place: func(word string) string { return "tenure-faults-" + word + "/" },
		open: func(ctx context.Context, endpoint, prefix string) (driver.Store, error) {
			return etcdstore.Open(ctx, clientv3.Config{Endpoints: []string{endpoint}}, &etcdstore.Options{Prefix: prefix})
		},
		url:    func(endpoint, prefix string) string { return "etcd://" + endpoint + "/" + prefix },
		writes: etcdWrites,
	},
	onZooKeeperName: {
		place: func(word string) string { return "/tenure-faults-" + word },
		open: func(ctx context.Context, endpoint, root string) (driver.Store, error) {
			return zkstore.Open(ctx, []string{endpoint}, &zkstore.Options{Root: root})
		},
		url:    func(endpoint, root string) string { return "zookeeper://" + endpoint + root },
		writes: zooKeeperWrites,
	},
	onKubernetesName: {
		place: func(word string) string { return "tenure-faults-" + word },
		open: func(ctx context.Context, endpoint, namespace string) (driver.Store, error) {
			config, _, err := k8sstore.Config(endpoint, "")
			if err != nil {
				return nil, err
			}
			return k8sstore.Open(ctx, config, namespace, nil)
		},
		url: func(endpoint, namespace string) string {
			return "kubernetes://" + namespace + "?kubeconfig=" + endpoint
		},
		writes: kubernetesWrites,
	},
	inBucketName: {
		place: func(word string) string { return "tenure-faults-" + word + "/" },
		open:  openBucket,
		url: func(endpoint, prefix string) string {
			return "s3://" + bucketName + "/" + prefix + "?region=" + bucketRegion + "&endpoint=http://" + endpoint + "&path_style=1"
		},
		writes: bucketWrites,
	},
}

// openBucket opens the store of a prefix of the bucket that scripts/engines makes.
func openBucket(ctx context.Context, endpoint, prefix string) (driver.Store, error) {
	url := "http://" + endpoint
	client := s3.New(s3.Options{
		BaseEndpoint: &url, Region: bucketRegion, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(bucketKey, bucketKey, ""),
	})
	store, err := s3store.Open(ctx, client, bucketName, &s3store.Options{Prefix: prefix})
	if err != nil {
		return nil, err
	}
	return store, nil
}

// gatewayEnv names the URL of a gateway with the bucket, as scripts/engines prints it.
// The keys are those that Tenure's command takes for an endpoint on this machine.
const (
	gatewayEnv   = "TENURE_TEST_VERSITYGW"
	bucketName   = "locks"
	bucketRegion = "us-east-1"
	bucketKey    = "test"
)

// postgresConns is how many connections a process of Tenure may have. Those that a store
// opens by default are enough for 1,000 locks at 10 ms with little to spare.
const postgresConns = 64

// postgresEndpoint is the URL of a database, with the settings of Tenure's pools there.
func postgresEndpoint(database string) (string, error) {
	u, err := url.Parse(database)
	if err != nil {
		return "", err
	}
	q := u.Query()
	// So that each request has the text of its statement, by which the gate knows it.
	q.Set("default_query_exec_mode", "exec")
	q.Set("pool_max_conns", fmt.Sprint(postgresConns))
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// openBound bounds the opening of a store.
const openBound = 30 * time.Second

// openPlace opens the store of a scene without a gate, and makes there what a program
// finds that is not the first one to use the store.
func (s *scene) openPlace(ctx context.Context) error {
	kind := tenureStores[s.name]
	s.place = kind.place(s.word)
	switch s.on {
	case postgreSQL:
		if err := pgstore.CreateTable(ctx, s.database.pool, s.place); err != nil {
			return err
		}
	case apiServer:
		if err := s.cluster.namespace(ctx, s.place); err != nil {
			return err
		}
	}
	direct, err := s.direct()
	if err != nil {
		return err
	}
	endpoint, err := s.endpoint(direct)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openBound)
	defer cancel()
	if s.records, err = kind.open(ctx, endpoint, s.place); err != nil {
		return err
	}
	if s.on != zooKeeper {
		return nil
	}
	// The first record of a folder of the store takes more than one write.
	return wait.AtOnce(ctx, preparedLocks, preparedLocks, func(ctx context.Context, i int) error {
		rec, _, err := s.records.Claim(ctx, driver.Record{
			Key: s.named(i + 1), Version: "prepared", Beat: "prepared", Owner: "faults", State: driver.Held, Lease: s.lease,
		})
		if err != nil {
			return err
		}
		return s.records.Delete(ctx, rec)
	})
}

// forget deletes the record of a lock that was released, as an operator could.
func (s *scene) forget(ctx context.Context, name string) error {
	rec, err := s.records.Get(ctx, name, driver.Strong)
	if err != nil {
		return err
	}
	return s.records.Delete(ctx, rec)
}

// zooKeeperEnv names the host and port of a ZooKeeper.
const zooKeeperEnv = "TENURE_TEST_ZOOKEEPER"

// zooKeeperVersion asks a server for its version, by one of its commands of four letters.
func zooKeeperVersion(ctx context.Context, address string) (string, error) {
	const ask = "srvr"
	ctx, cancel := context.WithTimeout(ctx, openBound)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // all was read
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // without one it waits for longer
	}
	if _, err := io.WriteString(conn, ask); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		return "", err
	}
	_, version, found := strings.Cut(string(text), "Zookeeper version: ")
	if !found {
		return "", fmt.Errorf("faults: ZooKeeper at %s does not tell its version, but %.80q: name %s in its 4lw.commands.whitelist", address, text, ask)
	}
	version, _, _ = strings.Cut(version, "-")
	return version, nil
}
