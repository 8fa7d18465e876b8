// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/harness/dynamo"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/wait"
)

// servers are the engines that are servers, by the names that -engines takes. Their data are below
// dir. The first word of a name is the program's. A new engine needs a line
// here, a case of replica.OpenStore, an engine of `make chaos`, and a word in
// docs/evidence/README.md.
var servers = map[string]func(dir string) server{
	"dynoxide":          newDynoxide,
	"etcd":              func(dir string) server { return newEtcd(dir, 1) },
	kubernetesEngine:    newKubernetes,
	"etcd-cluster":      func(dir string) server { return newEtcd(dir, clusterSize) },
	"postgres":          func(dir string) server { return newPostgres(dir, 1) },
	"postgres-standby":  func(dir string) server { return newPostgres(dir, 2) },
	versitygwEngine:     newVersitygw,
	"zookeeper":         func(dir string) server { return newZooKeeper(dir, 1) },
	"zookeeper-cluster": func(dir string) server { return newZooKeeper(dir, clusterSize) },
}

// clusterSize is how many servers a cluster has: one may be missing.
const clusterSize = 3

// alone is the leader of an engine of one member.
func alone(context.Context, int) bool { return true }

// newDynoxide is a server with DynamoDB's protocol.
func newDynoxide(dir string) server {
	port := must.Have(launcher.Port())
	one := must.Have(launcher.Dynoxide(port, "--db-path", filepath.Join(dir, "dynoxide.db")))
	s := server{name: "dynoxide", servers: []launcher.Server{one}, addresses: []string{at(port)}, leads: alone}
	s.begin = func(ctx context.Context) {
		must.Do(dynamostore.CreateTable(ctx, dynamo.Connect("http://"+at(port)), replica.Table, nil))
	}
	s.url = func(addresses []string) string { return "dynamodb:http://" + addresses[0] }
	return s
}

func at(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// listed returns the URL of a store that takes several addresses.
func listed(scheme string) func(addresses []string) string {
	return func(addresses []string) string { return scheme + strings.Join(addresses, ",") }
}

// newEtcd returns a cluster of so many members.
func newEtcd(dir string, members int) server {
	var err error
	s := server{name: "etcd", url: listed("etcd:")}
	s.servers, s.addresses, err = launcher.EtcdCluster(dir, members)
	must.Do(err)
	for i, url := range s.addresses {
		s.addresses[i] = strings.TrimPrefix(url, "http://")
	}
	s.leads = func(ctx context.Context, member int) bool { return etcdLeads(ctx, s.addresses[member]) }
	return s
}

// etcdLeads reports whether the member at an address leads.
func etcdLeads(ctx context.Context, address string) bool {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
	if err != nil {
		return false
	}
	defer func() { _ = client.Close() }() // it was only asked
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	status, err := client.Status(ctx, address)
	return err == nil && status.Leader == status.Header.MemberId
}

// newZooKeeper returns an ensemble of so many servers. One is standalone.
func newZooKeeper(dir string, members int) server {
	var err error
	s := server{name: "zookeeper", url: listed("zookeeper:")}
	s.servers, s.addresses, err = launcher.ZooKeeperEnsemble(dir, members)
	must.Do(err)
	s.leads = func(_ context.Context, member int) bool {
		mode, _ := launcher.ZooKeeperMode(s.addresses[member]) // it does not say
		return mode == "leader"
	}
	return s
}

// versitygwEngine has tests of its own: its program takes long to build.
const versitygwEngine = "versitygw"

// newVersitygw returns a bucket behind two gateways over one folder: half of the replicas use each.
// The faults of the engine strike the two in turn.
func newVersitygw(dir string) server {
	s := server{name: versitygwEngine, url: listed("s3:")}
	for range 2 {
		port := must.Have(launcher.Port())
		one := must.Have(launcher.Versitygw(filepath.Join(dir, "buckets"), port, replica.Bucket))
		s.servers, s.addresses = append(s.servers, one), append(s.addresses, at(port))
	}
	return s
}

// kubernetesEngine has tests of its own: its program takes more than 5 minutes to build.
const kubernetesEngine = "kubernetes"

// newKubernetes returns an API server for the replicas, and an etcd for the API server. The faults
// of the engine strike the two in turn.
func newKubernetes(dir string) server {
	s, folder := server{name: kubernetesEngine}, filepath.Join(dir, "apiserver")
	must.Do(os.Mkdir(folder, 0o700)) // without it the server says so, and ends
	etcd, port := newEtcd(dir, 1), must.Have(launcher.Port())
	api := must.Have(launcher.Kubernetes(folder, port, "http://"+etcd.addresses[0]))
	s.servers, s.addresses = append([]launcher.Server{api}, etcd.servers...), append([]string{at(port)}, etcd.addresses...)
	s.begin = func(context.Context) {
		must.Have(launcher.AskKubernetes(at(port), "admin", "/api/v1/namespaces",
			`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+replica.Namespace+`"}}`))
	}
	s.url = func(addresses []string) string {
		return "kubernetes:" + filepath.Join(folder, "kubeconfig") + "," + addresses[0]
	}
	return s
}

// postgres are servers of the system's package of PostgreSQL, which refuse to be root.
type postgres struct {
	server
	primary int
}

// newPostgres returns a server, or a server and a synchronous standby: when that server is killed
// the standby is promoted, and a new standby takes its place.
func newPostgres(dir string, members int) server {
	p := &postgres{server: server{name: "postgres", url: postgresURL}}
	must.Do(os.Chmod(dir, 0o711)) // their user must be able to come there
	for i := range members {
		port := must.Have(launcher.Port())
		p.servers = append(p.servers, must.Have(launcher.PostgreSQL(filepath.Join(dir, memberName(i)), port, "fsync=on",
			"full_page_writes=on", "log_min_messages=panic")))
		p.addresses = append(p.addresses, at(port))
	}
	p.prepare = p.initialize
	p.begin = func(ctx context.Context) {
		conn := must.Have(pgx.Connect(ctx, postgresURL(p.addresses[:1])))
		must.Do(errors.Join(pgstore.CreateTable(ctx, conn, ""), conn.Close(context.WithoutCancel(ctx))))
		if members > 1 {
			p.waitFor(ctx, 1)
		}
	}
	p.leads = func(_ context.Context, member int) bool { return member == p.primary }
	if members > 1 {
		p.replace = p.promote
	}
	return p.server
}

// promote promotes the standby, and makes the server that was killed a standby of it.
func (p *postgres) promote(ctx context.Context, s *served, killed int) {
	p.primary = 1 - killed
	if is := must.Have(p.ask(ctx, "SELECT pg_promote()")); is != "t" {
		must.Do(fmt.Errorf("the standby does not become the primary: %q", is))
	}
	p.initialize(killed)
	s.start(ctx, s.members[killed])
	p.waitFor(ctx, killed)
}

func memberName(member int) string { return fmt.Sprint("m", member) }

// initialize makes the data of a server, or of a standby of the primary.
func (p *postgres) initialize(member int) {
	folder := p.servers[member].Dir
	must.Do(errors.Join(os.RemoveAll(folder), os.Mkdir(folder, 0o700), launcher.Own(folder)))
	if member == p.primary {
		must.Do(launcher.InitPostgreSQL(folder))
		return
	}
	must.Do(launcher.FollowPostgreSQL(folder, p.primaryURL(), memberName(member)))
	file := filepath.Join(folder, "postgresql.auto.conf")
	// What the primary waits for is not the standby's to wait for once it is promoted: the last line
	// of a name counts.
	text := append(must.Have(os.ReadFile(file)), "synchronous_standby_names = ''\n"...)
	must.Do(os.WriteFile(file, text, 0o600))
}

// waitFor makes every write of the primary wait for a standby, and returns when it does.
func (p *postgres) waitFor(ctx context.Context, standby int) {
	must.Have(p.ask(ctx, "ALTER SYSTEM SET synchronous_standby_names = '"+memberName(standby)+"'"))
	must.Have(p.ask(ctx, "SELECT pg_reload_conf()"))
	must.Do(wait.Until(ctx, "the standby is synchronous", func() bool {
		is, _ := p.ask(ctx, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')")
		return is == "t"
	}))
}

// ask runs a statement on the primary, and returns its value.
func (p *postgres) ask(ctx context.Context, statement string) (string, error) {
	return launcher.PSQL(ctx, p.primaryURL(), statement)
}

func (p *postgres) primaryURL() string { return postgresURL(p.addresses[p.primary : p.primary+1]) }

func postgresURL(addresses []string) string {
	return "postgres://tenure@" + strings.Join(addresses, ",") + "/postgres?sslmode=disable"
}
