// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package linearize_test

import (
	"crypto/rand"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/etcdstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/itest/linearize"
)

// Each client is at a member of its own.
func TestEtcd(t *testing.T) {
	members := enginetest.StartEtcd(t, 3, "--unsafe-no-fsync")
	prefix, next := "test/"+rand.Text()+"/", 0
	linearize.Check(t, func(t *testing.T) driver.Store {
		next++
		config := clientv3.Config{Endpoints: []string{members[next%len(members)].URL}}
		s, err := etcdstore.Open(t.Context(), config, &etcdstore.Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}, &linearize.Options{ClaimsGiveUp: true}) // after three writes of others
}
