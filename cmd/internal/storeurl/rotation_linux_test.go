// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/pgstore"
)

// rotation is a change of what an engine and its clients know each other by.
type rotation struct {
	// holder and candidate are the URLs of their stores.
	holder, candidate string
	// hints says that the candidate gets a hint when it has connected again after a change.
	hints bool
	// changes happen one after the other, while the lock is held and waited for.
	changes []func(t *testing.T)
}

// TestRotation has a holder and a candidate live through each change, and through a start of
// the engine after it: no lease is lost, and the candidate hears of the release, although
// it polls too seldom to see it. On an engine without a watch it polls.
func TestRotation(t *testing.T) {
	enginetest.MakeVerify(t)
	for name, prepare := range map[string]func(*testing.T) rotation{
		"postgres password":      postgresPassword,
		"postgres certificates":  postgresCertificates,
		"etcd password":          etcdPassword,
		"etcd certificates":      etcdCertificates,
		"zookeeper certificates": zooKeeperCertificates,
		"redis password":         redisPassword,
		"redis certificates":     redisCertificates,
		"mysql password":         mysqlPassword,
		"mysql certificates":     mysqlCertificates,
	} {
		t.Run(name, func(t *testing.T) { prepare(t).test(t) })
	}
}

func (r rotation) test(t *testing.T) {
	renewed, stands, hints := make(chan struct{}, 1000), make(chan struct{}, 1000), make(chan struct{}, 1000)
	holder, _ := rotating(t, r.holder, watching{}, renewed)
	candidate, watches := rotating(t, r.candidate, watching{stands: stands, hints: hints}, nil)
	lease, err := holder.Acquire(t.Context(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		lease *tenure.Lease
		err   error
	}
	acquired := make(chan result, 1)
	go func() {
		lease, err := candidate.Acquire(t.Context(), "x", nil)
		acquired <- result{lease, err}
	}()
	if watches {
		<-stands
	}
	for i, change := range r.changes {
		drain(hints)
		change(t)
		if r.hints { // it has read what was changed: what it reads later may be gone
			select {
			case <-hints:
			case <-time.After(time.Minute):
				t.Fatalf("after change %d of %d the candidate does not connect", i+1, len(r.changes))
			}
		}
		drain(renewed)
		for range 2 { // the first one may have been on its way
			select {
			case <-renewed:
			case <-lease.Context().Done():
				t.Fatalf("after change %d of %d: %v", i+1, len(r.changes), context.Cause(lease.Context()))
			case early := <-acquired:
				t.Fatalf("after change %d of %d the candidate has %v, %v", i+1, len(r.changes), early.lease, early.err)
			}
		}
	}
	drain(hints)
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if watches {
		select {
		case <-hints:
		case <-time.After(time.Minute):
			t.Error("the candidate does not hear of the release")
		}
	}
	select {
	case next := <-acquired:
		if next.err != nil || next.lease.Token() != lease.Token()+1 {
			t.Fatalf("the candidate has %v, %v", next.lease, next.err)
		}
		if err := next.lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the candidate does not acquire the lock")
	}
}

// rotating returns a client whose leases outlast a start of the engine on a slow machine,
// and which polls no lock that it waits for, if its store can watch.
func rotating(t *testing.T, url string, w watching, renewed chan struct{}) (client *tenure.Client, watches bool) {
	t.Helper()
	at, err := Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	if w.Store, err = at.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Store.Close() })
	store, poll := driver.Store(w), time.Hour
	if _, watches = w.Store.(driver.Watcher); !watches {
		store, poll = w.Store, 300*time.Millisecond
	}
	client, err = tenure.New(store, &tenure.Options{
		LeaseDuration: 40 * time.Second, HeartbeatPeriod: 300 * time.Millisecond, RefreshPeriod: poll,
		OnEvent: func(e tenure.Event) {
			if e.Kind == tenure.EventRenewed {
				tell(renewed)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(endedContext()) })
	return client, watches
}

// watching is a store that tells when a watch stands, and when one hints.
type watching struct {
	driver.Store
	stands, hints chan struct{}
}

func (w watching) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	stop, err = w.Store.(driver.Watcher).Watch(ctx, key, func() {
		tell(w.hints)
		hint()
	})
	if err == nil {
		tell(w.stands)
	}
	return stop, err
}

func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func drain(c chan struct{}) {
	for len(c) > 0 {
		<-c
	}
}

func postgresPassword(t *testing.T) rotation {
	s, admin := postgresWithUser(t)
	hba(t, s, "host all app 127.0.0.1/32 scram-sha-256")
	file := filepath.Join(t.TempDir(), "password")
	set := func(t *testing.T, password string) {
		mustExec(t, admin(), "ALTER ROLE app PASSWORD '"+password+"'")
		write(t, file, password+"\n")
	}
	set(t, "before")
	at := "postgres://app@" + s.Addr + "/postgres?sslmode=disable&password_file=" + file
	return rotation{
		holder: at, candidate: at + "&listen=postgres://" + s.Addr + "/postgres%3Fsslmode=disable",
		hints: true,
		changes: []func(*testing.T){
			func(t *testing.T) {
				set(t, "after")
				mustExec(t, admin(), endConnections)
			},
			func(*testing.T) { s.Restart() },
			func(t *testing.T) { // a file that is empty, or gone, leaves the password that it had
				write(t, file, "")
				mustExec(t, admin(), endConnections)
			},
			func(t *testing.T) {
				remove(t, file)
				mustExec(t, admin(), endConnections)
			},
		},
	}
}

const endConnections = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'app'"

func postgresCertificates(t *testing.T) rotation {
	s, admin := postgresWithUser(t)
	hba(t, s, "hostssl all app 127.0.0.1/32 scram-sha-256 clientcert=verify-full")
	dir := t.TempDir()
	passfile := filepath.Join(dir, "pgpass")
	set := func(t *testing.T, password string) {
		c := issue(t)
		c.client(t, dir)
		c.server(t, s.Data)
		s.Configure("ssl_ca_file", "ca.pem")
		s.Configure("ssl_cert_file", "server.pem")
		s.Configure("ssl_key_file", "server.key")
		s.Configure("ssl", "on")
		mustExec(t, admin(), "ALTER ROLE app PASSWORD '"+password+"'")
		write(t, passfile, "*:*:*:*:"+password+"\n")
	}
	set(t, "before")
	files := fmt.Sprintf("sslmode=verify-full&sslrootcert=%s/ca.pem&sslcert=%[1]s/client.pem&sslkey=%[1]s/client.key"+
		"&passfile=%s", dir, passfile)
	at := "postgres://app@" + s.Addr + "/postgres?" + files
	return rotation{
		holder: at, candidate: at + "&listen=postgres://" + s.Addr + "/postgres%3F" + strings.ReplaceAll(files, "&", "%26"),
		hints: true,
		changes: []func(*testing.T){
			func(t *testing.T) {
				set(t, "after")
				mustExec(t, admin(), endConnections)
			},
			func(*testing.T) { s.Restart() },
			func(t *testing.T) { // what cannot be read leaves what it had
				remove(t, passfile)
				mustExec(t, admin(), endConnections)
			},
			func(t *testing.T) {
				remove(t, filepath.Join(dir, "ca.pem"))
				mustExec(t, admin(), endConnections)
			},
		},
	}
}

// postgresWithUser starts a server with a role app, which may use the table of a store. Admin
// connects as its superuser.
func postgresWithUser(t *testing.T) (s *enginetest.PostgreSQLServer, admin func() *pgx.Conn) {
	t.Helper()
	s = enginetest.StartPostgreSQL(t)
	pool, err := pgxpool.New(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pgstore.CreateTable(t.Context(), pool, pgstore.DefaultTable); err != nil {
		t.Fatal(err)
	}
	admin = func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), s.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(endedContext()) })
		return conn
	}
	mustExec(t, admin(), "CREATE ROLE app LOGIN; GRANT ALL ON "+pgstore.DefaultTable+" TO app")
	return s, admin
}

func mustExec(t *testing.T, conn *pgx.Conn, statements string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statements); err != nil {
		t.Fatal(err)
	}
}

// hba has a server let users in by a line, and its superuser as before.
func hba(t *testing.T, s *enginetest.PostgreSQLServer, line string) {
	t.Helper()
	write(t, filepath.Join(s.Data, "pg_hba.conf"), line+"\nhost all tenure 127.0.0.1/32 trust\n")
	s.Configure("log_connections", "off") // reads it
}

func etcdPassword(t *testing.T) rotation {
	m := enginetest.StartEtcd(t, 1)[0]
	asRoot := func(t *testing.T, do func(*clientv3.Client) error) {
		t.Helper()
		root, err := clientv3.New(clientv3.Config{Endpoints: []string{m.URL}, Username: "root", Password: "root"})
		if err == nil {
			defer root.Close() // it has done its work
			err = do(root)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	addUsers(t, m.URL, "root", "before")
	file := filepath.Join(t.TempDir(), "password")
	write(t, file, "before\n")
	at := "etcd://locks@" + strings.TrimPrefix(m.URL, "http://") + "/p?password_file=" + file
	restart := func(*testing.T) { again(m) }
	return rotation{holder: at, candidate: at, changes: []func(*testing.T){
		func(t *testing.T) { write(t, file, "after\n") },
		restart, // which forgets all tokens: the password before must do
		func(t *testing.T) {
			asRoot(t, func(root *clientv3.Client) error {
				_, err := root.UserChangePassword(t.Context(), "locks", "after")
				return err
			})
		},
		restart,
		func(t *testing.T) {
			asRoot(t, func(root *clientv3.Client) error {
				_, err := root.UserChangePassword(t.Context(), "locks", "at last")
				return err
			})
			write(t, file, "at last\n")
		},
		restart,
	}}
}

// oneRedis starts a server that loses nothing, and creates the store of a URL on it: its authority is the server's
// unless it is given.
func oneRedis(t *testing.T, begin, parameters string, settings ...string) (e *enginetest.Engine, url string) {
	t.Helper()
	e = enginetest.StartRedis(t, append([]string{"--appendonly", "yes", "--appendfsync", "always"}, settings...)...)
	url = begin
	if !strings.HasPrefix(begin, "rediss:") {
		url += e.Addr
	}
	url += "?mode=single&" + parameters
	store := mustConnect(t, url)
	if _, err := store.(driver.Provisioner).Create(t.Context(), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return e, url
}

// mustConnect is for what needs no store of the URL yet.
func mustConnect(t *testing.T, url string) driver.Store {
	t.Helper()
	store, err := mustParse(t, url).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// redisPassword: a user has both passwords for a while.
func redisPassword(t *testing.T) rotation {
	file, users := filepath.Join(t.TempDir(), "password"), filepath.Join(t.TempDir(), "users.acl")
	allow := func(t *testing.T, passwords string) {
		write(t, users, "user default on nopass ~* &* +@all\nuser locks on ~* &* +@all "+passwords+"\n")
	}
	allow(t, ">before")
	write(t, file, "before\n")
	e, url := oneRedis(t, "redis://locks@", "password_file="+file, "--aclfile", users)
	return rotation{holder: url, candidate: url, hints: true, changes: []func(*testing.T){
		func(t *testing.T) {
			allow(t, ">before >after")
			again(e)
		},
		func(t *testing.T) {
			write(t, file, "after\n")
			again(e)
		},
		func(t *testing.T) {
			allow(t, ">after")
			again(e)
		},
		func(t *testing.T) { // a file that cannot be used leaves what it had
			write(t, file, "")
			again(e)
		},
	}}
}

func redisCertificates(t *testing.T) rotation {
	servers, dir, set := reissued(t)
	port := fmt.Sprint(enginetest.FreePort(t))
	e, url := oneRedis(t, "rediss://127.0.0.1:"+port, fmt.Sprintf("ca=%s/ca.pem&cert=%[1]s/client.pem&key=%[1]s/client.key", dir),
		"--tls-port", port, "--tls-ca-cert-file", servers+"/ca.pem", "--tls-cert-file", servers+"/server.pem",
		"--tls-key-file", servers+"/server.key")
	return rotation{holder: url, candidate: url, hints: true, changes: []func(*testing.T){
		func(t *testing.T) {
			set(t)
			again(e)
		},
		func(*testing.T) { again(e) },
	}}
}

// oneMariaDB starts a server with a role app, which may use the table of a store in the database locks. Admin runs
// statements as its root.
func oneMariaDB(t *testing.T, settings ...string) (e *enginetest.Engine, admin func(*testing.T, ...string)) {
	t.Helper()
	e = enginetest.StartMariaDB(t, settings...)
	db, err := sql.Open("mysql", "root@tcp("+e.Addr+")/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	admin = func(t *testing.T, statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	admin(t, "CREATE DATABASE locks", "CREATE USER app", "GRANT ALL ON locks.* TO app")
	store := mustConnect(t, "mysql://root@"+e.Addr+"/locks")
	if _, err := store.(driver.Provisioner).Create(t.Context(), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return e, admin
}

const killApp = "KILL USER app"

func mysqlPassword(t *testing.T) rotation {
	e, admin := oneMariaDB(t)
	file := filepath.Join(t.TempDir(), "password")
	set := func(t *testing.T, password string) {
		admin(t, "ALTER USER app IDENTIFIED BY '"+password+"'")
		write(t, file, password+"\n")
	}
	set(t, "before")
	url := "mysql://app@" + e.Addr + "/locks?password_file=" + file
	return rotation{holder: url, candidate: url, changes: []func(*testing.T){
		func(t *testing.T) {
			set(t, "after")
			admin(t, killApp)
		},
		func(*testing.T) { again(e) },
		func(t *testing.T) { // a file that is empty, or gone, leaves the password that it had
			write(t, file, "")
			admin(t, killApp)
		},
		func(t *testing.T) {
			remove(t, file)
			admin(t, killApp)
		},
	}}
}

func mysqlCertificates(t *testing.T) rotation {
	servers, dir, set := reissued(t)
	e, admin := oneMariaDB(t, "--ssl-ca="+servers+"/ca.pem", "--ssl-cert="+servers+"/server.pem", "--ssl-key="+servers+"/server.key")
	admin(t, "ALTER USER app REQUIRE X509")
	url := fmt.Sprintf("mysql://app@%s/locks?tls=true&ca=%s/ca.pem&cert=%[2]s/client.pem&key=%[2]s/client.key", e.Addr, dir)
	return rotation{holder: url, candidate: url, changes: []func(*testing.T){
		func(t *testing.T) {
			set(t)
			again(e)
		},
		func(*testing.T) { again(e) },
		func(t *testing.T) { // files that cannot be used leave what they had
			write(t, filepath.Join(dir, "ca.pem"), "")
			remove(t, filepath.Join(dir, "client.key"))
			admin(t, killApp)
		},
	}}
}

func etcdCertificates(t *testing.T) rotation {
	servers, dir, set := reissued(t)
	m := enginetest.StartEtcd(t, 1, "--client-cert-auth", "--trusted-ca-file", servers+"/ca.pem",
		"--cert-file", servers+"/server.pem", "--key-file", servers+"/server.key")[0]
	at := "etcds://" + strings.TrimPrefix(m.URL, "https://") +
		fmt.Sprintf("/p?ca=%s/ca.pem&cert=%[1]s/client.pem&key=%[1]s/client.key", dir)
	return rotation{holder: at, candidate: at, changes: []func(*testing.T){
		func(t *testing.T) {
			set(t)
			again(m)
		},
		func(*testing.T) { again(m) },
		func(t *testing.T) { // files that cannot be used leave what they had
			write(t, filepath.Join(dir, "ca.pem"), "")
			write(t, filepath.Join(dir, "client.key"), "")
			again(m)
		},
	}}
}

func zooKeeperCertificates(t *testing.T) rotation {
	servers, dir, set := reissued(t)
	port := enginetest.FreePort(t)
	z := enginetest.StartZooKeeper(
		t, 1, "forceSync=no", fmt.Sprintf("secureClientPort=%d", port), "secureClientPortAddress=127.0.0.1",
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory", "ssl.clientAuth=need",
		"ssl.keyStore.type=PEM", "ssl.keyStore.location="+servers+"/both.pem",
		"ssl.trustStore.type=PEM", "ssl.trustStore.location="+servers+"/ca.pem",
	)[0]
	// The server answers at its other port sooner.
	enginetest.Eventually(t, "the port for TLS", func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	at := fmt.Sprintf("zookeeper://127.0.0.1:%d/p?ca=%s/ca.pem&cert=%[2]s/client.pem&key=%[2]s/client.key", port, dir)
	return rotation{holder: at, candidate: at, changes: []func(*testing.T){
		func(t *testing.T) {
			set(t)
			again(z)
		},
		func(*testing.T) { again(z) },
	}}
}

// A certificate must be for the host that is dialed, and signed by the authority that the file
// has at that time.
func TestDialChecksTheServer(t *testing.T) {
	dir := t.TempDir()
	c := issue(t)
	c.client(t, dir)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{c.own.Certificate}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = conn.(*tls.Conn).Handshake(); _ = conn.Close() }()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	z := mustParse(t, "zookeeper://127.0.0.1:"+port+"/p?ca="+dir+"/ca.pem").written.clone()
	o, err := z.zooKeeperSecrets()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []struct {
		host, says string
		change     func()
	}{
		{"127.0.0.1", "", func() {}},
		{"localhost", "not localhost", func() {}},
		{"127.0.0.1", "", func() { remove(t, dir+"/ca.pem") }},
		{"localhost", "ca.pem: no such file", func() {}},
		{"127.0.0.1", "unknown authority", func() { issue(t).client(t, dir) }},
		{"127.0.0.1", "", func() { c.client(t, dir) }},
	} {
		d.change()
		conn, err := o.Dial(t.Context(), net.JoinHostPort(d.host, port))
		if err == nil {
			_ = conn.Close()
		}
		if (err == nil) != (d.says == "") || err != nil && !strings.Contains(err.Error(), d.says) {
			t.Errorf("%s: %v, want %q", d.host, err, d.says)
		}
	}
}

// again ends an engine and starts it.
func again(e *enginetest.Engine) {
	e.Kill() // a polite end may wait for watches
	e.Start()
	e.Await()
}

// addUsers makes root and locks, who may use the prefix p/, and has etcd ask for them.
func addUsers(t *testing.T, url, root, locks string) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() // it has done its work
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(client.UserAdd(t.Context(), "root", root))
	must(client.UserAdd(t.Context(), "locks", locks))
	must(client.UserGrantRole(t.Context(), "root", "root"))
	must(client.RoleAdd(t.Context(), "locks"))
	must(client.RoleGrantPermission(t.Context(), "locks", "p/", "p0", clientv3.PermissionType(clientv3.PermReadWrite)))
	must(client.UserGrantRole(t.Context(), "locks", "locks"))
	must(client.AuthEnable(t.Context()))
}

// issued are an authority, and a certificate that it has signed for this machine and for the
// user app.
type issued struct{ ca, own *enginetest.Certificate }

func issue(t *testing.T) (c issued) {
	t.Helper()
	var err error
	if c.ca, err = enginetest.NewCertificate("authority", nil); err != nil {
		t.Fatal(err)
	}
	if c.own, err = enginetest.NewCertificate("app", c.ca); err != nil {
		t.Fatal(err)
	}
	return c
}

// reissued returns the folders of a server's and of a client's files, and a function that issues all files again.
func reissued(t *testing.T) (servers, dir string, set func(*testing.T)) {
	servers, dir = t.TempDir(), t.TempDir()
	set = func(t *testing.T) {
		t.Helper()
		c := issue(t)
		c.client(t, dir)
		c.server(t, servers)
	}
	set(t)
	return servers, dir, set
}

// client puts the files of a client into a folder.
func (c issued) client(t *testing.T, dir string) {
	t.Helper()
	write(t, filepath.Join(dir, "ca.pem"), string(c.ca.Text))
	write(t, filepath.Join(dir, "client.pem"), string(c.own.Text))
	write(t, filepath.Join(dir, "client.key"), string(c.own.Key))
}

// server puts the files of a server into a folder.
func (c issued) server(t *testing.T, dir string) {
	t.Helper()
	write(t, filepath.Join(dir, "ca.pem"), string(c.ca.Text))
	write(t, filepath.Join(dir, "server.pem"), string(c.own.Text))
	write(t, filepath.Join(dir, "server.key"), string(c.own.Key))
	write(t, filepath.Join(dir, "both.pem"), string(c.own.Key)+string(c.own.Text))
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// write writes a file that belongs to whom its folder belongs to.
func write(t *testing.T, file, text string) {
	t.Helper()
	folder, err := os.Stat(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	owner := folder.Sys().(*syscall.Stat_t)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(file, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
}
