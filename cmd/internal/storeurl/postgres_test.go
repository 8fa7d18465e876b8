// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A password comes from the URL, from the file, from Tenure's variable, or from where pgx
// finds one.
func TestPostgresPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	passfile := filepath.Join(t.TempDir(), "pgpass")
	for name, text := range map[string]string{file: "of the file\n", passfile: "*:*:*:*:of pgpass\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PGPASSFILE", passfile)
	for _, tc := range []struct{ url, ours, pgx, want string }{
		{"postgres://u:of%20the%20URL@h/db", "no", "no", "of the URL"},
		{"postgres://u@h/db?password=of%20the%20URL", "no", "no", "of the URL"},
		{"postgres://u@h/db?password_file=" + file, "no", "no", "of the file"},
		{"postgres://u@h/db", "ours", "no", "ours"},
		{"postgres://u@h/db", "", "of pgx", "of pgx"},
		{"postgres://u@h/db", "", "", "of pgpass"},
		{"postgres://h/db", "no", "of pgx", "of pgx"},
	} {
		t.Setenv(PasswordVariable, tc.ours)
		t.Setenv("PGPASSWORD", tc.pgx)
		if got := poolConfig(t, tc.url).ConnConfig.Password; got != tc.want {
			t.Errorf("%s with %q and %q: password %q, want %q", tc.url, tc.ours, tc.pgx, got, tc.want)
		}
	}
	l := mustParse(t, "postgres://u@h/db?password_file="+file+"-none")
	if _, err := l.Open(); err == nil || !strings.Contains(err.Error(), "password_file=: open ") {
		t.Errorf("without the file: %v", err)
	}
}

// Pgx gets what its parameters say, and the parts of the URL as they were meant.
func TestPostgresConfig(t *testing.T) {
	t.Setenv("PGAPPNAME", "nightly")
	c := poolConfig(t, "postgres://a%3Ab:c%2Fd%40e@h:1,g/d%20b?sslmode=disable&connect_timeout=5"+
		"&table=t&listen=off&commit=remote_apply&search_path=x%2Cy").ConnConfig
	if c.User != "a:b" || c.Password != "c/d@e" || c.Host != "h" || c.Port != 1 || len(c.Fallbacks) != 1 ||
		c.Fallbacks[0].Host != "g" || c.Database != "d b" ||
		c.TLSConfig != nil || c.ConnectTimeout.Seconds() != 5 || c.RuntimeParams["search_path"] != "x,y" ||
		c.RuntimeParams["application_name"] != "nightly" || len(c.RuntimeParams) != 2 {
		t.Errorf("user %q, password %q, host %q:%d, then %v, database %q, %v, %v", c.User, c.Password, c.Host, c.Port,
			c.Fallbacks, c.Database, c.ConnectTimeout, c.RuntimeParams)
	}
	if c := poolConfig(t, "postgres://h,g/db").ConnConfig; c.ConnectTimeout.Seconds() != 2 {
		t.Errorf("each of two hosts has %v", c.ConnectTimeout)
	}
	t.Setenv("PGCONNECT_TIMEOUT", "6")
	if c := poolConfig(t, "postgres://h,g/db").ConnConfig; c.ConnectTimeout.Seconds() != 6 {
		t.Errorf("each of two hosts has %v", c.ConnectTimeout)
	}
}

// The address at which the store listens has the user and the password of the store, unless
// it has its own.
func TestPostgresListen(t *testing.T) {
	t.Setenv(PasswordVariable, "ours")
	for _, tc := range []struct{ url, want string }{
		{"postgres://u:p@h/db", ""},
		{"postgres://u:p@h/db?listen=off", "off"},
		{"postgres://u:p@h/db?listen=postgres://g/db", "postgres://u:p@g/db"},
		{"postgres://u@h/db?listen=postgres://g/db", "postgres://u:ours@g/db"},
		{"postgres://u:p@h/db?listen=postgres://u@g/db", "postgres://u:p@g/db"},
		{"postgres://u:p@h/db?listen=postgres://v@g/db", "postgres://v:ours@g/db"},
		{"postgres://u:p@h/db?listen=postgres://v:q@g/db", "postgres://v:q@g/db"},
		{"postgres://h/db?listen=postgres://g/db", "postgres://g/db"},
	} {
		l := mustParse(t, tc.url)
		if o, err := l.written.clone().postgresOptions(); err != nil || o.Listen != tc.want {
			t.Errorf("%s: listens at %q, %v; want %q", tc.url, o.Listen, err, tc.want)
		}
	}
}

// The password file is for the pool, and for an address to listen at that has the same user and
// no password.
func TestPostgresPasswordIsReadAgain(t *testing.T) {
	t.Setenv(PasswordVariable, "ours")
	file := filepath.Join(t.TempDir(), "password")
	for _, tc := range []struct{ listen, want string }{
		{"postgres://g/db", "second"},
		{"postgres://u@g/db", "second"},
		{"postgres://u:p@g/db", "p"},
		{"postgres://v@g/db", "ours"},
	} {
		write := func(password string) {
			if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("first")
		p := mustParse(t, "postgres://u@h/db?password_file="+file+"&listen="+tc.listen).written.clone()
		o, err := p.postgresOptions()
		if err != nil {
			t.Fatal(err)
		}
		write("second")
		for url, want := range map[string]string{"postgres://u:first@h/db": "second", o.Listen: tc.want} {
			c, err := pgx.ParseConfig(url)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.BeforeConnect(t.Context(), c); err != nil || c.Password != want {
				t.Errorf("listen=%s: %s has password %q, %v; want %q", tc.listen, url, c.Password, err, want)
			}
		}
	}
}

// What pgx says of a URL that it does not take, has no password.
func TestPostgresOpenTellsNoPassword(t *testing.T) {
	for query, want := range map[string]string{
		"sslmode=never":                                 "postgres: the URL, or a variable PG..., cannot be used: ",
		"pool_max_conns=many":                           "pool_max_conns",
		"target_session_attrs=best":                     "target_session_attrs",
		"sslrootcert=/none":                             "/none",
		"listen=postgres://g/d%3Fsslmode=no":            "cannot be used: ",
		"listen=postgres://u:secret@g/d%3Fsslmode=n`:o": "cannot be used: ",
	} {
		l := mustParse(t, "postgres://u:secret@127.0.0.1:1/db?sslpassword=secret&"+query)
		_, err := l.Open()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") ||
			strings.Contains(err.Error(), "postgres://") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want one line with %q, and not the URL", query, err, want)
		}
	}
}

func poolConfig(t *testing.T, url string) *pgxpool.Config {
	t.Helper()
	l := mustParse(t, url)
	text, err := l.written.clone().pgxText()
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
