// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// Etcd is the variable that names the URL of an etcd.
const Etcd = "TENURE_TEST_ETCD"

// EtcdMember is a member of a cluster that a test has for itself.
type EtcdMember struct {
	*Engine
	// URL is where clients find it.
	URL string
}

// StartEtcd starts a cluster of so many members, whose data are on the disk, and waits
// until it has a leader. More arguments are those of each member; with --cert-file clients
// find it by https.
func StartEtcd(t testing.TB, members int, more ...string) []*EtcdMember {
	t.Helper()
	type place struct{ name, client, peer string }
	var places []place
	var cluster []string
	for i := range members {
		p := place{
			fmt.Sprintf("m%d", i+1), fmt.Sprintf("http://127.0.0.1:%d", FreePort(t)), fmt.Sprintf("http://127.0.0.1:%d", FreePort(t)),
		}
		places, cluster = append(places, p), append(cluster, p.name+"="+p.peer)
	}
	more = append([]string{"--heartbeat-interval", "50", "--election-timeout", "500"}, more...)
	var all []*EtcdMember
	for _, p := range places {
		m := &EtcdMember{URL: p.client}
		server, err := launcher.Etcd(t.TempDir(), p.name, p.client, p.peer, strings.Join(cluster, ","), more...)
		need(t, err)
		if slices.Contains(more, "--cert-file") { // that of its health stays as it is
			health := fmt.Sprintf("http://127.0.0.1:%d", FreePort(t))
			m.URL = strings.Replace(p.client, "http:", "https:", 1)
			server.Args = append(server.Args, "--listen-client-urls", m.URL, "--advertise-client-urls", m.URL, "--listen-metrics-urls", health)
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
