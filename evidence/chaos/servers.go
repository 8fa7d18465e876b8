// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/chaos/replica"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
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
	"postgres":          newPostgres,
	"postgres-standby":  newPostgresStandby,
	versitygwEngine:     newVersitygw,
	"zookeeper":         func(dir string) (server, error) { return newZooKeeper(dir, 1) },
	"zookeeper-cluster": func(dir string) (server, error) { return newZooKeeper(dir, clusterSize) },
}

// clusterSize is how many servers a cluster has: one may be missing.
const clusterSize = 3

// engineNames are all that -engines takes.
func engineNames() []string {
	return append([]string{fileEngine}, slices.Sorted(maps.Keys(servers))...)
}

// checkEngine returns an error unless there is the engine, and its program.
func checkEngine(name string) error {
	kind, ok := servers[name]
	switch {
	case name == fileEngine:
		return nil
	case !ok:
		return fmt.Errorf("engine %q is not known: there are %s", name, strings.Join(engineNames(), ", "))
	}
	_, err := kind("")
	return err
}

// installed returns the server of an engine that scripts/engines has installed.
func installed(engine string) (server, error) {
	kind, err := launcher.Find(engine)
	if err == nil {
		_, err = launcher.Program(engine, "")
	}
	return server{name: engine, version: kind.Version}, err
}

// newDynoxide is a server with DynamoDB's protocol.
func newDynoxide(dir string) (server, error) {
	s, err := installed("dynoxide")
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
	s.leads = func(ctx context.Context, _ int, address string) bool { return etcdLeads(ctx, address) == nil }
	s.url = func(addresses []string) string { return "etcd:" + strings.Join(addresses, ",") }
	return s, err
}

// etcdLeads returns an error unless the member at an address leads.
func etcdLeads(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v3/maintenance/status",
		strings.NewReader("{}"))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var status struct {
		Header struct {
			Member string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&status); err != nil {
		return err
	}
	if status.Leader != status.Header.Member {
		return errors.New("another one leads")
	}
	return nil
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
