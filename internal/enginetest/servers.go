// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// Variables that name the URL of an etcd, and the host and port of a ZooKeeper.
const (
	Etcd      = "TENURE_TEST_ETCD"
	ZooKeeper = "TENURE_TEST_ZOOKEEPER"
)

// What a client needs of a server of S3's protocol that a test has for itself.
const (
	S3Key    = launcher.S3Key
	S3Secret = launcher.S3Secret
	S3Region = launcher.S3Region
)

// What a client needs of an emulator of Azure Blob Storage: all have what their makers publish.
const (
	AzureAccount = "devstoreaccount1"
	AzureKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Server is a server that a test has for itself, which clients find at a URL.
type Server struct {
	*Engine
	URL string
}

// startServer starts a server, and does not wait until it answers. The URL has a place for
// the port.
func startServer(t testing.TB, url string, server func(port int) (launcher.Server, error)) *Server {
	t.Helper()
	port := FreePort(t)
	what, err := server(port)
	need(t, err)
	s := &Server{Engine: newEngine(t, what), URL: fmt.Sprintf(url, port)}
	s.Start()
	return s
}

// StartVersitygw starts so many gateways of S3's protocol to files in one folder, with these
// buckets, and waits until they answer.
func StartVersitygw(t testing.TB, gateways int, buckets ...string) []*Server {
	t.Helper()
	folder := t.TempDir()
	var all []*Server
	for range gateways {
		all = append(all, startServer(t, "http://127.0.0.1:%d", func(port int) (launcher.Server, error) {
			return launcher.Versitygw(folder, port, buckets...)
		}))
	}
	for _, s := range all {
		s.Await()
	}
	return all
}

// StartFakeGCS starts a server of Google Cloud Storage's protocol with these buckets, in
// memory, and waits until it answers. It deletes without a condition.
func StartFakeGCS(t testing.TB, buckets ...string) *Server {
	t.Helper()
	s := startServer(t, "http://127.0.0.1:%d", func(port int) (launcher.Server, error) {
		return launcher.FakeGCS(t.TempDir(), port, buckets...)
	})
	s.Await()
	return s
}

// StartAzurite starts an emulator of Azure Blob Storage without a container, in memory, and
// waits until it answers.
func StartAzurite(t testing.TB) *Server {
	t.Helper()
	s := startServer(t, "http://127.0.0.1:%d/"+AzureAccount, launcher.Azurite)
	s.Await()
	return s
}

// StartEtcd starts a cluster of so many members, whose data are on the disk, and waits
// until it has a leader. More arguments are those of each member; with --cert-file clients
// find it by https.
func StartEtcd(t testing.TB, members int, more ...string) []*Server {
	t.Helper()
	type place struct{ name, client, peer string }
	var places []place
	var cluster []string
	for i := range members {
		p := place{
			name: fmt.Sprintf("m%d", i+1), client: fmt.Sprintf("http://127.0.0.1:%d", FreePort(t)),
			peer: fmt.Sprintf("http://127.0.0.1:%d", FreePort(t)),
		}
		places, cluster = append(places, p), append(cluster, p.name+"="+p.peer)
	}
	more = append([]string{"--heartbeat-interval", "50", "--election-timeout", "500"}, more...)
	var all []*Server
	for _, p := range places {
		m := &Server{URL: p.client}
		server, err := launcher.Etcd(t.TempDir(), p.name, p.client, p.peer, strings.Join(cluster, ","), more...)
		need(t, err)
		if slices.Contains(more, "--cert-file") { // that of its health stays as it is
			health := fmt.Sprintf("http://127.0.0.1:%d", FreePort(t))
			m.URL = strings.Replace(p.client, "http:", "https:", 1)
			server.Args = append(server.Args,
				"--listen-client-urls", m.URL, "--advertise-client-urls", m.URL, "--listen-metrics-urls", health)
			server.Ready = func() error { return launcher.EtcdReady(health) }
		}
		m.Engine = newEngine(t, server)
		m.Start()
		all = append(all, m)
	}
	for _, m := range all {
		m.Await()
	}
	return all
}

// ZooKeeperServer is a server of an ensemble that a test has for itself.
type ZooKeeperServer struct {
	*Engine
	// Addr is where clients find it: host and port.
	Addr string
	// Data is the folder with its data.
	Data string
}

// StartZooKeeper starts an ensemble of so many servers, and waits until it has a leader.
// More lines are those of each server's configuration.
func StartZooKeeper(t testing.TB, servers int, more ...string) []*ZooKeeperServer {
	t.Helper()
	if servers > 1 {
		for i := range servers {
			more = append(more, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", i+1, FreePort(t), FreePort(t)))
		}
	}
	var all []*ZooKeeperServer
	for i := range servers {
		dir, port := t.TempDir(), FreePort(t)
		server, err := launcher.ZooKeeper(dir, port, i+1, more...)
		need(t, err)
		server.Args = slices.Insert(server.Args, 1, "-XX:TieredStopAtLevel=1") // it does not run for long
		z := &ZooKeeperServer{
			Engine: newEngine(t, server), Addr: fmt.Sprintf("127.0.0.1:%d", port), Data: filepath.Join(dir, "data"),
		}
		z.Start()
		all = append(all, z)
	}
	for _, z := range all {
		z.Await()
	}
	return all
}
