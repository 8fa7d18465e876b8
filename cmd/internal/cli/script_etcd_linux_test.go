// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestEtcdScripts runs the scripts of testdata/etcd, and those of testdata that are for
// any store. GUARDED is an etcd with users, of whom app, with the password "secret", may
// write below locks/ alone.
func TestEtcdScripts(t *testing.T) {
	address := strings.TrimPrefix(enginetest.Shared(t, enginetest.Etcd, "etcd"), "http://")
	guarded := guardedEtcd(t)
	runStoreScripts(t, "etcd", nil, func(env *testscript.Env) error {
		env.Setenv("GUARDED", guarded)
		env.Setenv("STORE", "etcd://"+address+"/test/"+rand.Text())
		return nil
	})
}

// guardedEtcd starts an etcd that has users.
func guardedEtcd(t *testing.T) string {
	t.Helper()
	member := enginetest.StartEtcd(t, 1, "--unsafe-no-fsync")[0]
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{member.URL}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"root", "app"} {
		must(client.UserAdd(ctx, user, "secret"))
	}
	must(client.UserGrantRole(ctx, "root", "root"))
	must(client.RoleAdd(ctx, "locks"))
	must(client.RoleGrantPermission(ctx, "locks", "locks/", clientv3.GetPrefixRangeEnd("locks/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	must(client.UserGrantRole(ctx, "app", "locks"))
	must(client.AuthEnable(ctx))
	return strings.TrimPrefix(member.URL, "http://")
}
