// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/zkstore"
)

// TestZooKeeperScripts runs the scripts of testdata/zookeeper, and those of testdata that
// are for any store. GUARDED is a ZooKeeper with /locks for
// the user app, whose password is "secret", and /theirs for another one.
func TestZooKeeperScripts(t *testing.T) {
	address := enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper")
	guarded := guardedZooKeeper(t)
	runStoreScripts(t, "zookeeper", nil, func(env *testscript.Env) error {
		env.Setenv("GUARDED", guarded)
		env.Setenv("STORE", "zookeeper://"+address+"/test-"+rand.Text())
		return nil
	})
}

// guardedZooKeeper starts a ZooKeeper of which users have a part each.
func guardedZooKeeper(t *testing.T) string {
	t.Helper()
	server := enginetest.StartZooKeeper(t, 1, "forceSync=no")[0]
	for root, user := range map[string]string{"/locks": "app", "/theirs/locks": "other"} {
		s, err := zkstore.Open(t.Context(), []string{server.Addr}, &zkstore.Options{Root: root, User: user, Password: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, _, err := s.Claim(t.Context(), driver.Record{Key: "begun", Version: "v", Beat: "v", Owner: user, Lease: time.Second, State: driver.Held}); err != nil {
			t.Fatal(err)
		}
	}
	return server.Addr
}
