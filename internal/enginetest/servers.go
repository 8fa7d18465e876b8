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

const atHTTP = "http://127.0.0.1:%d"

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

// start starts a server, and does not wait until it answers. The error is that of its creation.
func start(t testing.TB, url string, server launcher.Server, err error) *Engine {
	t.Helper()
	need(t, err)
	e := newEngine(t, server)
	e.URL = url
	e.Start()
	return e
}

// await waits until all servers answer.
func await(all ...*Engine) []*Engine {
	for _, e := range all {
		e.Await()
	}
	return all
}

// StartVersitygw starts so many gateways of S3's protocol to files in one folder, with these
// buckets, and waits until they answer.
func StartVersitygw(t testing.TB, gateways int, buckets ...string) []*Engine {
	t.Helper()
	folder := t.TempDir()
	var all []*Engine
	for range gateways {
		port := FreePort(t)
		server, err := launcher.Versitygw(folder, port, buckets...)
		all = append(all, start(t, fmt.Sprintf(atHTTP, port), server, err))
	}
	return await(all...)
}

// StartFakeGCS starts a server of Google Cloud Storage's protocol with these buckets, in
// memory, and waits until it answers. It deletes without a condition.
func StartFakeGCS(t testing.TB, buckets ...string) *Engine {
	t.Helper()
	port := FreePort(t)
	server, err := launcher.FakeGCS(t.TempDir(), port, buckets...)
	return await(start(t, fmt.Sprintf(atHTTP, port), server, err))[0]
}

// StartAzurite starts an emulator of Azure Blob Storage without a container, in memory, and
// waits until it answers.
func StartAzurite(t testing.TB) *Engine {
	t.Helper()
	port := FreePort(t)
	server, err := launcher.Azurite(port)
	return await(start(t, fmt.Sprintf(atHTTP+"/"+AzureAccount, port), server, err))[0]
}

// StartEtcd starts a cluster with the given number of members, whose data are on the disk,
// and waits until it has a leader. More are arguments of each member; with --cert-file
// clients use https.
func StartEtcd(t testing.TB, members int, more ...string) []*Engine {
	t.Helper()
	servers, urls, err := launcher.EtcdCluster(t.TempDir(), members, more...)
	need(t, err)
	var all []*Engine
	for i, server := range servers {
		if slices.Contains(more, "--cert-file") { // that of its health stays as it is
			health := fmt.Sprintf(atHTTP, FreePort(t))
			urls[i] = strings.Replace(urls[i], "http:", "https:", 1)
			server.Args = append(server.Args,
				"--listen-client-urls", urls[i], "--advertise-client-urls", urls[i], "--listen-metrics-urls", health)
			server.Ready = func() error { return launcher.EtcdReady(health) }
		}
		all = append(all, start(t, urls[i], server, nil))
	}
	return await(all...)
}

// StartZooKeeper starts an ensemble with the given number of servers, and waits until it
// has a leader. More lines are added to each server's configuration.
func StartZooKeeper(t testing.TB, servers int, more ...string) []*Engine {
	t.Helper()
	ensemble, addresses, err := launcher.ZooKeeperEnsemble(t.TempDir(), servers, more...)
	need(t, err)
	var all []*Engine
	for i, server := range ensemble {
		z := start(t, "", server, nil)
		z.Addr, z.Data = addresses[i], filepath.Join(server.Dir, "data")
		all = append(all, z)
	}
	return await(all...)
}
