// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import "testing"

func TestHost(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.1.0.1")
	for url, want := range map[string]string{
		"memory:":                              "127.0.0.1",
		"sqlite:/tmp/x.db":                     "127.0.0.1",
		"dynamodb://locks":                     "",
		"dynamodb://locks?region=eu-central-1": "dynamodb.eu-central-1.amazonaws.com",
		"dynamodb://locks?region=us-east-1&endpoint=http://127.0.0.2:8000": "127.0.0.2",
		"dynamodb://locks?region=us-east-1&endpoint=http://[::1]:8000":     "::1",
		"etcd://a.example:2379,b.example:2379/p":                           "a.example",
		"etcd://[2001:db8::1]:2379":                                        "2001:db8::1",
		"zookeeper://zk-1:2181,zk-2:2181/locks":                            "zk-1",
		"postgres://user:pw@db.example:5432/locks":                         "db.example",
		"postgres://user@db.example/locks":                                 "db.example",
		"kubernetes://jobs":                                                "10.1.0.1",
		"s3://bucket/p":                                                    "",
		"s3://bucket/p?region=eu-central-1":                                "s3.eu-central-1.amazonaws.com",
		"s3://bucket/p?region=us-east-1&endpoint=https://127.0.0.2:9000":   "127.0.0.2",
	} {
		l, err := Parse(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if got := l.Host(); got != want {
			t.Errorf("%s is on %q, want %q", url, got, want)
		}
	}
}
