// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/etcdstore"
	"github.com/tenurelock/tenure/k8sstore"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/mysqlstore"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/redisstore"
	"github.com/tenurelock/tenure/s3store"
	"github.com/tenurelock/tenure/zkstore"
)

func mustParse(t *testing.T, url string) Location {
	t.Helper()
	l, err := Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// made is a URL of testdata/urls.txt, and what is made of it.
type made struct{ url, want string }

func urls(t testing.TB) (all []made) {
	t.Helper()
	text, err := os.ReadFile("testdata/urls.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		switch line[0] {
		case '#', '\n':
			continue
		case '\t':
			all[len(all)-1].want += line
			continue
		}
		line = strings.TrimSuffix(line, "\n")
		if url, err := strconv.Unquote(line); err == nil {
			line = url
		}
		all = append(all, made{url: line})
	}
	return all
}

// TestURLs also reads again what a URL is written as: it means the same.
func TestURLs(t *testing.T) {
	all := urls(t)
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("XDG_STATE_HOME", "/s")
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.1.0.1")
	names := strings.NewReplacer(dir, "DIR", filepath.Dir(dir), "UP")
	for _, m := range all {
		l, err := Parse(m.url)
		got, people := "", ""
		if err != nil {
			people = err.Error()
			if m.url != "" {
				people = strings.ReplaceAll(people, usage(), "USAGE")
			}
			got = "\t! " + people + "\n"
		} else {
			people = l.Shown()
			got = "\t= " + l.URL() + "\n"
			if people != l.URL() {
				got += "\tshown " + people + "\n"
			}
			if strings.Contains(m.want, "\ton ") {
				got += "\ton " + l.Host() + "\n"
			}
			again, err := Parse(l.URL())
			again.written.engine = l.written.engine
			if err != nil || !reflect.DeepEqual(again.written, l.written) {
				t.Errorf("%s is written as %s, which is %+v, %v; want %+v", m.url, l.URL(), again.written, err, l.written)
			} else if again.URL() != l.URL() || again.Shown() != people {
				t.Errorf("%s is written as %s, which is written as %s", m.url, l.URL(), again.URL())
			}
		}
		if got = names.Replace(got); got != m.want {
			t.Errorf("%q\n%swant\n%s", m.url, got, m.want)
		}
		if strings.Contains(people, "secret") {
			t.Errorf("%s: the password is shown: %s", m.url, people)
		}
	}
}

// TestSettings: what a URL says comes to the options of its store.
func TestSettings(t *testing.T) {
	for url, want := range map[string]any{
		"dynamodb://locks?shared=true&dialect=dynamolock&sort-key=sk&sort-value=a%20b%26c%23&profile=p&region=r" +
			"&endpoint=http://h&partition-key=id&eventual-replicas=1&ttl=true&unshare=false": &dynamostore.Options{
			PartitionKey: "id", SortKey: "sk", SortValue: "a b&c#", Dialect: dynamostore.Dynamolock,
			SharedTable: true, EventualReplicas: true, TimeToLive: true,
		},
		"dynamodb://locks?unshare=1":       &dynamostore.Options{Unshare: true},
		"s3://bucket/p?path_style=1":       &s3store.Options{Prefix: "p/"},
		"s3://bucket?trust=true":           &s3store.Options{TrustServer: true},
		"kubernetes:?prefix=p&shared=true": &k8sstore.Options{Prefix: "p.", SharedLease: true},
		"etcds://u:p@h/%2Fteam/locks":      &etcdstore.Options{Prefix: "/team/locks/"},
		"zookeeper://u@h:1/p?session=20s":  zkstore.Options{Root: "/p", Session: 20 * time.Second, User: "u"},
		"postgres://u@h/d?listen=off&commit=remote_apply&table=s.t&sslmode=disable": pgstore.Options{
			Table: "s.t", Commit: pgstore.CommitRemoteApply, Listen: pgstore.ListenOff,
		},
		"postgres://u@h/d?guard=standbys&need=1&of=2&wal_sender_timeout=20s&lease=30s": pgstore.Options{
			Table: "tenure_records", Commit: pgstore.CommitOn,
			Guarded: &pgstore.Guarded{Standbys: 2, Need: 1, SenderTimeout: 20 * time.Second, Lease: 30 * time.Second},
		},
		"postgres://u@h/d?guard=patroni-watchdog": pgstore.Options{
			Table: "tenure_records", Commit: pgstore.CommitOn, Guarded: &pgstore.Guarded{Watchdog: true},
		},
		"postgres://u@h/d?standbys=accept": pgstore.Options{
			Table: "tenure_records", Commit: pgstore.CommitOn, AcceptStandbys: true,
		},
		"mysql://h/d": &mysqlstore.Options{},
		"mariadb://h/d?table=x.t&promotion=never&max_conns=4": &mysqlstore.Options{Table: "x.t", NoPromotion: true, MaxConns: 4},
		"redis://h?prefix=p&replicas=4&quorum=1&lag=5s&lease=1m": &redisstore.Options{
			Prefix: "p", Replicas: 4, Quorum: true, Lag: 5 * time.Second, Lease: time.Minute,
		},
		"rediss://h?mode=single": &redisstore.Options{Single: true},
		"sqlite:/l.db?mode=0660": "0660",
	} {
		p, got := mustParse(t, url).written, any(nil)
		switch p.scheme {
		case "dynamodb":
			got = p.tableOptions()
		case "s3":
			got = p.bucketOptions()
		case "kubernetes":
			got = p.kubernetesOptions()
		case "etcds":
			got = p.etcdOptions()
		case "zookeeper":
			got = p.zooKeeperOptions()
		case "postgres":
			o, err := p.postgresOptions()
			if o.BeforeConnect = nil; err != nil {
				t.Error(err)
			}
			got = o
		case "mysql", "mariadb":
			got = p.mysqlOptions()
		case "redis", "rediss":
			got = p.redisOptions()
		case "sqlite":
			got = p.values["mode"]
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s has %+v, want %+v", url, got, want)
		}
	}
	if l := mustParse(t, "memory:"); !l.Private() || mustParse(t, "etcd://h").Private() {
		t.Error("memory: is private, and etcd: is not")
	}
	if l := mustParse(t, "sqlite:/l.db"); l.File() != "/l.db" || mustParse(t, "postgres://u@h").User() != "u" {
		t.Errorf("the file is %q", l.File())
	}
}

// TestFoundStays: what an engine has said of a store stays in its URL when the store is opened
// again without asking it.
func TestFoundStays(t *testing.T) {
	e := &engine{scheme: "x", open: func(_ context.Context, p *place, ask bool) (driver.Store, error) {
		if ask {
			p.values["table"] = "found"
		}
		return memstore.New(), nil
	}}
	l := Location{place{engine: e, name: "n", values: map[string]string{}}, new(atomic.Pointer[place]), false}
	for _, open := range []func() (driver.Store, error){
		l.Open, func() (driver.Store, error) { return l.Connect(t.Context()) },
	} {
		if _, err := open(); err != nil || l.URL() != "x://n?table=found" || len(l.written.values) > 0 {
			t.Errorf("%s, written %v, %v", l.URL(), l.written.values, err)
		}
	}
}

func TestDefault(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	preset := filepath.Join(home, ".local/state")
	named := filepath.Join(home, "s")
	for state, want := range map[string]string{"": preset, "relative": preset, named: named} {
		want = "sqlite:" + filepath.Join(want, "tenure/locks.db")
		t.Setenv("XDG_STATE_HOME", state)
		l, err := Default()
		named := mustParse(t, "default:")
		if err != nil || l.URL() != want || named.URL() != want {
			t.Errorf("with XDG_STATE_HOME %q: %q, %v, named %q; want %q", state, l.URL(), err, named.URL(), want)
		}
		if !l.Preset() || !named.Preset() || mustParse(t, want).Preset() {
			t.Errorf("with XDG_STATE_HOME %q it is preset if nobody names the file, and only then", state)
		}
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := Default(); err == nil || !strings.Contains(err.Error(), "--store") {
		t.Errorf("without a home: %v", err)
	}
}

// Whatever is wrong with a URL, what stands behind a colon or an @ is not shown: it
// may be a password.
func FuzzErrorsTellNoPassword(f *testing.F) {
	for _, m := range urls(f) {
		if before, after, ok := strings.Cut(m.url, "secret"); ok {
			f.Add(before, after)
		}
	}
	f.Add("dynamodb://locks?partition-key=tenure:", "")
	f.Add("dynamodb://locks?partition-key=rangeKey@", "&sort-key=key@&sort-value=x")
	const secret = "s3cr3tpw"
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, sign := range []string{":", "@", ""} {
			if sign == "" && !strings.HasSuffix(before, ":") && !strings.HasSuffix(before, "@") {
				continue
			}
			url := before + sign + secret + after
			if _, err := Parse(url); err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("Parse(%q) tells the password: %v", url, err)
			}
		}
	})
}

// Whatever a URL is, if it is one then what it is written as means the same, and what is
// shown of it has no password.
func FuzzPostgres(f *testing.F) {
	for _, m := range urls(f) {
		if text, ok := strings.CutPrefix(m.url, "postgres:"); ok {
			f.Add(strings.Replace(text, "secret", "s3cr3tpw", 1))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse("postgres:" + text)
		if err != nil {
			return
		}
		again, err := Parse(l.URL())
		if err != nil || again.URL() != l.URL() || again.Shown() != l.Shown() {
			t.Fatalf("%q is %q, shown %q; read again %+v, %v", text, l.URL(), l.Shown(), again, err)
		}
		if _, err := Parse(l.Shown()); err != nil {
			t.Errorf("%q is shown as %q: %v", text, l.Shown(), err)
		}
		p := &l.written
		if password, err := p.knownPassword(); err == nil && strings.Contains(password, "s3cr3tpw") &&
			strings.Contains(strings.Replace(l.Shown(), p.user, "", 1), "s3cr3tpw") && strings.Count(text, "s3cr3tpw") == 1 {
			t.Errorf("%q is shown as %q", text, l.Shown())
		}
	})
}
