// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
)

func TestParseEtcd(t *testing.T) {
	for _, tc := range []struct{ url, want, shown string }{
		{"etcd://h", "etcd://h:2379", ""},
		{"etcd://h:1/locks", "etcd://h:1/locks", ""},
		{"etcd://h,g:7,[::1]:8/a/b/", "etcd://h:2379,g:7,[::1]:8/a/b", ""},
		{"etcds://h/locks", "etcds://h:2379/locks", ""},
		{"etcd://h/locks?ca=/etc/ca.pem", "etcd://h:2379/locks?ca=/etc/ca.pem", ""},
		{"etcds://h/locks?key=/k.pem&cert=/c.pem", "etcds://h:2379/locks?cert=/c.pem&key=/k.pem", ""},
		{"etcd://app@h/locks?password_file=/run/p", "etcd://app@h:2379/locks?password_file=/run/p", ""},
		{"etcd://app:sec%2Fret%40@h/locks", "etcd://app:sec%2Fret@@h:2379/locks", "etcd://app@h:2379/locks"},
	} {
		wantParsed(t, tc.url, tc.want, tc.shown)
	}
}

func TestParseZooKeeper(t *testing.T) {
	for _, tc := range []struct{ url, want, shown string }{
		{"zookeeper://h", "zookeeper://h:2181", ""},
		{"zookeeper://h,g:7/a/b/", "zookeeper://h:2181,g:7/a/b", ""},
		{"zookeeper://app:secret@h/locks?session=20s&ca=/c", "zookeeper://app:secret@h:2181/locks?ca=/c&session=20s", "zookeeper://app@h:2181/locks?ca=/c&session=20s"},
	} {
		wantParsed(t, tc.url, tc.want, tc.shown)
	}
	for url, want := range map[string]string{
		"zookeeper://h/a?session=soon": "session=soon is no duration",
		"zookeeper://h/a?session=1ms":  "it must be from 1s to 1h",
		"zookeeper://h/a//b":           "the path behind the host: it has an empty part at position 3",
		"zookeeper://":                 "a host is missing",
	} {
		wantRefused(t, url, want)
	}
}

func TestParseEtcdRefuses(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"etcd:", "the hosts are missing"},
		{"etcd:secret@h", "the hosts are missing"},
		{"etcd://", "a host is missing"},
		{"etcd:///locks", "a host is missing"},
		{"etcd://h:1,,g:2/locks", "a host is missing"},
		{"etcd://a:99999/x", "no port from 1 to 65535"},
		{"etcd://a:0/x", "no port from 1 to 65535"},
		{"etcd://a:secret/x", "no port from 1 to 65535"},
		{"etcd://[::1/x", "a host cannot be read"},
		{"etcd://a:b:c:d/x", "a host cannot be read"},
		{"etcd://:secret@h/locks", "is no USER"},
		{"etcd://u:@h/locks", "is no USER"},
		{"etcd://u:sec%ret@h/locks", "is no USER"},
		{"etcd://h/locks#x", `write %23`},
		{"etcd://h/%zz", "the path cannot be read"},
		{"etcd://h/" + strings.Repeat("x", 600), "must end with a slash, and be at most 512 bytes"},
		{"etcd://h/locks?tls=true", `parameter "tls" is unknown: the parameters are ca, cert, key, password_file`},
		{"etcd://h/locks?ca=", "ca= has no value"},
		{"etcd://h/locks?ca=a&ca=b", "ca= is there 2 times"},
		{"etcd://h/locks?cert=c.pem", "cert= and key= go together"},
		{"etcd://h/locks?password_file=p", "no user"},
		{"etcd://u:secret@h/locks?password_file=p", "there are two passwords"},
		{"etcd://h/locks?a;b=secret", "cannot be read"},
	} {
		wantRefused(t, tc.url, tc.want)
	}
}

// A server whose certificate is refused is said to be that, and not to be slow.
func TestEtcdTellsOfARefusedCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	at, err := storeurl.Parse("etcds://" + server.Listener.Addr().String() + "/locks")
	if err != nil {
		t.Fatal(err)
	}
	store, err := at.Open()
	if err == nil {
		_ = store.Close()
		t.Fatal("it was opened")
	}
	for _, part := range []string{"its certificate is not good for this client", "unknown authority"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}
