// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestNoProxyOfTheEnvironment: a client that Open makes goes to the member itself, whatever
// the environment says of proxies. Those rules do not count the name as local.
func TestNoProxyOfTheEnvironment(t *testing.T) {
	const child = "ETCDSTORE_TEST_PROXIED"
	if os.Getenv(child) != "" {
		dialProxied(t)
		return
	}
	// net/http reads the variables once in a process.
	command := exec.Command(os.Args[0], "-test.run=^TestNoProxyOfTheEnvironment$")
	command.Env = append(os.Environ(), child+"=1", "NO_PROXY=", "no_proxy=")
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	asked := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := proxy.Accept()
			if err != nil {
				return
			}
			asked <- struct{}{}
			_ = conn.Close()
		}
	}()
	command.Env = append(command.Env, "HTTPS_PROXY=http://"+proxy.Addr().String())
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(asked) > 0 {
		t.Error("the proxy was asked for a connection")
	}
}

func dialProxied(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if s, err := Open(ctx, clientv3.Config{Endpoints: []string{"http://etcd.invalid:2379"}}, nil); err == nil {
		_ = s.Close()
		t.Error("a name that nobody has was found")
	}
}
