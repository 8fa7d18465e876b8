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
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/test/bed/dynamo"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/chaos/replica"
)

// servers are the engines that are servers, by the names that -engines takes. Each
// function makes a place for the data below dir. The program of each is that of the first word of
// its name. A further one is a line here, a case of replica.OpenStore, an engine of
// `make chaos`, and a word in docs/evidence/README.md.
var servers = map[string]func(dir string) (server, error){
	"dynoxide":          newDynoxide,
	"etcd":              func(dir string) (server, error) { return newEtcd(dir, 1) },
	kubernetesEngine:    newKubernetes,
	"etcd-cluster":      func(dir string) (server, error) { return newEtcd(dir, clusterSize) },
	"postgres":          func(dir string) (server, error) { return newPostgres(dir, 1) },
	"postgres-standby":  func(dir string) (server, error) { return newPostgres(dir, 2) },
	versitygwEngine:     newVersitygw,
	"zookeeper":         func(dir string) (server, error) { return newZooKeeper(dir, 1) },
	"zookeeper-cluster": func(dir string) (server, error) { return newZooKeeper(dir, clusterSize) },
}

// clusterSize is how many servers a cluster has: one may be missing.
const clusterSize = 3

// alone is the leader of an engine of one member.
func alone(context.Context, int, string) bool { return true }

// newDynoxide is a server with DynamoDB's protocol.
func newDynoxide(dir string) (server, error) {
	s := server{name: "dynoxide", leads: alone}
	s.launch = func(_ int, ports []int) (launcher.Server, error) {
		return launcher.Dynoxide(ports[0], "--db-path", filepath.Join(dir, "dynoxide.db"))
	}
	s.begin = func(ctx context.Context, addresses []string) error {
		return dynamostore.CreateTable(ctx, dynamo.Connect("http://"+addresses[0]), replica.Table, nil)
	}
	s.url = func(addresses []string) string { return "dynamodb:http://" + addresses[0] }
	return s, nil
}

// morePorts are ports by which members talk to each other.
func morePorts(n int) (ports []int, err error) {
	for len(ports) < n && err == nil {
		var port int
		port, err = launcher.Port()
		ports = append(ports, port)
	}
	return ports, err
}

// newEtcd is a cluster of so many members.
func newEtcd(dir string, members int) (server, error) {
	s := server{name: "etcd", members: members, leads: etcdLeads}
	peers, err := morePorts(members)
	peer := func(member int) string { return fmt.Sprintf("http://127.0.0.1:%d", peers[member]) }
	var cluster []string
	for i := range peers {
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, peer(i)))
	}
	s.launch = func(member int, ports []int) (launcher.Server, error) {
		here, name := fmt.Sprintf("http://127.0.0.1:%d", ports[member]), fmt.Sprint("m", member)
		return launcher.Etcd(filepath.Join(dir, "etcd-"+name), name, here, peer(member), strings.Join(cluster, ","),
			"--heartbeat-interval", "50", "--election-timeout", "500")
	}
	s.url = func(addresses []string) string { return "etcd:" + strings.Join(addresses, ",") }
	return s, err
}

// etcdLeads says that the member at an address leads.
func etcdLeads(ctx context.Context, _ int, address string) bool {
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

// newZooKeeper is an ensemble of so many servers. One stands alone.
func newZooKeeper(dir string, members int) (server, error) {
	s := server{name: "zookeeper", members: members}
	peers, err := morePorts(2 * members)
	var ensemble []string
	for i := range members {
		if members > 1 {
			ensemble = append(ensemble, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", i+1, peers[2*i], peers[2*i+1]))
		}
	}
	s.launch = func(member int, ports []int) (launcher.Server, error) {
		of, err := launcher.ZooKeeper(filepath.Join(dir, fmt.Sprint("zookeeper-", member)), ports[member],
			member+1, ensemble...)
		if err != nil {
			return of, err
		}
		of.Args = slices.Insert(of.Args, 1, "-XX:TieredStopAtLevel=1") // it does not run for long
		return of, nil
	}
	s.leads = func(_ context.Context, _ int, address string) bool {
		mode, _ := launcher.ZooKeeperMode(address) // it does not say
		return mode == "leader"
	}
	s.url = func(addresses []string) string { return "zookeeper:" + strings.Join(addresses, ",") }
	return s, err
}

// versitygwEngine has tests of its own: its program takes long to build.
const versitygwEngine = "versitygw"

// newVersitygw is a bucket, behind two gateways over one folder: half of the replicas ask each.
// The faults of the engine are for the two of them in turn.
func newVersitygw(dir string) (server, error) {
	s, folder := server{name: versitygwEngine, members: 2}, filepath.Join(dir, "buckets")
	s.launch = func(member int, ports []int) (launcher.Server, error) {
		return launcher.Versitygw(folder, ports[member], replica.Bucket)
	}
	s.url = func(addresses []string) string { return "s3:" + strings.Join(addresses, ",") }
	return s, nil
}

// kubernetesEngine has tests of its own: its program takes more than 5 minutes to build.
const kubernetesEngine = "kubernetes"

// The members of Kubernetes are not alike: replicas ask the API server, which asks the etcd.
const (
	apiServer = iota
	itsEtcd
)

// newKubernetes is an API server with an etcd of its own. The faults of the engine are for
// the two of them in turn.
func newKubernetes(dir string) (server, error) {
	s, folder := server{name: kubernetesEngine, members: 2}, filepath.Join(dir, "apiserver")
	etcd, err := newEtcd(dir, 1)
	s.launch = func(member int, ports []int) (launcher.Server, error) {
		if member == itsEtcd {
			return etcd.launch(0, ports[itsEtcd:])
		}
		if err := os.MkdirAll(folder, 0o700); err != nil { // without it the server says so, and ends
			return launcher.Server{}, err
		}
		return launcher.Kubernetes(folder, ports[apiServer], fmt.Sprintf("http://127.0.0.1:%d", ports[itsEtcd]))
	}
	s.begin = func(_ context.Context, addresses []string) error {
		_, err := launcher.AskKubernetes(addresses[apiServer], "admin", "/api/v1/namespaces",
			`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+replica.Namespace+`"}}`)
		return err
	}
	s.url = func(addresses []string) string {
		return "kubernetes:" + filepath.Join(folder, "kubeconfig") + "," + addresses[apiServer]
	}
	return s, err
}

// postgres are servers of the system's package of PostgreSQL, which refuse to be root.
type postgres struct {
	data    string
	primary int
}

// newPostgres is a server, or a server and a synchronous standby: when that server is killed the
// standby is promoted, and a new standby of it takes the place of the other.
func newPostgres(dir string, members int) (server, error) {
	p := &postgres{data: filepath.Join(dir, "postgres")}
	s := server{name: "postgres", members: members, url: postgresURL}
	// Their user must be able to come there.
	err := errors.Join(os.Chmod(dir, 0o711), os.Mkdir(p.data, 0o700), launcher.Own(p.data))
	s.launch = func(member int, ports []int) (launcher.Server, error) {
		return launcher.PostgreSQL(p.folder(member), ports[member], "fsync=on", "full_page_writes=on",
			"log_min_messages=panic")
	}
	s.prepare = func(ctx context.Context, member int, ports []int) error {
		if member == p.primary {
			return p.initialize(member)
		}
		return p.follow(member, ports[p.primary])
	}
	s.begin = func(ctx context.Context, addresses []string) error {
		conn, err := pgx.Connect(ctx, postgresURL(addresses[:1]))
		if err != nil {
			return err
		}
		err = errors.Join(pgstore.CreateTable(ctx, conn, ""), conn.Close(context.WithoutCancel(ctx)))
		if err == nil && members > 1 {
			err = p.waitFor(ctx, 1, addresses[0])
		}
		return err
	}
	s.leads = func(_ context.Context, member int, _ string) bool { return member == p.primary }
	if members > 1 {
		s.replace = p.replace
	}
	return s, err
}

// replace promotes the standby, and makes the server that was killed a standby of it.
func (p *postgres) replace(ctx context.Context, s *served, killed int) error {
	p.primary = 1 - killed
	address := s.members[p.primary].address()
	if is, err := p.ask(ctx, address, "SELECT pg_promote()"); err != nil || is != "t" {
		return errors.Join(fmt.Errorf("the standby does not become the primary: %q", is), err)
	}
	return errors.Join(p.follow(killed, s.members[p.primary].port), s.start(ctx, s.members[killed]),
		p.waitFor(ctx, killed, address))
}

func (p *postgres) folder(member int) string { return filepath.Join(p.data, memberName(member)) }

func memberName(member int) string { return fmt.Sprint("m", member) }

func (p *postgres) initialize(member int) error {
	folder := p.folder(member)
	if err := errors.Join(os.Mkdir(folder, 0o700), launcher.Own(folder)); err != nil {
		return err
	}
	return launcher.InitPostgreSQL(folder)
}

// follow makes the data of a standby of the server at a port. What that one waits for is
// not the standby's to wait for once it is promoted.
func (p *postgres) follow(member, port int) error {
	folder := p.folder(member)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	program, err := launcher.PostgresProgram("pg_basebackup")
	if err != nil {
		return err
	}
	if err := (launcher.Server{Dir: p.data, User: launcher.PostgresUser, Args: []string{
		program, "-d", fmt.Sprintf("host=127.0.0.1 port=%d user=tenure application_name=%s", port,
			memberName(member)),
		"-D", folder, "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync",
	}}).Run(); err != nil {
		return err
	}
	file := filepath.Join(folder, "postgresql.auto.conf")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text = append(text, "synchronous_standby_names = ''\n"...) // the last line of a name counts
	return os.WriteFile(file, text, 0o600)
}

// waitFor has every write of the primary wait for a standby, and returns when it does.
func (p *postgres) waitFor(ctx context.Context, standby int, primary string) error {
	for _, statement := range []string{
		"ALTER SYSTEM SET synchronous_standby_names = '" + memberName(standby) + "'", "SELECT pg_reload_conf()",
	} {
		if _, err := p.ask(ctx, primary, statement); err != nil {
			return err
		}
	}
	var is string
	var err error
	if !wait.Within(ctx, startPatience, func() bool {
		is, err = p.ask(ctx, primary, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')")
		return is == "t"
	}) {
		return errors.Join(errors.New("the standby is not synchronous"), err)
	}
	return nil
}

// ask runs a statement, and returns its value.
func (p *postgres) ask(ctx context.Context, address, statement string) (string, error) {
	return launcher.PSQL(ctx, postgresURL([]string{address}), statement)
}

func postgresURL(addresses []string) string {
	return "postgres://tenure@" + strings.Join(addresses, ",") + "/postgres?sslmode=disable"
}
