// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl_test

import (
	"strings"
	"testing"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
)

func TestParseRefusesInvisibleCharacters(t *testing.T) {
	for url, want := range map[string]string{
		"sqlite:/p/l.db\n":         `'\n' at position 15`,
		"sqlite:/p/l.db\r":         `'\r' at position 15`,
		"sqlite:/p/l.db ":          `' ' at position 15`,
		"sqlite:/p/l\t.db":         `'\t' at position 12`,
		" sqlite:/p/l.db":          `' ' at position 1`,
		"sqlite:/p/l.db\u00a0":     `'\u00a0' at position 15`,
		"etcd://h/sp\n":            `'\n' at position 12`,
		"etcd://h/sp ":             `' ' at position 12`,
		"zookeeper://h/sp\n":       `'\n' at position 17`,
		"s3://bucket/p\r":          `'\r' at position 14`,
		"postgres://u:secret@h/d ": `' ' at position 24`,
		"memory:\n":                `'\n' at position 8`,
		"default:\r":               `'\r' at position 9`,
		"etcd://h/s%0Ap":           `'\n'`,
		"etcd://h/sp%20":           `' '`,
		"dynamodb://table?region=eu-central-1&sort-key=s&sort-value=prod%0D": `"sort-value" has '\r' at position 5`,
		"dynamodb://table?region=eu-central-1&sort-key=s&sort-value=prod%20": `"sort-value" has ' ' at position 5`,
		"postgres://u:secret@h/d?table=a%0a":                                 `"table" has '\n' at position 2`,
	} {
		wantRefused(t, url, want)
	}
	// What has white space inside, or a percent sign in a file's name, is a name.
	mustParse(t, "sqlite:/p/my locks.db")
	mustParse(t, "sqlite:/p/100%0A.db")
	mustParse(t, "postgres://u:a%0A%20@h/d")
	mustParse(t, "postgres://u@h/d?password=a%20")
}

// TestParseRefusesOtherSpellings: no two spellings that people take for one are two stores.
func TestParseRefusesOtherSpellings(t *testing.T) {
	for url, want := range map[string]string{
		"etcd://h//sl":                 "the path behind the host: it has an empty part at position 1",
		"etcd://h//":                   "the path behind the host: it has an empty part at position 1",
		"etcd://h/sl//":                "the path behind the host: it has an empty part at position 4",
		"etcd://h/a//b":                "the path behind the host: it has an empty part at position 3",
		"etcd://h/./sl":                `the path behind the host: it has the part "." at position 1`,
		"etcd://h/sl/..":               `the path behind the host: it has the part ".." at position 4`,
		"etcd://h/%2F%2Fsl":            "the path behind the host: it has an empty part at position 2",
		"etcd://h/sl%2F/":              "the path behind the host: it has an empty part at position 4",
		"etcd://h/sl%20/x":             "the path behind the host: it has ' ' at position 3",
		"etcd://h/sl/r":                `prefix "sl/r/": it has the part "r" at position 4`,
		"etcds://u:secret@h/a//b":      "the path behind the host: it has an empty part at position 3",
		"zookeeper://h//sl":            "the path behind the host: it has an empty part at position 1",
		"zookeeper://h/sl//":           "the path behind the host: it has an empty part at position 4",
		"zookeeper://h/a/../b":         `the path behind the host: it has the part ".." at position 3`,
		"zookeeper://h/%2Fsl":          "an empty part at position 2",
		"zookeeper://h/sl/2a":          `root "/sl/2a": it has the part "2a" at position 5`,
		"s3://bucket//p":               "the path behind the host: it has an empty part at position 1",
		"s3://bucket/p//":              "the path behind the host: it has an empty part at position 3",
		"s3://bucket/./p":              `the path behind the host: it has the part "." at position 1`,
		"s3://bucket/p/h":              `prefix "p/h/": it has the part "h" at position 3`,
		"s3://bucket/a b?region=eu-1a": `prefix "a b/": it has ' ' at position 2`,
	} {
		wantRefused(t, url, want)
	}
	// A slash that is asked for begins the keys in etcd, as other programs there have it.
	wantParsed(t, "etcd://h/%2Fteam/locks/", "etcd://h:2379/%2Fteam/locks", "")
	e, _ := storeurl.EngineOf[storeurl.Etcd](mustParse(t, "etcd://h/%2Fteam/locks"))
	if e.Options.Prefix != "/team/locks/" {
		t.Errorf("the prefix is %q", e.Options.Prefix)
	}
}

// TestZonesOfIPv6: an address of one link has a zone, which a URL has behind %25.
func TestZonesOfIPv6(t *testing.T) {
	for _, tc := range []struct{ url, want, host string }{
		{"etcd://[fe80::1%25eth0]:1/p", "etcd://[fe80::1%25eth0]:1/p", "fe80::1%eth0"},
		{"etcd://[fe80::1%25eth0],[::1]:7/p", "etcd://[fe80::1%25eth0]:2379,[::1]:7/p", "fe80::1%eth0"},
		{"zookeeper://[fe80::1%25en-0.1]/p", "zookeeper://[fe80::1%25en-0.1]:2181/p", "fe80::1%en-0.1"},
		{"postgres://u:secret@[fe80::1%25eth0]:1,[::1]/d", "postgres://u:secret@[fe80::1%25eth0]:1,[::1]/d", "fe80::1%eth0"},
		{"postgres://u@[fe80::1%25eth0]/d", "postgres://u@[fe80::1%25eth0]/d", "fe80::1%eth0"},
		{"dynamodb://table?region=r-1&endpoint=http://[fe80::1%2525eth0]:8000", "dynamodb://table?region=r-1&endpoint=http://%5Bfe80::1%2525eth0%5D:8000", "fe80::1%eth0"},
		{"s3://bucket?region=r-1&endpoint=http://[fe80::1%2525eth0]:9000", "s3://bucket?region=r-1&endpoint=http://%5Bfe80::1%2525eth0%5D:9000", "fe80::1%eth0"},
	} {
		l, err := storeurl.Parse(tc.url)
		if err != nil {
			t.Errorf("%s: %v", tc.url, err)
			continue
		}
		again, err := storeurl.Parse(l.URL())
		if l.URL() != tc.want || err != nil || again.URL() != l.URL() || l.Host() != tc.host {
			t.Errorf("%s: %q at %q, want %q at %q; read again: %q, %v", tc.url, l.URL(), l.Host(), tc.want, tc.host, again.URL(), err)
		}
	}
	e, _ := storeurl.EngineOf[storeurl.Etcd](mustParse(t, "etcd://[fe80::1%25eth0]:1/p"))
	config, err := e.Config()
	if err != nil || len(config.Endpoints) != 1 || config.Endpoints[0] != "http://[fe80::1%25eth0]:1" {
		t.Errorf("endpoints %q, %v", config.Endpoints, err)
	}
	for _, bad := range []string{"[fe80::1%eth0]", "[fe80::1%25]", "[fe80::1%25e/0]", "[fe80::1%25e%200]", "[127.0.0.1%25eth0]", "[h%25eth0]", "fe80::1%25eth0"} {
		for _, url := range []string{"etcd://" + bad + ":1/p", "zookeeper://" + bad + "/p", "postgres://u@" + bad + ":1/d"} {
			if _, err := storeurl.Parse(url); err == nil {
				t.Errorf("%s is taken", url)
			}
		}
	}
}

// TestZoneIsDialled: the address with its zone is what is dialled.
func TestZoneIsDialled(t *testing.T) {
	for _, url := range []string{"etcd://[fe80::1%25none0]:9/p", "zookeeper://[fe80::1%25none0]:9/p", "postgres://u@[fe80::1%25none0]:9,[fe80::1%25none0]:10/d?sslmode=disable"} {
		s, err := mustParse(t, url).Open()
		if err == nil {
			t.Errorf("%s: it was opened", url)
			_ = s.Close()
		} else if !strings.Contains(err.Error(), "fe80::1%none0") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// The variable is trimmed as the file is.
func TestPasswordVariableEndsWithNewline(t *testing.T) {
	for _, ours := range []string{"first\n", "first\r\n"} {
		t.Setenv("TENURE_STORE_PASSWORD", ours)
		e, _ := storeurl.EngineOf[storeurl.Etcd](mustParse(t, "etcd://u@h/p"))
		if got, err := e.Password(); got != "first" || err != nil {
			t.Errorf("etcd, %q: %q, %v", ours, got, err)
		}
		p, _ := storeurl.EngineOf[storeurl.Postgres](mustParse(t, "postgres://u@h/d"))
		if got, err := p.Password(); got != "first" || err != nil {
			t.Errorf("postgres, %q: %q, %v", ours, got, err)
		}
	}
}
