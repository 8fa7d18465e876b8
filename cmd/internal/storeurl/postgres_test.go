// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
)

func TestParsePostgres(t *testing.T) {
	for _, tc := range []struct{ url, want, shown string }{
		{"postgres://", "postgres://", ""},
		{"postgresql://h/db", "postgres://h/db", ""},
		{"postgres:///db?host=/var/run/postgresql", "postgres:///db?host=/var/run/postgresql", ""},
		{"postgres://%2Fvar%2Frun/db", "postgres://%2Fvar%2Frun/db", ""},
		{"postgres://app@h:5433,g,[::1]:7,[::1]/db", "postgres://app@h:5433,g,[::1]:7,[::1]/db", ""},
		{"postgres://h/db?sslmode=verify-full&pool_max_conns=3", "postgres://h/db?sslmode=verify-full&pool_max_conns=3", ""},
		{"postgres://h/db?options=-c%20search_path%3Da+b", "postgres://h/db?options=-c%20search_path%3Da%2Bb", ""},
		{"postgres://h/db?listen=auto&commit=on&table=tenure_records", "postgres://h/db", ""},
		{"postgres://h/db?listen=off&commit=remote_apply&table=s.T&sslmode=disable", "postgres://h/db?sslmode=disable&table=s.T&commit=remote_apply&listen=off", ""},
		{"postgres://app@h/db?password_file=/run/p", "postgres://app@h/db?password_file=/run/p", ""},
		{"postgres://app:s%2Fe:c@r%20et@h/d%2Fb", "postgres://app:s%2Fe%3Ac%40r%20et@h/d%2Fb", "postgres://app@h/d%2Fb"},
		{"postgres://h/db?user=a%3Ab&password=secret", "postgres://a%3Ab:secret@h/db", "postgres://a%3Ab@h/db"},
		{"postgres://h/db?pass%77ord=sec%26ret", "postgres://h/db?password=sec%26ret", "postgres://h/db"},
		{"postgres://h/db?sslpassword=secret&PassWord=secret&passfile=/f", "postgres://h/db?sslpassword=secret&PassWord=secret&passfile=/f", "postgres://h/db?passfile=/f"},
		{
			"postgres://h/db?listen=postgres://u:secret@g/db%3Fsslmode=disable%26password=",
			"", "",
		},
		{
			"postgres://h/db?listen=postgresql://u:secret@g:6/db?sslmode=disable",
			"postgres://h/db?listen=postgres://u:secret%40g:6/db%3Fsslmode%3Ddisable", "postgres://h/db?listen=postgres://u%40g:6/db%3Fsslmode%3Ddisable",
		},
		{
			"postgres://h/db?listen=postgres://g/db%3Fpassword%3Dsecret%26sslmode%3Ddisable",
			"postgres://h/db?listen=postgres://g/db%3Fpassword%3Dsecret%26sslmode%3Ddisable", "postgres://h/db?listen=postgres://g/db%3Fsslmode%3Ddisable",
		},
	} {
		l, err := storeurl.Parse(tc.url)
		if tc.want == "" {
			if err == nil {
				t.Errorf("%s: %q, want an error", tc.url, l.URL())
			}
			continue
		}
		wantParsed(t, tc.url, tc.want, tc.shown)
	}
}

func TestParsePostgresRefuses(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"postgres:", "the two slashes are missing"},
		{"postgres:u:secret@h", "the two slashes are missing"},
		{"postgres://:secret@h/db", "is no USER"},
		{"postgres://u:@h/db", "is no USER"},
		{"postgres://u:sec%ret@h/db", "is no USER"},
		{"postgres://u:secret%00@h/db", "is no USER"},
		{"postgres://u:sec/ret@h/db", `an "@" follows the hosts`},
		{"postgres://u:1/secret@h/db", `an "@" follows the hosts`},
		{"postgres://u:1?secret@h/db", "cannot be read"},
		{"postgres://u:1?a=secret@h/db", `an "@" follows the "?"`},
		{"postgres://u:secret", "no port from 1 to 65535"},
		{"postgres://h:0/db", "no port from 1 to 65535"},
		{"postgres://h:65536/db", "no port from 1 to 65535"},
		{"postgres://[h]/db", "a host cannot be read"},
		{"postgres://[::1/db", "a host cannot be read"},
		{"postgres://h g/db", "a host cannot be read"},
		{"postgres://h/%zz", "the database cannot be read"},
		{"postgres://h/db#x", "write %23"},
		{"postgres://h/db?sslmode", "cannot be read"},
		{"postgres://h/db?ssl;mode=secret", "cannot be read"},
		{"postgres://h/db?sslmode=%zz", "cannot be read"},
		{"postgres://h/db?sslmode=", "sslmode= has no value"},
		{"postgres://h/db?sslmode=a&sslmode=b", "sslmode= is there twice"},
		{"postgres://u@h/db?user=v", "there are two users"},
		{"postgres://u:secret@h/db?password=secret", "there are two passwords"},
		{"postgres://u:secret@h/db?password_file=p", "there are two passwords"},
		{"postgres://h/db?password_file=p", "no user"},
		{"postgres://h/db?table=a-b", "table= is no name of a table"},
		{"postgres://h/db?table=a.b.c", "table= is no name of a table"},
		{"postgres://h/db?commit=off", "commit= is neither on nor remote_apply"},
		{"postgres://h/db?listen=never", "listen= is neither auto nor off, nor a URL"},
		{"postgres://h/db?listen=mysql://u:secret@h/d", "listen= is neither auto nor off, nor a URL"},
		{"postgres://h/db?listen=postgres://u:sec%252ret@h:x/d", "listen=: "},
		{"postgres://h/db?listen=postgres://g/db%3Ftable=t", "listen= has parameters of the store itself"},
	} {
		wantRefused(t, tc.url, tc.want)
	}
}

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
		t.Setenv(storeurl.PasswordVariable, tc.ours)
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
	c := poolConfig(t, "postgres://a%3Ab:c%2Fd%40e@h:1,g/d%20b?sslmode=disable&connect_timeout=5&table=t&listen=off&commit=remote_apply&search_path=x%2Cy").ConnConfig
	if c.User != "a:b" || c.Password != "c/d@e" || c.Host != "h" || c.Port != 1 || len(c.Fallbacks) != 1 || c.Fallbacks[0].Host != "g" || c.Database != "d b" ||
		c.TLSConfig != nil || c.ConnectTimeout.Seconds() != 5 || c.RuntimeParams["search_path"] != "x,y" || c.RuntimeParams["application_name"] != "nightly" || len(c.RuntimeParams) != 2 {
		t.Errorf("user %q, password %q, host %q:%d, then %v, database %q, %v, %v", c.User, c.Password, c.Host, c.Port, c.Fallbacks, c.Database, c.ConnectTimeout, c.RuntimeParams)
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
	t.Setenv(storeurl.PasswordVariable, "ours")
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
		p, _ := storeurl.EngineOf[storeurl.Postgres](l)
		if o, err := p.Options(); err != nil || o.Listen != tc.want {
			t.Errorf("%s: listens at %q, %v; want %q", tc.url, o.Listen, err, tc.want)
		}
	}
}

// The password file is for the pool, and for an address to listen at that has the same user and
// no password.
func TestPostgresPasswordIsReadAgain(t *testing.T) {
	t.Setenv(storeurl.PasswordVariable, "ours")
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
		p, _ := storeurl.EngineOf[storeurl.Postgres](mustParse(t, "postgres://u@h/db?password_file="+file+"&listen="+tc.listen))
		o, err := p.Options()
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
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "postgres://") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want one line with %q, and not the URL", query, err, want)
		}
	}
}

// Whatever a URL is, if it is one then what it is written as means the same, and what is
// shown of it has no password.
func FuzzPostgres(f *testing.F) {
	for _, text := range []string{
		"//u:s3cr3tpw@h:1,g/db?sslmode=require&table=t", "///db?host=/run&user=u&password=s3cr3tpw", "//h/d?listen=postgres://u:s3cr3tpw@g", "//%2Frun/d%2Fb?options=-c%20a%3Db",
		"//[::1]:5/x?listen=off&commit=remote_apply", "//h/d?pass%77ord=s3cr3tpw", "//u:s3cr3tpw:@,,:6/?a.b=%26%3D%25+",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := storeurl.Parse("postgres:" + text)
		if err != nil {
			return
		}
		again, err := storeurl.Parse(l.URL())
		if err != nil || again.URL() != l.URL() || again.Shown() != l.Shown() {
			t.Fatalf("%q is %q, shown %q; read again %q, shown %q, %v", text, l.URL(), l.Shown(), again.URL(), again.Shown(), err)
		}
		if _, err := storeurl.Parse(l.Shown()); err != nil {
			t.Errorf("%q is shown as %q: %v", text, l.Shown(), err)
		}
		p, _ := storeurl.EngineOf[storeurl.Postgres](l)
		if password, err := p.Password(); err == nil && strings.Contains(password, "s3cr3tpw") && strings.Contains(strings.Replace(l.Shown(), p.User, "", 1), "s3cr3tpw") &&
			strings.Count(text, "s3cr3tpw") == 1 {
			t.Errorf("%q is shown as %q", text, l.Shown())
		}
	})
}

func poolConfig(t *testing.T, url string) *pgxpool.Config {
	t.Helper()
	l := mustParse(t, url)
	p, _ := storeurl.EngineOf[storeurl.Postgres](l)
	text, err := storeurl.Whole(p)
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
