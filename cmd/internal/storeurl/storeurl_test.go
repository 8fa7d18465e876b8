// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl_test

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
)

// mustParse parses the URL.
func mustParse(t *testing.T, url string) storeurl.Location {
	t.Helper()
	l, err := storeurl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wantParsed fails the test unless the URL is understood, is written as want says, which
// means the same when it is read again, and is shown without a password. If shown is "",
// it is shown as it is written.
func wantParsed(t *testing.T, url, want, shown string) {
	t.Helper()
	l, err := storeurl.Parse(url)
	if err != nil {
		t.Errorf("%s: %v", url, err)
		return
	}
	if shown == "" {
		shown = want
	}
	again, err := storeurl.Parse(l.URL())
	if l.URL() != want || l.Shown() != shown || err != nil || again.URL() != l.URL() {
		t.Errorf("%s: %q, shown %q, want %q; read again: %q, %v", url, l.URL(), l.Shown(), want, again.URL(), err)
	}
	if strings.Contains(l.Shown(), "secret") {
		t.Errorf("%s: the password is shown: %s", url, l.Shown())
	}
}

// wantRefused fails the test unless the URL is refused, with an error that has the text
// and no password.
func wantRefused(t *testing.T, url, want string) {
	t.Helper()
	_, err := storeurl.Parse(url)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Parse(%q) = %v; want an error with %q", url, err, want)
	} else if strings.Contains(err.Error(), "secret") {
		t.Errorf("Parse(%q) tells the password: %v", url, err)
	}
}

func TestParse(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	at := func(name string) string { return "sqlite:" + filepath.Join(dir, name) }
	for _, tc := range []struct{ url, want string }{
		{"sqlite:a.db", at("a.db")},
		{"sqlite:./sub/../a.db", at("a.db")},
		{"sqlite:" + filepath.Join(dir, "b.db"), at("b.db")},
		{"sqlite://" + filepath.Join(dir, "b.db"), at("b.db")},
		{"sqlite:what?.db", at("what?.db")}, // a path, not a query
		{"sqlite:a.db?mode=0660", at("a.db?mode=0660")},
		{"sqlite:a.db?mode=600", at("a.db?mode=0600")},
		{"sqlite:what?.db?mode=0660", at("what?.db?mode=0660")},
		{"sqlite:a.db?mode=1?mode=0600", at("a.db?mode=1?mode=0600")},
		{"memory:", "memory:"},
		{"sqlite:./~/a.db", at("~/a.db")},
		{"sqlite:./$HOME.db", at("$HOME.db")},
		{"sqlite:a$HOME.db", at("a$HOME.db")},
	} {
		l, err := storeurl.Parse(tc.url)
		if err != nil || l.URL() != tc.want {
			t.Errorf("Parse(%q) = %q, %v; want %q", tc.url, l.URL(), err, tc.want)
		}
		if l.Private() != (tc.want == "memory:") {
			t.Errorf("Parse(%q).Private() = %v", tc.url, l.Private())
		}
	}
}

// The URL goes to commands in other folders, so every file in it has its whole path, whatever
// the engine calls it.
func TestFilesInURLsAreAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, tc := range []struct{ url, want string }{
		{"etcd://u@h:1/p?ca=a&cert=b&key=sub/c&password_file=../d", "etcd://u@h:1/p?ca=DIR/a&cert=DIR/b&key=DIR/sub/c&password_file=UP/d"},
		{"zookeeper://u@h:1/p?ca=a&cert=b&key=c&password_file=d", "zookeeper://u@h:1/p?ca=DIR/a&cert=DIR/b&key=DIR/c&password_file=DIR/d"},
		{"postgres://u@h/db?password_file=p", "postgres://u@h/db?password_file=DIR/p"},
		{
			"postgres://h/db?sslrootcert=a&sslcert=b&sslkey=c&passfile=d&servicefile=e&sslmode=verify-full",
			"postgres://h/db?sslrootcert=DIR/a&sslcert=DIR/b&sslkey=DIR/c&passfile=DIR/d&servicefile=DIR/e&sslmode=verify-full",
		},
		{"postgres://h/db?sslrootcert=system", "postgres://h/db?sslrootcert=system"}, // no file, but a word of pgx
		{
			"postgres://h/db?listen=postgres://h/db?sslrootcert%3Da",
			"postgres://h/db?listen=postgres://h/db%3Fsslrootcert%3DDIR/a",
		},
		{"kubernetes://jobs?kubeconfig=k", "kubernetes://jobs?kubeconfig=DIR/k"},
		{"sqlite:l.db", "sqlite:DIR/l.db"},
	} {
		want := strings.NewReplacer("DIR", dir, "UP", filepath.Dir(dir)).Replace(tc.want)
		if got := mustParse(t, tc.url).URL(); got != want {
			t.Errorf("Parse(%q).URL() = %q; want %q", tc.url, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"", "store URL is empty: write sqlite:PATH, dynamodb://TABLE?region=REGION, etcd://HOST:2379/PREFIX, zookeeper://HOST:2181/ROOT, postgres://USER@HOST/DATABASE, kubernetes://NAMESPACE, s3://BUCKET/PREFIX, memory: or default:"},
		{"locks.db", `store URL "locks.db" has no scheme: write sqlite:PATH, dynamodb://TABLE?region=REGION, etcd://HOST:2379/PREFIX, zookeeper://HOST:2181/ROOT, postgres://USER@HOST/DATABASE, kubernetes://NAMESPACE, s3://BUCKET/PREFIX, memory: or default:`},
		{"/tmp/locks.db", `store URL "/tmp/locks.db" has no scheme`},
		{"./a:b", `store URL "./a:…" has no scheme`},
		{"default:x", "nothing follows the colon"},
		{"sqlite:~/l.db", `nobody has made a folder of the "~"`},
		{"sqlite:~web/l.db", `nobody has made a folder of the "~"`},
		{"sqlite:$HOME/l.db", `nobody has put in the value for the "$"`},
		{"sqlite:${HOME}/l.db", `nobody has put in the value for the "$"`},
		{"//u:secret@h/db", `store URL "…" has no scheme`},
		{"redis.cluster://u:secret@h", `store URL "…" has no scheme`},
		{"x:u:secret", `store URL "x:…" has no scheme`},
		{"secret@h", `store URL "…" has no scheme`},
		{"u@secret", `store URL "…" has no scheme`},
		{"sqlite://u:secret@h/db", `store URL "sqlite://…": there is no host`},
		{"memory:u:secret", `store URL "memory:…": nothing follows`},
		{"re dis://u:secret@h", `store URL "…" has no scheme`},
		{`C:\locks.db`, `has no scheme`},
		{"sqlite:", "the path is empty"},
		{"sqlite::memory:", "exclude no other process"},
		{"sqlite://locks.db", "there is no host"},
		{"sqlite:a\x00b", `'\x00' at position 9`},
		{"sqlite:?mode=0660", "the path is empty"},
		{"sqlite:a.db?mode=", `mode "" is none of a database`},
		{"sqlite:a.db?mode=0066", `mode "0066" is none of a database`},
		{"sqlite:a.db?mode=0777", `mode "0777" is none of a database`},
		{"sqlite:a.db?mode=rw", `mode "rw" is none of a database`},
		{"sqlite:a.db?cache=shared", `parameter "cache" is unknown`},
		{"memory:x", "nothing follows the colon"},
		{"zk://h:1/p", `store scheme "zk" is unknown`},
		{"gs://bucket/locks", `store scheme "gs" is for programs alone: package gcsstore keeps locks there, and this command does not have it; write sqlite:PATH, `},
		{"azblob://locks", `store scheme "azblob" is for programs alone: package azblobstore `},
		{"redis://u:secret@h", `store scheme "redis" is unknown: write sqlite:PATH, dynamodb://TABLE?region=REGION, etcd://HOST:2379/PREFIX, zookeeper://HOST:2181/ROOT, postgres://USER@HOST/DATABASE, kubernetes://NAMESPACE, s3://BUCKET/PREFIX, memory: or default:`},
	} {
		wantRefused(t, tc.url, tc.want)
	}
}

func TestDefault(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the state folder is another one there")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, tc := range []struct{ state, want string }{
		{"", filepath.Join(home, ".local/state")},
		{"relative", filepath.Join(home, ".local/state")},
		{filepath.Join(home, "s"), filepath.Join(home, "s")},
	} {
		t.Setenv("XDG_STATE_HOME", tc.state)
		l, err := storeurl.Default()
		if want := "sqlite:" + filepath.Join(tc.want, "tenure/locks.db"); err != nil || l.URL() != want {
			t.Errorf("with XDG_STATE_HOME %q: %q, %v; want %q", tc.state, l.URL(), err, want)
		}
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := storeurl.Default(); err == nil || !strings.Contains(err.Error(), "--store") {
		t.Errorf("without a home: %v", err)
	}
}

func TestDefaultIsNamed(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	want, err := storeurl.Default()
	if err != nil {
		t.Fatal(err)
	}
	l, err := storeurl.Parse("default:")
	if err != nil || l.URL() != want.URL() || !l.Preset() || !want.Preset() {
		t.Errorf("default: is %q, %v; want %q", l.URL(), err, want.URL())
	}
	if l, err := storeurl.Parse(want.URL()); err != nil || l.Preset() {
		t.Errorf("%s: %v, preset %v", want.URL(), err, l.Preset())
	}
}

// Whatever is wrong with a URL, what stands behind a colon or an @ is not shown: it
// may be a password.
func FuzzErrorsTellNoPassword(f *testing.F) {
	for _, s := range [][2]string{
		{"//u:", "@h/db"},
		{"user=u password=:", " host=h"},
		{"host=h;password=:", ""},
		{"postgres//u%3A:", "%40h"},
		{"sqlite:x?mode=:", ""},
		{"redis.cluster://u:", "@h"},
		{"x:u:", ""},
		{"u@", ""},
		{"sqlite://u:", "@h/db"},
		{"sqlite:~u:", ""},
		{"dynamodb://u:", "@locks"},
		{"dynamodb://u:", "?region=r"},
		{"dynamodb:", ""},
		{"dynamodb://arn:aws:dynamodb:", ":1:table/x"},
		{"dynamodb://locks?region=u:", ""},
		{"dynamodb://locks?u:", "=1"},
		{"dynamodb://locks?endpoint=http://u:", "@h"},
		{"dynamodb://locks?dialect=u:", ""},
		{"dynamodb://locks?partition-key=u:", "&sort-key=x"},
		{"postgres://u:", "@h"},
		{"postgres://u:", ""},
		{"postgres://u:1/", "@h/d"},
		{"postgres://u:1?a=", "@h/d"},
		{"postgres://u:1?table=", "@h/d"},
		{"postgres://[u:", "]/d"},
		{"postgres://h/d?password=a&password=:", ""},
		{"postgres://h/d?commit=:", ""},
		{"postgres://h/d?table=:", ""},
		{"postgres://h/d?listen=:", ""},
		{"postgres://h/d?listen=postgres://u:", "@h%zz"},
		{"postgresql://u@h/d?listen=postgres://u:", "@h,:x/d"},
		{"kubernetes://u:", "@h"},
		{"kubernetes:", ""},
		{"kubernetes://n?context=a&context=:", ""},
		{"kubernetes://n?prefix=u:", ""},
		{"kubernetes://n?shared=:", ""},
		{"kubernetes://n?:", "=x"},
		{"memory:", ""},
		{"default:u:", ""},
		{"PG://u:", "@h"},
		{"dynamodb://locks?partition-key=tenure:", ""},
		{"dynamodb://locks?partition-key=rangeKey@", "&sort-key=key@&sort-value=x"},
	} {
		f.Add(s[0], s[1])
	}
	const secret = "s3cr3tpw"
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, sign := range []string{":", "@", ""} {
			if sign == "" && !strings.HasSuffix(before, ":") && !strings.HasSuffix(before, "@") {
				continue
			}
			url := before + sign + secret + after
			if _, err := storeurl.Parse(url); err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("Parse(%q) tells the password: %v", url, err)
			}
		}
	})
}
