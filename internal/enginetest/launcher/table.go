// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Kind is a kind of engine: how it is installed, and how the engine that tests share is
// started.
type Kind struct {
	Name, Version string
	// Variable is the environment variable with the engine's address for tests.
	Variable string

	// address is the address for tests, with a placeholder for the port, or the folder.
	address string
	// starts returns what starts it, one server after the other. Dir is an empty folder of its own.
	starts func(dir string, port int) ([]Server, error)

	install func(ctx context.Context, k Kind, folder string) error
	takes   string   // what is said of the time
	files   []string // those without which it is not installed; the first one is the program
	needs   []string // other engines

	// The command line of a server. Each word may have $program, $port, $root, which is the
	// folder of the checkout, and what the engine's function gives.
	command string
	// ready returns an error until the server at HOST:PORT answers. If nil, it answers when it listens. Etcd has
	// its own.
	ready func(at string) error
}

const (
	takesMinutes = ", which takes minutes"
	atHTTP       = "http://127.0.0.1:%d"
)

// Kinds returns the table of all engines.
func Kinds() []Kind {
	return []Kind{
		{ // DynamoDB's whole API; the registry has the package for Linux alone
			Name: "dynoxide", Version: "1.2.1", Variable: "TENURE_TEST_DYNOXIDE",
			address: atHTTP, starts: one(func(_ string, port int) (Server, error) { return Dynoxide(port) }),
			install: npm("@dynoxide/linux-x64"), files: []string{"node_modules/@dynoxide/linux-x64/dynoxide"},
			command: "$program serve --host 127.0.0.1 --port $port",
		},
		{ // an independent engine, without transactions; its changes of a table would take half a second
			Name: "dynalite", Version: "4.0.0", Variable: "TENURE_TEST_DYNALITE",
			address: atHTTP, starts: one(func(_ string, port int) (Server, error) { return server("dynalite", port, nil) }),
			install: npm("dynalite"), files: []string{"node_modules/dynalite/cli.js"},
			command: "node --require $root/internal/enginetest/launcher/dynalite.cjs $program --host 127.0.0.1 --port $port " +
				"--createTableMs 0 --deleteTableMs 0 --updateTableMs 0",
		},
		{ // its programs are tools of the module test
			Name: "etcd", Version: "3.7.3", Variable: "TENURE_TEST_ETCD", address: atHTTP, starts: one(oneEtcd),
			install: installEtcd, files: []string{"etcd", "etcdctl", "etcdutl"},
			command: "$program --name $name --data-dir $dir/data --log-level error " +
				"--listen-client-urls $client --advertise-client-urls $client " +
				"--listen-peer-urls $peer --initial-advertise-peer-urls $peer --initial-cluster $cluster",
		},
		{ // an older checkout has not installed that file; the address is one of IPv4, as others check it
			Name: "zookeeper", Version: "3.9.5", Variable: "TENURE_TEST_ZOOKEEPER",
			address: "127.0.0.1:%d", starts: one(func(dir string, port int) (Server, error) {
				return ZooKeeper(dir, port, 1, "forceSync=no")
			}),
			install: installZooKeeper, files: []string{"netty-transport-classes-epoll-4.1.119.Final.jar"},
			command: "java -Xmx256m -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true " +
				"-Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp $jars " +
				"org.apache.zookeeper.server.quorum.QuorumPeerMain $config",
			ready: func(at string) error { _, err := ZooKeeperMode(at); return err },
		},
		{ // the system's
			Name: "postgres", Variable: "TENURE_TEST_POSTGRES",
			address: postgresURL, starts: one(onePostgreSQL), install: systemPostgreSQL,
		},
		{ // the system's
			Name: "redis", Variable: "TENURE_TEST_REDIS", address: "redis://127.0.0.1:%d",
			starts:  one(func(dir string, port int) (Server, error) { return Redis(dir, port) }),
			install: systemRedis,
		},
		{ // the system's
			Name: "mariadb", Variable: "TENURE_TEST_MYSQL", address: "mysql://root@127.0.0.1:%d",
			starts: one(oneMariaDB), install: systemMariaDB,
		},
		{ // an API server, and nothing else of a cluster
			Name: "kubernetes", Version: "1.36.2", Variable: "TENURE_TEST_KUBERNETES",
			address: "%s/kubeconfig", starts: oneKubernetes,
			install: installKubernetes, takes: takesMinutes, files: []string{"kube-apiserver"}, needs: []string{"etcd"},
			command: "$program $dir $port $etcd",
			ready:   func(at string) error { _, err := AskKubernetes(at, "admin", "/readyz", ""); return err },
		},
		{ // S3's protocol, on files; its bucket is "locks"
			Name: "versitygw", Version: "1.8.0", Variable: "TENURE_TEST_VERSITYGW",
			address: atHTTP, starts: one(func(dir string, port int) (Server, error) {
				return Versitygw(filepath.Join(dir, "buckets"), port, "locks")
			}),
			install: goInstall("github.com/versity/versitygw/cmd/versitygw"), takes: takesMinutes, files: []string{"versitygw"},
			command: "$program --port 127.0.0.1:$port --access " + S3Key + " --secret " + S3Secret + " --region " + S3Region +
				" --keep-alive --quiet posix $dir",
		},
		{ // Google Cloud Storage's, in memory; a public host without a port lets a relay stand before it
			Name: "fakegcs", Version: "1.56.1", Variable: "TENURE_TEST_FAKEGCS",
			address: atHTTP, starts: one(func(dir string, port int) (Server, error) {
				return FakeGCS(filepath.Join(dir, "buckets"), port, "locks")
			}),
			install: goInstall("github.com/fsouza/fake-gcs-server"), takes: takesMinutes, files: []string{"fake-gcs-server"},
			command: "$program -scheme http -host 127.0.0.1 -port $port -public-host 127.0.0.1 -backend memory " +
				"-data $dir -log-level error",
		},
		{ // Azure Blob Storage's, in memory, without a container; it does not know the newest versions
			Name: "azurite", Version: "3.37.0", Variable: "TENURE_TEST_AZURITE",
			address: atHTTP + "/devstoreaccount1",
			starts:  one(func(_ string, port int) (Server, error) { return Azurite(port) }),
			install: npm("azurite"), files: []string{"node_modules/azurite/dist/src/blob/main.js"},
			command: "node $program --blobHost 127.0.0.1 --blobPort $port --inMemoryPersistence --skipApiVersionCheck " +
				"--disableTelemetry --silent",
		},
	}
}

// The environment of a client for the server of S3's protocol, as the command needs it for
// an endpoint on this machine.
const (
	S3Key    = "test"
	S3Secret = "test"
	S3Region = "us-east-1"
)

// Find returns the engine of a name.
func Find(name string) (Kind, error) {
	all := Kinds()
	i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, fmt.Errorf("there is no engine %s", name)
	}
	return all[i], nil
}

// one is for an engine of one server, which runs in its folder.
func one(server func(dir string, port int) (Server, error)) func(string, int) ([]Server, error) {
	return func(dir string, port int) ([]Server, error) {
		s, err := server(dir, port)
		s.Dir = dir
		return []Server{s}, err
	}
}

// Start starts the engine in a folder, which is empty and its own, waits until it answers, and returns its
// address. The processes, whose log is a file, are to be ended even if there is an error.
func (k Kind) Start(ctx context.Context, dir, log string) (all []*Process, address string, err error) {
	port, err := Port()
	if err != nil {
		return nil, "", err
	}
	servers, err := k.starts(dir, port)
	if err != nil {
		return nil, "", err
	}
	for _, s := range servers {
		p, err := s.Start(log)
		if err != nil {
			return all, "", err
		}
		all = append(all, p)
		if err := p.Await(ctx); err != nil {
			return all, "", err
		}
	}
	if strings.Contains(k.address, "%s") {
		return all, fmt.Sprintf(k.address, dir), nil
	}
	return all, fmt.Sprintf(k.address, port), nil
}

// values replace the words of a command line that begin with "$".
type values map[string]string

// server returns a server of an installed engine. More are arguments of its command.
func server(engine string, port int, of values, more ...string) (Server, error) {
	k, err := Find(engine)
	if err != nil {
		return Server{}, err
	}
	program, err := Program(engine, k.files[0])
	if err != nil {
		return Server{}, err
	}
	root, err := Root()
	all := values{"program": program, "root": root, "port": strconv.Itoa(port)}
	maps.Copy(all, of)
	var args []string
	for _, word := range strings.Fields(k.command) {
		args = append(args, os.Expand(word, func(name string) string { return all[name] }))
	}
	if k.ready == nil {
		k.ready = connects
	}
	at := fmt.Sprintf("127.0.0.1:%d", port)
	return Server{Args: append(args, more...), Ready: func() error { return k.ready(at) }}, err
}

// Dynoxide returns an emulator of DynamoDB, in memory unless more arguments say otherwise.
func Dynoxide(port int, more ...string) (Server, error) {
	return server("dynoxide", port, nil, more...)
}

// Azurite returns an emulator of Azure Blob Storage, without a container.
func Azurite(port int) (Server, error) { return server("azurite", port, nil) }

// Versitygw returns a gateway to the buckets that are folders of a folder. It makes these.
func Versitygw(folder string, port int, buckets ...string) (Server, error) {
	return onFolders("versitygw", folder, port, buckets)
}

// FakeGCS returns a server with these buckets, which begin as folders of a folder.
func FakeGCS(folder string, port int, buckets ...string) (Server, error) {
	return onFolders("fakegcs", folder, port, buckets)
}

func onFolders(engine, folder string, port int, buckets []string) (Server, error) {
	for _, bucket := range buckets {
		if err := os.MkdirAll(filepath.Join(folder, bucket), 0o700); err != nil {
			return Server{}, err
		}
	}
	return server(engine, port, values{"dir": folder})
}

// Etcd returns a member of a cluster of etcd, of a name, which listens for clients and for
// the other members at URLs of http. Data outlive a power loss unless more arguments say
// otherwise.
func Etcd(dir, name, client, peer, cluster string, more ...string) (Server, error) {
	of := values{"dir": dir, "name": name, "client": client, "peer": peer, "cluster": cluster}
	s, err := server("etcd", 0, of, more...)
	s.Ready = func() error { return EtcdReady(client) }
	return s, err
}

// EtcdCluster returns the given number of members of a cluster, each with a folder below dir, and
// their URLs for clients. More arguments are those of each member.
func EtcdCluster(dir string, members int, more ...string) (all []Server, urls []string, err error) {
	ports, err := ports(2 * members)
	if err != nil {
		return nil, nil, err
	}
	name := func(i int) string { return fmt.Sprint("m", i+1) }
	peer := func(i int) string { return fmt.Sprintf(atHTTP, ports[members+i]) }
	var cluster []string
	for i := range members {
		cluster = append(cluster, name(i)+"="+peer(i))
	}
	more = append([]string{"--heartbeat-interval", "50", "--election-timeout", "500"}, more...)
	for i := range members {
		url := fmt.Sprintf(atHTTP, ports[i])
		s, err := Etcd(filepath.Join(dir, "etcd-"+name(i)), name(i), url, peer(i), strings.Join(cluster, ","), more...)
		if err != nil {
			return nil, nil, err
		}
		all, urls = append(all, s), append(urls, url)
	}
	return all, urls, nil
}

func oneEtcd(dir string, port int) (Server, error) {
	peer, err := Port()
	if err != nil {
		return Server{}, err
	}
	at := fmt.Sprintf(atHTTP, peer)
	return Etcd(dir, "one", fmt.Sprintf(atHTTP, port), at, "one="+at, "--unsafe-no-fsync")
}

// ZooKeeper returns a server of ZooKeeper, with its data in the folder data of dir. More
// lines are of its configuration; without one for servers it is no ensemble.
func ZooKeeper(dir string, port, id int, more ...string) (Server, error) {
	jars, err := Program("zookeeper", "*")
	if err != nil {
		return Server{}, err
	}
	data, config := filepath.Join(dir, "data"), filepath.Join(dir, "zoo.cfg")
	lines := append([]string{
		"tickTime=500", "initLimit=20", "syncLimit=4", "dataDir=" + data, "clientPort=" + strconv.Itoa(port),
		"clientPortAddress=127.0.0.1", "admin.enableServer=false", "maxClientCnxns=0", "4lw.commands.whitelist=srvr",
	}, more...)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return Server{}, err
	}
	for file, text := range map[string]string{
		config: strings.Join(lines, "\n") + "\n", filepath.Join(data, "myid"): strconv.Itoa(id),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return Server{}, err
		}
	}
	return server("zookeeper", port, values{"jars": jars, "config": config})
}

// ZooKeeperEnsemble returns the given number of servers, and their addresses for clients. The data
// of each are in the folder data of its Dir, below dir. One server is standalone. They do not run
// for long.
func ZooKeeperEnsemble(dir string, servers int, more ...string) (all []Server, addresses []string, err error) {
	ports, err := ports(3 * servers)
	if err != nil {
		return nil, nil, err
	}
	for i := range servers {
		if servers > 1 {
			more = append(more, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", i+1, ports[servers+i], ports[2*servers+i]))
		}
	}
	for i := range servers {
		folder := filepath.Join(dir, fmt.Sprint("zookeeper-", i+1))
		s, err := ZooKeeper(folder, ports[i], i+1, more...)
		if err != nil {
			return nil, nil, err
		}
		s.Dir, s.Args = folder, slices.Insert(s.Args, 1, "-XX:TieredStopAtLevel=1")
		all, addresses = append(all, s), append(addresses, fmt.Sprintf("127.0.0.1:%d", ports[i]))
	}
	return all, addresses, nil
}

// Kubernetes returns an API server on an etcd. It writes the file kubeconfig to dir.
func Kubernetes(dir string, port int, etcd string) (Server, error) {
	s, err := server("kubernetes", port, values{"dir": dir, "etcd": etcd})
	s.Dir = dir
	return s, err
}

func oneKubernetes(dir string, port int) ([]Server, error) {
	atEtcd, err := Port()
	if err != nil {
		return nil, err
	}
	all, err := one(oneEtcd)(dir, atEtcd)
	if err != nil {
		return nil, err
	}
	server, err := Kubernetes(dir, port, fmt.Sprintf(atHTTP, atEtcd))
	return append(all, server), err
}
