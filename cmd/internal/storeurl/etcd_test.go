// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A server whose certificate is refused is said to be that, and not to be slow.
func TestEtcdTellsOfARefusedCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	store, err := mustParse(t, "etcds://"+server.Listener.Addr().String()+"/locks").Open()
	if err == nil {
		_ = store.Close()
		t.Fatal("it was opened")
	}
	for _, part := range []string{"this client does not accept its certificate", "unknown authority"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}

// TestZoneIsDialled: the address with its zone is what is dialled.
func TestZoneIsDialled(t *testing.T) {
	for _, url := range []string{
		"etcd://[fe80::1%25none0]:9/p", "zookeeper://[fe80::1%25none0]:9/p",
		"postgres://u@[fe80::1%25none0]:9,[fe80::1%25none0]:10/d?sslmode=disable",
	} {
		s, err := mustParse(t, url).Open()
		if err == nil {
			t.Errorf("%s: it was opened", url)
			_ = s.Close()
		} else if !strings.Contains(err.Error(), "fe80::1%none0") {
			t.Errorf("%s: %v", url, err)
		}
	}
	config, _, err := mustParse(t, "etcd://[fe80::1%25eth0]:1/p").written.clone().etcdConfig()
	if err != nil || len(config.Endpoints) != 1 || config.Endpoints[0] != "http://[fe80::1%25eth0]:1" {
		t.Errorf("endpoints %q, %v", config.Endpoints, err)
	}
}

// The variable is trimmed as the file is.
func TestPasswordVariableEndsWithNewline(t *testing.T) {
	for _, ours := range []string{"first\n", "first\r\n"} {
		t.Setenv(PasswordVariable, ours)
		got, err := mustParse(t, "etcd://u@h/p").written.clone().knownPassword()
		if got != "first" || err != nil {
			t.Errorf("%q: %q, %v", ours, got, err)
		}
	}
}
