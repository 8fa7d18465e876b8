// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl_test

import "testing"

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

// The variable is trimmed as the file is.
func TestPasswordVariableEndsWithNewline(t *testing.T) {
	for _, ours := range []string{"first\n", "first\r\n"} {
		t.Setenv("TENURE_STORE_PASSWORD", ours)
		e, _ := mustParse(t, "etcd://u@h/p").Etcd()
		if got, err := e.Password(); got != "first" || err != nil {
			t.Errorf("etcd, %q: %q, %v", ours, got, err)
		}
		p, _ := mustParse(t, "postgres://u@h/d").Postgres()
		if got, err := p.Password(); got != "first" || err != nil {
			t.Errorf("postgres, %q: %q, %v", ours, got, err)
		}
	}
}
