// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestDiagnose(t *testing.T) {
	server := enginetest.StartRedis(t, "--appendonly", "yes")
	s := connect(t, server.Addr, Options{})
	find := func(s *Store, pieces ...string) {
		t.Helper()
		enginetest.Findings(t, s.Diagnose(t.Context(), driver.Timing{Lease: 15 * time.Second}), pieces...)
	}
	find(s, `bad store: "tenure" does not exist; create it with tenure table create`)
	if _, err := s.Create(t.Context(), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	name := "Redis"
	if info(t, server.Addr, "server", "server_name") == "valkey" {
		name = "Valkey"
	}
	find(s, "ok server: "+name+" ", `ok store: "tenure": lease=15s`, "ok replicas: 0 replicas", "ok life: ", "ok durability: a crash may lose",
		"!warn", "!bad")
	find(connect(t, server.Addr, Options{Lease: time.Second}), `bad store: "tenure" was created with "lease=15s`, "bad lease: a lease of 15s")

	server.Kill()
	server.Start()
	server.Await()
	find(s, "warn life: the server was started or promoted", "no lock is granted until a process has seen it for 15s")
	mustDo(t, server.Addr, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	mustDo(t, server.Addr, "CONFIG", "SET", "appendonly", "no")
	mustDo(t, server.Addr, "ACL", "SETUSER", "default", "-config|get")
	find(s, "bad server: the store refuses "+name, "maxmemory-policy is allkeys-lru", "warn durability: appendonly is no",
		"ok configuration: the user may not read it")

	counted := created(t, enginetest.StartRedis(t).Addr, Options{Prefix: "r", Replicas: 2, Quorum: true})
	find(counted, "bad replicas: 0 replicas connected, and writes need 1")
	address := counted.own.InitAddress[0]
	one := enginetest.StartRedis(t, "--replicaof", strings.Replace(address, ":", " ", 1))
	inSync(t, one.Addr)
	find(counted, "warn replicas: 1 replica connected of 2: if one more is lost")
	for range 2 {
		inSync(t, enginetest.StartRedis(t, "--replicaof", strings.Replace(address, ":", " ", 1)).Addr)
	}
	find(counted, "bad replicas: 3 replicas connected, and the store counts on 2")
	find(connect(t, one.Addr, Options{}), "the server is a replica")
	enginetest.Eventually(t, "a description", func(ctx context.Context) error {
		_, err := counted.Describe(ctx, driver.Timing{})
		return err
	})
	server.Kill()
	if all := connect(t, server.Addr, Options{}).Diagnose(t.Context(), driver.Timing{}); all != nil {
		t.Errorf("without a server there is %v", all)
	}
}
