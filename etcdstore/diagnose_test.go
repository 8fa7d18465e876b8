// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestDiagnose(t *testing.T) {
	address := enginetest.Shared(t, enginetest.Etcd, "etcd")
	prefix := prefixOf(t)
	s, err := Connect(clientv3.Config{Endpoints: []string{address, "http://127.0.0.1:1"}}, &Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	enginetest.Findings(t, s.Diagnose(t.Context(), driver.Timing{}),
		"ok encryption: the connection is not encrypted, and does not leave this machine", "ok member: "+address+" answers, version ",
		"warn member: http://127.0.0.1:1 does not answer: ", "ok quota: "+address, "warn members: 1 voting member", "ok alarms: none",
		"ok rights: keys below "+`"`+prefix+`" can be read and written`, "!bad ")
	if left, err := s.client.Get(t.Context(), prefix, clientv3.WithPrefix()); err != nil || len(left.Kvs) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestFindings(t *testing.T) {
	status := func(change func(*etcdserverpb.StatusResponse)) *clientv3.StatusResponse {
		r := &etcdserverpb.StatusResponse{Version: "3.7.3", DbSize: 80 << 20, DbSizeInUse: 40 << 20, DbSizeQuota: 100 << 20}
		change(r)
		return (*clientv3.StatusResponse)(r)
	}
	for _, c := range []struct {
		f     driver.Finding
		level driver.Level
		want  string
	}{
		{quota("a", status(func(*etcdserverpb.StatusResponse) {})), driver.LevelOK, "a has 80 MB (40 MB in use); the quota is 100 MB"},
		{quota("a", status(func(r *etcdserverpb.StatusResponse) { r.DbSize = 81 << 20 })), driver.LevelWarn, "compact"},
		{memberFinding("a", status(func(r *etcdserverpb.StatusResponse) { r.IsLearner = true })), driver.LevelWarn, "until it votes"},
		{encryption([]string{"http://10.0.0.1:2379", "http://localhost:2379"}), driver.LevelWarn, "write etcds:"},
		{encryption([]string{"https://10.0.0.1:2379"}), driver.LevelOK, "is encrypted"},
	} {
		if c.f.Level != c.level || !strings.Contains(c.f.String(), c.want) {
			t.Errorf("%v, want %s with %q", c.f, c.level, c.want)
		}
	}
}
