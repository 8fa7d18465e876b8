// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/etcdstore"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/k8sstore"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/test/bed/must"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/zkstore"
)

// way is a way to lock, which is measured beside others.
type way struct {
	name  string
	waits bool // whoever takes a lock of this way waits for it
	// client makes a client. What it returns makes a lock of a name, for one goroutine.
	client func() (newLock func(name string) enginesLock)
}

// enginesLock is taken and released.
type enginesLock struct{ take, release func(context.Context) error }

// engines are those that have locks of their own, or clients that have, and how these are called.
var engines = []struct {
	engine string // as scripts/engines calls it
	title  string
	own    map[string]string
	ways   func(ctx context.Context, n *natives, address string) []way
}{
	{"etcd", "etcd", map[string]string{"mutex": "`concurrency.Mutex`"}, etcdWays},
	{"zookeeper", "ZooKeeper", map[string]string{"native": "`zk.Lock` of go-zookeeper"}, zooKeeperWays},
	{"postgres", "PostgreSQL", map[string]string{
		"updates": "two plain updates, as durable", "advisory": "advisory locks, not durable",
	}, postgresWays},
	{"kubernetes", "Kubernetes", map[string]string{"elector": "the calls of client-go's elector"}, kubernetesWays},
}

// natives measures Tenure beside the engines' own locks.
type natives struct {
	*part
	size
	ends []func()
}

// scope takes some steps, and ends what they have begun.
func (n *natives) scope(steps func()) {
	mark := len(n.ends)
	defer func() {
		for ; len(n.ends) > mark; n.ends = n.ends[:len(n.ends)-1] {
			n.ends[len(n.ends)-1]()
		}
	}()
	steps()
}

func (n *natives) after(end func()) { n.ends = append(n.ends, end) }

// measureEngines measures pairs of a take and a release, and hand-overs, several times over.
func measureEngines(ctx context.Context, o *options, p *part) error {
	n := &natives{part: p, size: o.size}
	p.Setting = fmt.Sprintf("Medians of %d runs", n.times)
	return must.Try(func() {
		for _, e := range engines {
			address := os.Getenv(must.Have(launcher.Find(e.engine)).Variable)
			if address == "" {
				continue
			}
			p.add(native, "pairs a second, and milliseconds of a hand-over", e.title)
			n.scope(func() {
				ways := e.ways(ctx, n, address)
				for round := range n.times {
					o.say("%s, %d of %d", e.title, round+1, n.times)
					n.round(ctx, e.title, ways)
				}
			})
		}
		if len(p.Rows) == 0 {
			must.Do(errors.New("there is no engine: start some with scripts/engines"))
		}
	})
}

// round measures each way, one after the other.
func (n *natives) round(ctx context.Context, title string, ways []way) {
	for _, goroutines := range []int{1, 32} {
		for _, w := range ways {
			n.scope(func() { n.found(title, fmt.Sprint(w.name, "/", goroutines), n.pace(ctx, w, goroutines)) })
		}
	}
	for _, w := range ways {
		if w.waits {
			n.scope(func() { n.found(title, w.name+"/hand-over", n.handOver(ctx, w)) })
		}
	}
}

// pace is how many pairs goroutines make a second, by one client, each of a lock of its own. Each
// makes one before, which is not counted: the first may make something that stays.
func (n *natives) pace(ctx context.Context, w way, goroutines int) float64 {
	newLock, locks := w.client(), make([]enginesLock, goroutines)
	pair := func(ctx context.Context, i int) {
		must.Do(locks[i].take(ctx))
		must.Do(locks[i].release(ctx))
	}
	must.AtOnce(ctx, goroutines, goroutines, func(ctx context.Context, i int) {
		locks[i] = newLock(fmt.Sprintf("pairs-%d-%d", goroutines, i))
		pair(ctx, i)
	})
	var made atomic.Int64
	begun := time.Now()
	must.AtOnce(ctx, goroutines, goroutines, func(ctx context.Context, i int) {
		for time.Since(begun) < n.native {
			pair(ctx, i)
			made.Add(1)
		}
	})
	return float64(made.Load()) / time.Since(begun).Seconds()
}

// settled is how long a waiter has until it waits. A watch of etcd may tell nothing in its first
// tenth of a second.
const settled = 150 * time.Millisecond

// handOver is the median time from a release to the grant at another client, which waits.
func (n *natives) handOver(ctx context.Context, w way) float64 {
	holders := [2]enginesLock{w.client()("hand-over"), w.client()("hand-over")}
	must.Do(holders[0].take(ctx))
	var took []float64
	begun := time.Now()
	for i := 0; i == 0 || time.Since(begun) < n.native; i++ {
		var at, released time.Time
		must.AtOnce(ctx, 2, 2, func(ctx context.Context, k int) {
			if k == 0 {
				must.Do(holders[(i+1)%2].take(ctx))
				at = time.Now()
				return
			}
			must.Do(wait.For(ctx, settled))
			released = time.Now()
			must.Do(holders[i%2].release(ctx))
		})
		took = append(took, milliseconds(at.Sub(released).Nanoseconds()))
	}
	must.Do(holders[len(took)%2].release(ctx))
	return spreadOf(took).Median
}

// tenure is the way of this library, on a store that is opened for each client.
func (n *natives) tenure(ctx context.Context, waits bool, open func() (driver.Store, error)) way {
	return way{"tenure", waits, func() func(string) enginesLock {
		c := must.Have(tenure.New(must.Have(open()), nil))
		n.after(func() { _ = c.Close(context.WithoutCancel(ctx)) }) // it has released all
		return func(name string) enginesLock {
			var lease *tenure.Lease
			return enginesLock{
				func(ctx context.Context) (err error) {
					lease, err = c.Acquire(ctx, name, nil)
					return err
				},
				func(ctx context.Context) error { return lease.Release(ctx) },
			}
		}
	}}
}

// closing has a store closed at the end.
func closing[S interface {
	driver.Store
	Close() error
}](n *natives, s S, err error) (driver.Store, error) {
	if err == nil {
		n.after(func() { _ = s.Close() })
	}
	return s, err
}

func etcdWays(ctx context.Context, n *natives, address string) []way {
	prefix := "bench/" + rand.Text() + "/"
	config := clientv3.Config{Endpoints: []string{address}, DialTimeout: 20 * time.Second, Logger: zap.NewNop()}
	ours := n.tenure(ctx, true, func() (driver.Store, error) {
		s, err := etcdstore.Open(ctx, config, &etcdstore.Options{Prefix: prefix})
		return closing(n, s, err)
	})
	return []way{ours, {"mutex", true, func() func(string) enginesLock {
		client := must.Have(clientv3.New(config))
		n.after(func() { _ = client.Close() })
		session := must.Have(concurrency.NewSession(client)) // it stands before
		n.after(func() { _ = session.Close() })
		return func(name string) enginesLock {
			m := concurrency.NewMutex(session, prefix+name)
			return enginesLock{m.Lock, m.Unlock}
		}
	}}}
}

func zooKeeperWays(ctx context.Context, n *natives, address string) []way {
	root := "/bench-" + rand.Text()
	ours := n.tenure(ctx, true, func() (driver.Store, error) {
		s, err := zkstore.Open(ctx, []string{address}, &zkstore.Options{Root: root})
		return closing(n, s, err)
	})
	return []way{ours, {"native", true, func() func(string) enginesLock {
		conn, _, err := zk.Connect([]string{address}, time.Minute, zk.WithLogger(silent{}), zk.WithLogInfo(false))
		must.Do(err)
		n.after(conn.Close)
		_, _, err = conn.Exists("/") // its session stands before
		must.Do(err)
		return func(name string) enginesLock {
			l := zk.NewLock(conn, root+"-native/"+name, zk.WorldACL(zk.PermAll))
			return enginesLock{
				func(context.Context) error { return l.Lock() }, func(context.Context) error { return l.Unlock() },
			}
		}
	}}}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// postgresWays are Tenure, two plain updates that are as durable, and PostgreSQL's advisory locks,
// which are not: they have no token, and end with their connection. All are on a server that
// flushes, as one in use does.
func postgresWays(ctx context.Context, n *natives, _ string) []way {
	dir := must.Have(os.MkdirTemp("", "tenure-bench-"))
	n.after(func() { _ = os.RemoveAll(dir) })
	data, port := filepath.Join(dir, "data"), must.Have(launcher.Port())
	must.Do(errors.Join(os.Chmod(dir, 0o711), os.Mkdir(data, 0o700), launcher.Own(data), launcher.InitPostgreSQL(data)))
	server := must.Have(launcher.PostgreSQL(data, port, "shared_buffers=32MB", "fsync=on", "full_page_writes=on"))
	process := must.Have(server.Start(filepath.Join(dir, "log")))
	n.after(process.Kill)
	must.Do(process.Await(ctx))
	database := fmt.Sprintf("postgres://tenure@127.0.0.1:%d/postgres?sslmode=disable&pool_max_conns=32", port)
	connect := func() *pgxpool.Pool {
		pool := must.Have(pgxpool.New(ctx, database))
		n.after(pool.Close)
		return pool
	}
	n.scope(func() {
		pool := connect()
		must.Do(pgstore.CreateTable(ctx, pool, ""))
		must.Have(pool.Exec(ctx, "CREATE TABLE plain (key text PRIMARY KEY, owner text) WITH (fillfactor = 50)"))
	})
	ours := n.tenure(ctx, true, func() (driver.Store, error) {
		s, err := pgstore.Open(ctx, database, nil)
		return closing(n, s, err)
	})
	updates := func() func(string) enginesLock {
		pool := connect()
		return func(name string) enginesLock {
			must.Have(pool.Exec(ctx, "INSERT INTO plain VALUES ($1, '') ON CONFLICT DO NOTHING", name))
			by := func(owner string) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := pool.Exec(ctx, "UPDATE plain SET owner = $2 WHERE key = $1", name, owner)
					return err
				}
			}
			return enginesLock{by("me"), by("")}
		}
	}
	advisory := func() func(string) enginesLock {
		pool := connect()
		return func(name string) enginesLock {
			sum := fnv.New64a()
			_, _ = sum.Write([]byte(name))
			id := int64(sum.Sum64())
			var conn *pgxpool.Conn
			return enginesLock{
				func(ctx context.Context) (err error) {
					if conn, err = pool.Acquire(ctx); err == nil {
						_, err = conn.Exec(ctx, "SELECT pg_advisory_lock($1)", id)
					}
					return err
				},
				func(ctx context.Context) error {
					defer conn.Release()
					_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", id)
					return err
				},
			}
		}
	}
	return []way{ours, {"updates", false, updates}, {"advisory", true, advisory}}
}

// kubernetesWays are Tenure, and the calls of client-go's lock that its elector makes for it,
// without the pauses of the elector: a look and an update to take it, and the same to release it.
func kubernetesWays(ctx context.Context, n *natives, file string) []way {
	config, _, err := k8sstore.Config(file, "admin")
	must.Do(err)
	namespace := "bench-" + strings.ToLower(rand.Text())
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	must.Have(must.Have(core.NewForConfig(config)).Namespaces().Create(ctx, made, metav1.CreateOptions{}))
	ours := n.tenure(ctx, false, func() (driver.Store, error) {
		s, err := k8sstore.Open(ctx, config, namespace, nil)
		return closing(n, s, err)
	})
	fast := *config
	fast.QPS = -1 // no limit of requests
	by := func(holder string) resourcelock.LeaderElectionRecord {
		now := metav1.NewTime(time.Now())
		return resourcelock.LeaderElectionRecord{
			HolderIdentity: holder, LeaseDurationSeconds: 15, AcquireTime: now, RenewTime: now,
		}
	}
	return []way{ours, {"elector", false, func() func(string) enginesLock {
		client := must.Have(coordination.NewForConfig(&fast))
		return func(name string) enginesLock {
			lock := &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "elector-" + name}, Client: client,
				LockConfig: resourcelock.ResourceLockConfig{Identity: "elector"},
			}
			if _, _, err := lock.Get(ctx); err != nil {
				must.Do(lock.Create(ctx, by("")))
			}
			update := func(holder string) func(context.Context) error {
				return func(ctx context.Context) error {
					if _, _, err := lock.Get(ctx); err != nil {
						return err
					}
					return lock.Update(ctx, by(holder))
				}
			}
			return enginesLock{update(lock.Identity()), update("")}
		}
	}}}
}

// Engines returns the rows of the table: of Tenure and of the engine's own lock.
func (p *part) Engines() (rows [][]string) {
	for _, e := range engines {
		of := p.row(e.title).Values
		for _, own := range slices.Backward(slices.Sorted(maps.Keys(e.own))) {
			row := []string{e.title, e.own[own]}
			for _, what := range []string{"/1", "/32", "/hand-over"} {
				cell, ours, theirs := none, of["tenure"+what].Spread, of[own+what].Spread
				if ours != nil && theirs != nil {
					cell = "**" + short(ours.Median) + "**, " + short(theirs.Median)
				}
				row = append(row, cell)
			}
			rows = append(rows, row)
		}
	}
	return rows
}
