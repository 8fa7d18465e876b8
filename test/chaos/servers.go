// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/test/bed/dynamo"
	"github.com/tenurelock/tenure/test/chaos/replica"
)

// servers are the engines that are servers, by the names that -engines takes. Each
// function makes a place for the data below dir; its error says that the program is
// not there. A further one is a line here, a case of replica.OpenStore, an engine of
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

// installed returns the server of an engine that scripts/engines has installed.
func installed(engine string) (server, error) {
	_, err := launcher.Program(engine, "")
	return server{name: engine}, err
}

// alone is the leader of an engine of one member.
func alone(context.Context, int, string) bool { return true }

// newDynoxide is a server with DynamoDB's protocol.
func newDynoxide(dir string) (server, error) {
	s, err := installed("dynoxide")
	s.leads = alone
	s.launch = func(_ int, ports []int) (launcher.Server, error) {
		return launcher.Dynoxide(ports[0], "--db-path", filepath.Join(dir, "dynoxide.db"))
	}
	s.begin = func(ctx context.Context, addresses []string) error {
		return dynamostore.CreateTable(ctx, dynamo.Connect("http://"+addresses[0]), replica.Table, nil)
	}
	s.url = func(addresses []string) string { return "dynamodb:http://" + addresses[0] }
	return s, err
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
	s, err := installed("etcd")
	if err != nil {
		return s, err
	}
	peers, err := morePorts(members)
	peer := func(member int) string { return fmt.Sprintf("http://127.0.0.1:%d", peers[member]) }
	var cluster []string
	for i := range peers {
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, peer(i)))
	}
	s.members = members
	s.launch = func(member int, ports []int) (launcher.Server, error) {
		here, name := fmt.Sprintf("http://127.0.0.1:%d", ports[member]), fmt.Sprint("m", member)
		return launcher.Etcd(filepath.Join(dir, "etcd-"+name), name, here, peer(member), strings.Join(cluster, ","),
			"--heartbeat-interval", "50", "--election-timeout", "500")
	}
	s.leads = etcdLeads
	s.url = func(addresses []string) string { return "etcd:" + strings.Join(addresses, ",") }
	return s, err
}

// etcdLeads says that the member at an address leads.
func etcdLeads(ctx context.Context, _ int, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v3/maintenance/status",
		strings.NewReader("{}"))
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	var status struct {
		Header struct {
			Member string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	err = json.NewDecoder(answer.Body).Decode(&status)
	return err == nil && status.Leader == status.Header.Member
}

// newZooKeeper is an ensemble of so many servers. One stands alone.
func newZooKeeper(dir string, members int) (server, error) {
	s, err := installed("zookeeper")
	if err != nil {
		return s, err
	}
	peers, err := morePorts(2 * members)
	var ensemble []string
	for i := range members {
		if members > 1 {
			ensemble = append(ensemble, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", i+1, peers[2*i], peers[2*i+1]))
		}
	}
	s.members = members
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
	s, err := installed(versitygwEngine)
	folder := filepath.Join(dir, "buckets")
	s.members = 2
	s.launch = func(member int, ports []int) (launcher.Server, error) {
		return launcher.Versitygw(folder, ports[member], replica.Bucket)
	}
	s.url = func(addresses []string) string { return "s3:" + strings.Join(addresses, ",") }
	return s, err
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
	s, err := installed(kubernetesEngine)
	if err != nil {
		return s, err
	}
	etcd, err := newEtcd(dir, 1)
	if err != nil {
		return s, err
	}
	folder := filepath.Join(dir, "apiserver")
	s.members = 2
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
	return s, nil
}
