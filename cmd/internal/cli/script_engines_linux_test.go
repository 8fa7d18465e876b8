// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenurelock/tenure/cmd/internal/scripts"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/zkstore"
)

// TestEtcdScripts runs the scripts of testdata/etcd, and those of testdata that are for
// any store. GUARDED is an etcd with users; app, with the password "secret", may write
// only below locks/.
func TestEtcdScripts(t *testing.T) {
	address := strings.TrimPrefix(enginetest.Shared(t, enginetest.Etcd, "etcd"), "http://")
	guarded := guardedEtcd(t)
	runStoreScripts(t, "etcd", nil, func(env *testscript.Env) error {
		env.Setenv("GUARDED", guarded)
		env.Setenv("STORE", "etcd://"+address+"/test/"+rand.Text())
		return nil
	})
}

// guardedEtcd starts an etcd that has users.
func guardedEtcd(t *testing.T) string {
	t.Helper()
	member := enginetest.StartEtcd(t, 1, "--unsafe-no-fsync")[0]
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{member.URL}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"root", "app"} {
		must(client.UserAdd(ctx, user, "secret"))
	}
	must(client.UserGrantRole(ctx, "root", "root"))
	must(client.RoleAdd(ctx, "locks"))
	must(client.RoleGrantPermission(ctx, "locks", "locks/", clientv3.GetPrefixRangeEnd("locks/"),
		clientv3.PermissionType(clientv3.PermReadWrite)))
	must(client.UserGrantRole(ctx, "app", "locks"))
	must(client.AuthEnable(ctx))
	return strings.TrimPrefix(member.URL, "http://")
}

// TestZooKeeperScripts runs the scripts of testdata/zookeeper, and those of testdata that
// are for any store. GUARDED is a ZooKeeper with /locks for
// the user app, whose password is "secret", and /theirs for another one.
func TestZooKeeperScripts(t *testing.T) {
	address := enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper")
	guarded := guardedZooKeeper(t)
	runStoreScripts(t, "zookeeper", nil, func(env *testscript.Env) error {
		env.Setenv("GUARDED", guarded)
		env.Setenv("STORE", "zookeeper://"+address+"/test-"+rand.Text())
		return nil
	})
}

// guardedZooKeeper starts a ZooKeeper whose users have a part each.
func guardedZooKeeper(t *testing.T) string {
	t.Helper()
	server := enginetest.StartZooKeeper(t, 1, "forceSync=no")[0]
	for root, user := range map[string]string{"/locks": "app", "/theirs/locks": "other"} {
		s, err := zkstore.Open(t.Context(), []string{server.Addr},
			&zkstore.Options{Root: root, User: user, Password: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, _, err := s.Claim(t.Context(), driver.Record{
			Key: "begun", Version: "v", Beat: "v", Owner: user, Lease: time.Second, State: driver.Held,
		}); err != nil {
			t.Fatal(err)
		}
	}
	return server.Addr
}

// TestRedisScripts runs the scripts of testdata/redis, and those of testdata that are for any store. STORE is on
// a server that loses nothing, for leases of any length. GUARDED is the address of one without users, where PREFIX
// has no store yet.
func TestRedisScripts(t *testing.T) {
	enginetest.MakeVerify(t)
	guarded := enginetest.StartRedis(t).Addr
	single := enginetest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always").URL
	runStoreScripts(t, "redis", nil, func(env *testscript.Env) error {
		env.Setenv("GUARDED", guarded)
		env.Setenv("PREFIX", rand.Text())
		at, err := storeurl.Parse(single + "?mode=single&prefix=" + rand.Text())
		if err != nil {
			return err
		}
		return create(t, env, at)
	})
}

// create makes the store of STORE.
func create(t *testing.T, env *testscript.Env, at storeurl.Location) error {
	env.Setenv("STORE", at.URL())
	store, err := at.Connect(t.Context())
	if err != nil {
		return err
	}
	defer store.Close()
	_, err = store.(driver.Provisioner).Create(t.Context(), driver.CreateOptions{})
	return err
}

// TestMySQLScripts runs the scripts of testdata/mysql, and those of testdata that are for any store. STORE has its table,
// and NEW is a database that has none.
func TestMySQLScripts(t *testing.T) {
	enginetest.MakeVerify(t)
	server := enginetest.StartMariaDB(t, "--log-bin=bin", "--sync-binlog=1", "--innodb-flush-method=O_DIRECT").URL
	root, err := mysql.ParseDSN("root@tcp(" + strings.TrimPrefix(server, "mysql://root@") + ")/")
	if err != nil {
		t.Fatal(err)
	}
	connector, err := mysql.NewConnector(root)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() }) // scripts run in parallel
	runStoreScripts(t, "mysql", nil, func(env *testscript.Env) error {
		for name, variable := range map[string]string{"d" + rand.Text(): "STORE", "n" + rand.Text(): "NEW"} {
			if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
				return err
			}
			env.Setenv(variable, server+"/"+name)
		}
		at, err := storeurl.Parse(env.Getenv("STORE"))
		if err != nil {
			return err
		}
		return create(t, env, at)
	})
}

// bucketAt is the URL of a store in a bucket of a server that a test has for itself.
func bucketAt(url, bucket, prefix string) string {
	return "s3://" + bucket + "/" + prefix + "?region=" + enginetest.S3Region + "&endpoint=" + url + "&path_style=1"
}

// s3Setup sets what the scripts of testdata/s3 find. BROKEN is a server that ignores the
// conditions of writes, and OTHER one whose bucket is another one.
func s3Setup(t *testing.T, env *testscript.Env, store string) {
	b := enginetest.NewBucket(t)
	b.Break(enginetest.IgnoresConditions)
	env.Setenv("BROKEN", bucketAt(b.URL, b.Name, "locks"))
	env.Setenv("OTHER", bucketAt(b.URL, "no-such-bucket", "locks"))
	env.Setenv("STORE", store)
	env.Setenv("AWS_ACCESS_KEY_ID", enginetest.S3Key)
	env.Setenv("AWS_SECRET_ACCESS_KEY", enginetest.S3Secret)
}

// TestS3Scripts runs the scripts of testdata/s3 on a server of the tests' own.
func TestS3Scripts(t *testing.T) {
	enginetest.MakeVerify(t)
	sound := enginetest.NewBucket(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/s3",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			s3Setup(t, env, bucketAt(sound.URL, sound.Name, rand.Text()))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": scripts.Exits},
	})
}

// TestVersitygwScripts runs them, and those of testdata that are for any store, on a gateway.
func TestVersitygwScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make buckets runs it")
	}
	gateway := enginetest.StartVersitygw(t, 1, "locks")[0]
	runStoreScripts(t, "s3", nil, func(env *testscript.Env) error {
		s3Setup(t, env, bucketAt(gateway.URL, "locks", rand.Text()))
		return nil
	})
}

// TestPostgresScripts runs the scripts of testdata/postgres, and those of testdata that are
// for any store. STORE has its table, on which its role has the least rights. With
// &table=$TABLE after it DATABASE names a table that the script itself makes; table others
// there belongs to another program. GUARDED is the host of a server that asks for passwords: see
// guardedPostgres.
func TestPostgresScripts(t *testing.T) {
	database := enginetest.Database(t, enginetest.PostgreSQL(t))
	guarded := guardedPostgres(t)
	execute(t, database, "CREATE TABLE others (name text)")
	runStoreScripts(t, "postgres", nil, func(env *testscript.Env) error {
		table := "t_" + rand.Text()
		for _, pair := range [][2]string{
			{"GUARDED", guarded},
			{"TABLE", table + "_2"},
			{"DATABASE", database},
			{"STORE", "postgres://app:secret@" + guarded + "/locks?table=public." + table},
		} {
			env.Setenv(pair[0], pair[1])
		}
		text, err := pgstore.Schema(table)
		if err != nil {
			return err
		}
		rights, err := pgstore.Policy(table, "app")
		if err != nil {
			return err
		}
		execute(t, "postgres://tenure@"+guarded+"/locks?sslmode=disable", text, rights)
		return nil
	})
}

// guardedPostgres starts a server that asks its roles for a password, which is "secret", and
// returns its address. Its database locks has the table, for the role app, which may do
// with it what a store must; for reader, which may look; and for stranger and new, which
// may nothing.
func guardedPostgres(t *testing.T) string {
	t.Helper()
	server := enginetest.StartPostgreSQL(t, "fsync=on", "full_page_writes=on")
	table, err := pgstore.Schema("")
	if err != nil {
		t.Fatal(err)
	}
	policy, err := pgstore.Policy("", "app")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, server.URL, "CREATE DATABASE locks")
	for _, role := range []string{"app", "reader", "stranger", "new"} {
		execute(t, server.URL, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'")
	}
	execute(t, "postgres://tenure@"+server.Addr+"/locks?sslmode=disable",
		"REVOKE CREATE ON SCHEMA public FROM PUBLIC", table, policy, "GRANT SELECT ON tenure_records TO reader")
	const access = "host all tenure 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(server.Data, "pg_hba.conf"), []byte(access), 0o600); err != nil {
		t.Fatal(err)
	}
	server.Configure("log_statement", "none") // it reads the file, too
	return server.Addr
}

// execute runs statements in the database of a URL.
func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}
