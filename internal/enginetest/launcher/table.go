// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
)

// Kind is a kind of engine: how it is installed, and how the one that tests share is started.
type Kind struct {
	Name, Version string
	// Variable is that of the environment which tells tests the engine's address.
	Variable string
	// Servers returns what starts it, one server after the other, and its address. Dir is
	// an empty folder of its own.
	Servers func(dir string) (servers []Server, address string, err error)

	install func(ctx context.Context, k Kind, folder string) error
	takes   string   // what is said of the time
	files   []string // those without which it is not installed
	needs   []string // other engines
}

// Files of the checkout.
const (
	zooKeeperPOM = "internal/enginetest/launcher/zookeeper.pom.xml"
	dynaliteFix  = "internal/enginetest/launcher/dynalite.cjs"
)

// What more than one place names: files of the engines, and texts.
const (
	// It is in the only package of this version that the registry has.
	dynoxideProgram = "node_modules/@dynoxide/linux-x64/dynoxide"
	dynaliteProgram = "node_modules/dynalite/cli.js"
	azuriteProgram  = "node_modules/azurite/dist/src/blob/main.js"
	takesMinutes    = ", which takes minutes"
	atHTTP          = "http://127.0.0.1:%d"
)

// Kinds returns the table of all engines.
func Kinds() []Kind {
	return []Kind{
		{ // DynamoDB's whole API
			Name: "dynoxide", Version: "1.2.1", Variable: "TENURE_TEST_DYNOXIDE", Servers: alone(dynoxide, atHTTP),
			install: installDynoxide, files: []string{dynoxideProgram},
		},
		{ // an independent engine, without transactions
			Name: "dynalite", Version: "4.0.0", Variable: "TENURE_TEST_DYNALITE", Servers: alone(dynalite, atHTTP),
			install: npm("dynalite"), files: []string{dynaliteProgram},
		},
		{ // its programs are those of the module that evidence/faults requires
			Name: "etcd", Version: "3.7.3", Variable: "TENURE_TEST_ETCD",
			Servers: alone(oneEtcd, atHTTP),
			install: installEtcd, files: []string{"etcd", "etcdctl", "etcdutl"},
		},
		{ // an older checkout has not installed that file
			Name: "zookeeper", Version: "3.9.5", Variable: "TENURE_TEST_ZOOKEEPER",
			Servers: alone(oneZooKeeper, "127.0.0.1:%d"),
			install: installZooKeeper, files: []string{"netty-transport-classes-epoll-4.1.119.Final.jar"},
		},
		{ // the system's; 400 connections are for packages that are tested in parallel
			Name: "postgres", Variable: "TENURE_TEST_POSTGRES", install: systemPostgreSQL,
			Servers: alone(onePostgreSQL, "postgres://tenure@127.0.0.1:%d/postgres?sslmode=disable"),
		},
		{ // an API server, and nothing else of a cluster
			Name: "kubernetes", Version: "1.36.2", Variable: "TENURE_TEST_KUBERNETES",
			Servers: oneKubernetes,
			install: installKubernetes, takes: takesMinutes, files: []string{"kube-apiserver"}, needs: []string{"etcd"},
		},
		{ // S3's protocol, on files; its bucket is "locks"
			Name: "versitygw", Version: "1.8.0", Variable: "TENURE_TEST_VERSITYGW",
			Servers: alone(oneVersitygw, atHTTP),
			install: goInstall("github.com/versity/versitygw/cmd/versitygw"), takes: takesMinutes, files: []string{"versitygw"},
		},
		{ // Google Cloud Storage's protocol, in memory; its bucket is "locks"
			Name: "fakegcs", Version: "1.56.1", Variable: "TENURE_TEST_FAKEGCS",
			Servers: alone(oneFakeGCS, atHTTP),
			install: goInstall("github.com/fsouza/fake-gcs-server"), takes: takesMinutes, files: []string{"fake-gcs-server"},
		},
		{ // Azure Blob Storage's, in memory; its account is the one that all emulators have
			Name: "azurite", Version: "3.37.0", Variable: "TENURE_TEST_AZURITE",
			Servers: alone(azurite, "http://127.0.0.1:%d/devstoreaccount1"),
			install: npm("azurite"), files: []string{azuriteProgram},
		},
	}
}

// Find returns the engine of a name.
func Find(name string) (Kind, error) {
	all := Kinds()
	i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, fmt.Errorf("there is no engine %s", name)
	}
	return all[i], nil
}

// alone makes the Servers of an engine of one server. The address has a place for the port.
func alone(server func(dir string, port int) (Server, error), address string) func(string) ([]Server, string, error) {
	return func(dir string) ([]Server, string, error) {
		port, err := Port()
		if err != nil {
			return nil, "", err
		}
		s, err := server(dir, port)
		s.Dir, s.Port = dir, port
		return []Server{s}, fmt.Sprintf(address, port), err
	}
}

func installDynoxide(ctx context.Context, k Kind, folder string) error {
	if system := runtime.GOOS + "/" + runtime.GOARCH; system != "linux/amd64" {
		return fmt.Errorf("there is no package of it for %s", system)
	}
	return npm("@dynoxide/linux-x64")(ctx, k, folder)
}

// Dynoxide returns an emulator of DynamoDB, in memory unless more arguments say otherwise.
func Dynoxide(port int, more ...string) (Server, error) {
	program, err := Program("dynoxide", dynoxideProgram)
	return Server{
		Args:  append([]string{program, "serve", "--host", "127.0.0.1", "--port", strconv.Itoa(port)}, more...),
		Ready: func() error { return listsTables(port) },
	}, err
}

func dynoxide(_ string, port int) (Server, error) { return Dynoxide(port) }

func dynalite(_ string, port int) (Server, error) {
	program, err := Program("dynalite", dynaliteProgram)
	if err != nil {
		return Server{}, err
	}
	root, err := Root()
	return Server{
		// Without the last three a change of a table takes half a second.
		Args: []string{
			"node", "--require", filepath.Join(root, dynaliteFix), program, "--host", "127.0.0.1", "--port", strconv.Itoa(port),
			"--createTableMs", "0", "--deleteTableMs", "0", "--updateTableMs", "0",
		},
		Ready: func() error { return listsTables(port) },
	}, err
}

// Etcd returns a member of a cluster of etcd, of a name, which listens for clients and for
// the other members at URLs of http. Data outlive a power loss unless more arguments say
// otherwise.
func Etcd(dir, name, client, peer, cluster string, more ...string) (Server, error) {
	program, err := Program("etcd", "etcd")
	return Server{
		Args: append([]string{
			program, "--name", name, "--data-dir", filepath.Join(dir, "data"), "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster,
		}, more...),
		Ready: func() error { return EtcdReady(client) },
	}, err
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
	program, err := Program("zookeeper", "*")
	if err != nil {
		return Server{}, err
	}
	data, config := filepath.Join(dir, "data"), filepath.Join(dir, "zoo.cfg")
	text := fmt.Sprintf("tickTime=500\ninitLimit=20\nsyncLimit=4\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n"+
		"admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr\n", data, port)
	for _, line := range more {
		text += line + "\n"
	}
	err = os.MkdirAll(data, 0o700)
	for file, text := range map[string]string{config: text, filepath.Join(data, "myid"): strconv.Itoa(id)} {
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o600)
		}
	}
	return Server{
		// The address is one of IPv4, as others check it.
		Args: []string{
			"java", "-Xmx256m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true",
			"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", program, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config,
		},
		Ready: func() error {
			_, err := ZooKeeperMode(fmt.Sprintf("127.0.0.1:%d", port))
			return err
		},
	}, err
}

func oneZooKeeper(dir string, port int) (Server, error) {
	return ZooKeeper(dir, port, 1, "forceSync=no")
}

// Kubernetes returns an API server on an etcd. It writes the file kubeconfig to dir.
func Kubernetes(dir string, port int, etcd string) (Server, error) {
	program, err := Program("kubernetes", "kube-apiserver")
	return Server{
		Args: []string{program, dir, strconv.Itoa(port), etcd}, Dir: dir, Port: port,
		Ready: func() error {
			_, err := AskKubernetes(fmt.Sprintf("127.0.0.1:%d", port), "admin", "/readyz", "")
			return err
		},
	}, err
}

func oneKubernetes(dir string) ([]Server, string, error) {
	etcd, url, err := alone(oneEtcd, atHTTP)(dir)
	if err != nil {
		return nil, "", err
	}
	port, err := Port()
	if err != nil {
		return nil, "", err
	}
	server, err := Kubernetes(dir, port, url)
	return append(etcd, server), filepath.Join(dir, "kubeconfig"), err
}

// What a client needs of the server of S3's protocol: what the command takes for an
// endpoint on this machine.
const (
	S3Key    = "test"
	S3Secret = "test"
	S3Region = "us-east-1"
)

// Versitygw returns a gateway to the buckets that are folders of a folder. It makes these.
func Versitygw(folder string, port int, buckets ...string) (Server, error) {
	program, err := bucketProgram("versitygw", "versitygw", folder, buckets)
	at := fmt.Sprintf("127.0.0.1:%d", port)
	return Server{
		Args: []string{
			program, "--port", at, "--access", S3Key, "--secret", S3Secret, "--region", S3Region,
			"--health", "/health", "--keep-alive", "--quiet", "posix", folder,
		},
		Ready: func() error { return serves("http://" + at + "/health") },
	}, err
}

func oneVersitygw(dir string, port int) (Server, error) {
	return Versitygw(filepath.Join(dir, "buckets"), port, "locks")
}

// FakeGCS returns a server with these buckets, which begin as folders of a folder.
func FakeGCS(folder string, port int, buckets ...string) (Server, error) {
	program, err := bucketProgram("fakegcs", "fake-gcs-server", folder, buckets)
	return Server{
		// Its public host is one without a port, so that there can be a relay.
		Args: []string{
			program, "-scheme", "http", "-host", "127.0.0.1", "-port", strconv.Itoa(port), "-public-host", "127.0.0.1",
			"-backend", "memory", "-data", folder, "-log-level", "error",
		},
		Ready: func() error { return serves(fmt.Sprintf("http://127.0.0.1:%d/_internal/healthcheck", port)) },
	}, err
}

func oneFakeGCS(dir string, port int) (Server, error) {
	return FakeGCS(filepath.Join(dir, "buckets"), port, "locks")
}

// bucketProgram makes a folder for each bucket, and returns the program.
func bucketProgram(engine, file, folder string, buckets []string) (string, error) {
	for _, bucket := range buckets {
		if err := os.MkdirAll(filepath.Join(folder, bucket), 0o700); err != nil {
			return "", err
		}
	}
	return Program(engine, file)
}

// Azurite returns an emulator of Azure Blob Storage, without a container.
func Azurite(port int) (Server, error) {
	program, err := Program("azurite", azuriteProgram)
	return Server{
		// It does not know the newest versions of the protocol.
		Args: []string{
			"node", program, "--blobHost", "127.0.0.1", "--blobPort", strconv.Itoa(port),
			"--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent",
		},
		Ready: func() error { return connects(port) },
	}, err
}

func azurite(_ string, port int) (Server, error) { return Azurite(port) }
