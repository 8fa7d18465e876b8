// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	conn, err := net.DialTimeout("tcp", z.Addr, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	_, _ = io.WriteString(conn, "srvr")
	text, _ := io.ReadAll(conn)
	_, mode, _ := strings.Cut(string(text), "Mode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode
}

// StartZooKeeper starts an ensemble of so many servers, and waits until it has a leader.
// More lines are those of each server's configuration.
func StartZooKeeper(t testing.TB, servers int, more ...string) []*ZooKeeperServer {
	t.Helper()
	programs := filepath.Join(filepath.Dir(Program(t, "zookeeper", "zookeeper-*/zookeeper-3*.jar")), "*")
	var all []*ZooKeeperServer
	var members []string
	for i := range servers {
		z := &ZooKeeperServer{Addr: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), Data: t.TempDir()}
		members = append(members, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", i+1, FreePort(t), FreePort(t)))
		all = append(all, z)
	}
	if servers == 1 {
		members = nil
	}
	for i, z := range all {
		_, port, _ := net.SplitHostPort(z.Addr)
		lines := append([]string{
			"tickTime=500", "initLimit=20", "syncLimit=4", "dataDir=" + z.Data, "clientPort=" + port, "clientPortAddress=127.0.0.1",
			"admin.enableServer=false", "maxClientCnxns=0", "4lw.commands.whitelist=srvr",
		}, append(members, more...)...)
		config := filepath.Join(t.TempDir(), "zoo.cfg")
		for file, text := range map[string]string{config: strings.Join(lines, "\n") + "\n", filepath.Join(z.Data, "myid"): fmt.Sprintln(i + 1)} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		z.Engine = NewEngine(t, []string{
			"java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
			"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", programs,
			"org.apache.zookeeper.server.quorum.QuorumPeerMain", config,
		}, nil, func() error {
			if z.Mode() == "" {
				return fmt.Errorf("%s has no mode yet", z.Addr)
			}
			return nil
		})
		z.Start()
	}
	for _, z := range all {
		z.Await()
	}
	return all
}
