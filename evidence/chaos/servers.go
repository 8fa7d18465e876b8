// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
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
	s, err := kind("")
	if err == nil {
		_, err = os.Stat(s.program)
	}
	return err
}

// connects says that the address takes connections.
func connects(_ context.Context, _ int, address string) error {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// newDynoxide is a server with DynamoDB's protocol.
func newDynoxide(dir string) (server, error) {
	program, err := launcher.Program("dynoxide", launcher.DynoxideProgram)
	return server{
		name: "dynoxide", program: program, versionFlag: "--version",
		command: func(_ int, ports []int) []string {
			return []string{program, "serve", "--host", "127.0.0.1", "--port", fmt.Sprint(ports[0]), "--db-path", filepath.Join(dir, "dynoxide.db")}
		},
		ready: connects,
		begin: func(ctx context.Context, addresses []string) error {
			return dynamostore.CreateTable(ctx, dynamo.Connect("http://"+addresses[0]), replica.Table, nil)
		},
		url: func(addresses []string) string { return "dynamodb:http://" + addresses[0] },
	}, err
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
	program, err := launcher.Program("etcd", "etcd")
	if err != nil {
		return server{name: "etcd"}, err
	}
	peers, err := morePorts(members)
	peer := func(member int) string { return fmt.Sprintf("http://127.0.0.1:%d", peers[member]) }
	var cluster []string
	for i := range peers {
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, peer(i)))
	}
	return server{
		name: "etcd", program: program, versionFlag: "--version", members: members,
		command: func(member int, ports []int) []string {
			here, name := fmt.Sprintf("http://127.0.0.1:%d", ports[member]), fmt.Sprint("m", member)
			return []string{
				program, "--name", name, "--data-dir", filepath.Join(dir, "etcd-"+name), "--log-level", "error",
				"--listen-client-urls", here, "--advertise-client-urls", here,
				"--listen-peer-urls", peer(member), "--initial-advertise-peer-urls", peer(member), "--initial-cluster", strings.Join(cluster, ","),
				"--heartbeat-interval", "50", "--election-timeout", "500",
			}
		},
		ready: func(ctx context.Context, _ int, address string) error {
			return answersHTTP(ctx, http.MethodGet, "http://"+address+"/health", func(body []byte) error {
				return says(body, `"true"`)
			})
		},
		leads: func(ctx context.Context, _ int, address string) bool {
			return nil == answersHTTP(ctx, http.MethodPost, "http://"+address+"/v3/maintenance/status", func(body []byte) error {
				var status struct {
					Header struct {
						Member string `json:"member_id"`
					} `json:"header"`
					Leader string `json:"leader"`
				}
				if err := json.Unmarshal(body, &status); err != nil {
					return err
				}
				if status.Leader != status.Header.Member {
					return errors.New("another one leads")
				}
				return nil
			})
		},
		url: func(addresses []string) string { return "etcd:" + strings.Join(addresses, ",") },
	}, err
}

// answersHTTP asks a server something, and has the answer judged.
func answersHTTP(ctx context.Context, method, url string, judge func(body []byte) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	return answers(http.DefaultClient, request, judge)
}

func answers(client *http.Client, request *http.Request, judge func(body []byte) error) error {
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	return judge(body)
}

// newZooKeeper is an ensemble of so many servers. One stands alone.
func newZooKeeper(dir string, members int) (server, error) {
	jar, err := launcher.Program("zookeeper", launcher.ZooKeeperProgram)
	if err != nil {
		return server{name: "zookeeper"}, err
	}
	peers, err := morePorts(2 * members)
	ensemble, program := "", "server.ZooKeeperServerMain"
	if members > 1 {
		program = "server.quorum.QuorumPeerMain"
		for i := range members {
			ensemble += fmt.Sprintf("server.%d=127.0.0.1:%d:%d\n", i+1, peers[2*i], peers[2*i+1])
		}
	}
	return server{
		name: "zookeeper", program: jar, members: members,
		version: strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jar), "zookeeper-"), ".jar"),
		command: func(member int, ports []int) []string {
			data := filepath.Join(dir, fmt.Sprint("zookeeper-", member))
			config := data + ".cfg"
			// Without these files the server says so, and ends.
			_ = os.MkdirAll(data, 0o700)
			_ = os.WriteFile(filepath.Join(data, "myid"), fmt.Append(nil, member+1), 0o600)
			_ = os.WriteFile(config, fmt.Appendf(nil,
				"tickTime=500\ninitLimit=20\nsyncLimit=4\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n%s",
				data, ports[member], ensemble), 0o600)
			return []string{
				"java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
				"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", filepath.Join(filepath.Dir(jar), "*"),
				"org.apache.zookeeper." + program, config,
			}
		},
		ready: func(ctx context.Context, _ int, address string) error { return zooKeeperSays(ctx, address, "Mode: ") },
		leads: func(ctx context.Context, _ int, address string) bool {
			return zooKeeperSays(ctx, address, "Mode: leader") == nil
		},
		url: func(addresses []string) string { return "zookeeper:" + strings.Join(addresses, ",") },
	}, err
}

// zooKeeperSays asks a server what it is.
func zooKeeperSays(ctx context.Context, address, text string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	return says(answer, text)
}

// says returns an error unless the answer has the text.
func says(answer []byte, text string) error {
	if !strings.Contains(string(answer), text) {
		return fmt.Errorf("it says %.200q", answer)
	}
	return nil
}
