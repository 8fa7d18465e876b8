// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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
	program := Program(t, "etcd", "etcd-*/etcd")
	type place struct{ name, client, peer string }
	var places []place
	var cluster []string
	for i := range members {
		p := place{
			fmt.Sprintf("m%d", i+1), fmt.Sprintf("http://127.0.0.1:%d", FreePort(t)), fmt.Sprintf("http://127.0.0.1:%d", FreePort(t)),
		}
		places, cluster = append(places, p), append(cluster, p.name+"="+p.peer)
	}
	var all []*EtcdMember
	for _, p := range places {
		args := append([]string{
			program, "--name", p.name, "--data-dir", filepath.Join(t.TempDir(), "data"), "--log-level", "error",
			"--listen-client-urls", p.client, "--advertise-client-urls", p.client,
			"--listen-peer-urls", p.peer, "--initial-advertise-peer-urls", p.peer,
			"--initial-cluster", strings.Join(cluster, ","),
			"--heartbeat-interval", "50", "--election-timeout", "500",
		}, more...)
		health := p.client
		if slices.Contains(more, "--cert-file") { // this one stays as it is
			health = fmt.Sprintf("http://127.0.0.1:%d", FreePort(t))
			p.client = strings.Replace(p.client, "http:", "https:", 1)
			args = append(args, "--listen-client-urls", p.client, "--advertise-client-urls", p.client, "--listen-metrics-urls", health)
		}
		m := &EtcdMember{URL: p.client, Engine: NewEngine(t, args, nil, func() error { return healthy(health) })}
		m.Start()
		all = append(all, m)
	}
	for _, m := range all {
		m.Await()
	}
	return all
}

// healthy says that a member of etcd has a leader, and can write.
func healthy(url string) error {
	body, err := answerOf(url + "/health")
	if err == nil && !strings.Contains(body, `"true"`) {
		err = fmt.Errorf("it is not healthy: %s", body)
	}
	return err
}

// answerOf returns what a server answers with status 200.
func answerOf(url string) (string, error) {
	client := http.Client{Timeout: 2 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s: %s", answer.Status, body)
	}
	return string(body), err
}
