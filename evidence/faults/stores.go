// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/etcdstore"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/must"
	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/evidence/peers/wire"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/k8sstore"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/s3store"
	"github.com/tenurelock/tenure/zkstore"
)

// store is one of Tenure on another engine than DynamoDB. A scene has a place there for
// itself.
type store struct {
	place string // WORD stands for a scene's
	// open opens the store by way of an address, or of what the place makes of it.
	open func(ctx context.Context, endpoint, place string) (driver.Store, error)
	// url is how Tenure's command names the store.
	url func(endpoint, place string) string
}

// stores are those that are looked at, by their columns.
var stores = map[string]store{
	"tenure-postgres": {
		place: "tenure_faults_WORD",
		open: func(ctx context.Context, endpoint, table string) (driver.Store, error) {
			return pgstore.Open(ctx, endpoint, &pgstore.Options{Table: table})
		},
		url: func(endpoint, table string) string { return endpoint + "&table=" + table },
	},
	"tenure-etcd": {
		place: "tenure-faults-WORD/",
		open: func(ctx context.Context, endpoint, prefix string) (driver.Store, error) {
			return etcdstore.Open(ctx, clientv3.Config{Endpoints: []string{endpoint}}, &etcdstore.Options{Prefix: prefix})
		},
		url: func(endpoint, prefix string) string { return "etcd://" + endpoint + "/" + prefix },
	},
	"tenure-zookeeper": {
		place: "/tenure-faults-WORD",
		open: func(ctx context.Context, endpoint, root string) (driver.Store, error) {
			return zkstore.Open(ctx, []string{endpoint}, &zkstore.Options{Root: root})
		},
		url: func(endpoint, root string) string { return "zookeeper://" + endpoint + root },
	},
	"tenure-kubernetes": {
		place: "tenure-faults-WORD",
		open: func(ctx context.Context, kubeconfig, namespace string) (driver.Store, error) {
			config, _, err := k8sstore.Config(kubeconfig, "")
			if err != nil {
				return nil, err
			}
			return k8sstore.Open(ctx, config, namespace, nil)
		},
		url: func(kubeconfig, namespace string) string {
			return "kubernetes://" + namespace + "?kubeconfig=" + kubeconfig
		},
	},
	"tenure-bucket": {
		place: "tenure-faults-WORD/",
		open: func(ctx context.Context, endpoint, prefix string) (driver.Store, error) {
			at := "http://" + endpoint
			client := s3.New(s3.Options{
				BaseEndpoint: &at, Region: launcher.S3Region, UsePathStyle: true,
				Credentials: credentials.NewStaticCredentialsProvider(launcher.S3Key, launcher.S3Secret, ""),
			})
			return s3store.Open(ctx, client, bucketName, &s3store.Options{Prefix: prefix})
		},
		url: func(endpoint, prefix string) string {
			return "s3://" + bucketName + "/" + prefix + "?path_style=1&region=" + launcher.S3Region +
				"&endpoint=http://" + endpoint
		},
	},
}

// bucketName is that of the bucket which scripts/engines makes.
const bucketName = "locks"

// openBound bounds the opening of a store.
const openBound = 30 * time.Second

// openStore makes a place of Tenure on another store.
func openStore(ctx context.Context, s *scene) *place {
	of := stores[s.id]
	p := &place{table: strings.ReplaceAll(of.place, "WORD", s.word), direct: s.host()}
	p.url = func(endpoint string) string { return of.url(endpoint, p.table) }
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
	records := must.Have(of.open(bound, p.endpoint(p.direct), p.table))
	s.after(func() { _ = records.Close() }) // the engine is ended soon
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
		ctx, cancel := context.WithTimeout(context.Background(), openBound)
		defer cancel()
		records, err := stores[id].open(ctx, r.Endpoint, r.Table)
		if err != nil {
			return nil, err
		}
		return serve.TenureOn(records, r)
	}}
}
