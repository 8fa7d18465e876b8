// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// ZooKeeper is the variable that names the host and port of a ZooKeeper.
const ZooKeeper = "TENURE_TEST_ZOOKEEPER"

// ZooKeeperServer is a server of an ensemble that a test has for itself.
type ZooKeeperServer struct {
	*Engine
	// Addr is where clients find it: host and port.
	Addr string
	// Data is the folder with its data.
	Data string
}

// Mode returns what the server is: leader, follower or standalone; empty if it does not
// say.
func (z *ZooKeeperServer) Mode() string {
	mode, _ := launcher.ZooKeeperMode(z.Addr) // it does not say
	return mode
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
