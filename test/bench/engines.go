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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/k8sstore"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/harness/must"
)

// way is a way to lock, which is compared with others.
type way struct {
	name  string
	waits bool        // an acquire waits for the lock
	open  func() take // makes a client for callers

	// dead makes a client that takes locks and never extends them, as if it died at once, and another client, which waits. Nil: it is
	// not measured. Their locks have [deadLease].
	dead func() (leaves, waits take)
}

// deadLease is the lease of a lock whose holder is dead.
const deadLease = 3 * time.Second

// take takes a lock, and returns what releases it. It may be called concurrently.
type take func(ctx context.Context, name string) (release func(context.Context) error)

// caller returns a caller that takes locks this way.
func (t take) caller(context.Context) caller {
	return caller{acquire: func(ctx context.Context, name string) *heldLock {
		release := t(ctx, name)
		return &heldLock{name: name, release: func(ctx context.Context) { must.Do(release(ctx)) }}
	}}
}

// engines are the engines with their own locks, or with clients that have them.
var engines = []struct {
	engine string // as scripts/engines calls it
	title  string
	own    [][2]string // names of ways, and what the page calls them
	ways   func(ctx context.Context, r *harness, address string) []way
}{
	{"etcd", "etcd", [][2]string{{"mutex", "`concurrency.Mutex`"}}, etcdWays},
	{"zookeeper", "ZooKeeper", [][2]string{{"native", "`zk.Lock` of go-zookeeper"}}, zookeeperWays},
	{"postgres", "PostgreSQL", [][2]string{
		{"updates", "two plain updates, as durable"},
		{"advisory", "advisory locks, not durable"},
		{"watchdog", "Tenure, guarded by a watchdog"},
		{"standbys", "Tenure, guarded by its standby"},
	}, postgresWays},
	{"mariadb", "MariaDB", [][2]string{{"updates", "two plain updates, as durable"}}, mysqlWays},
	{"redis", "Redis", [][2]string{
		{"redsync", "redsync"}, {"redislock", "bsm/redislock"}, {"store", "the store alone"},
	}, redisWays},
	{"kubernetes", "Kubernetes", [][2]string{{"elector", "the calls of client-go's elector"}}, kubernetesWays},
}

// measureEngines measures pairs of a take and a release, and hand-overs, several times over.
func measureEngines(ctx context.Context, r *harness) {
	times := sized(r.part, 5, 1)
	r.Setting = fmt.Sprintf("Medians of %d runs", times)
	for _, e := range engines {
		address := os.Getenv(must.Have(launcher.Find(e.engine)).Variable)
		if address == "" {
			continue
		}
		r.add(native, "pairs a second, ratios, and milliseconds of a hand-over, and of a takeover", e.title)
		r.Run(func() {
			ways := e.ways(ctx, r, address)
			for round := range times {
				r.say("%s, %d of %d", e.title, round+1, times)
				r.round(ctx, e.title, ways, round)
			}
		})
	}
	if len(r.Rows) == 0 {
		must.Do(errors.New("there is no engine: start some with scripts/engines"))
	}
}

// round measures each way, one after the other; each round begins with another one, since what is written
// before costs the next one time.
func (r *harness) round(ctx context.Context, title string, ways []way, n int) {
	first := n % len(ways)
	for _, goroutines := range []int{1, 32} {
		rates := map[string]float64{}
		for _, w := range append(slices.Clone(ways[first:]), ways[:first]...) {
			r.Run(func() { rates[w.name] = r.paceOf(ctx, w, goroutines) })
			r.found(title, fmt.Sprint(w.name, "/", goroutines), rates[w.name])
		}
		for _, w := range ways[1:] {
			r.found(title, fmt.Sprint(w.name, "/", goroutines, "/", ratio), rates[tenureName]/rates[w.name])
		}
	}
	for _, w := range ways {
		if w.waits {
			r.Run(func() {
				two := []caller{w.open().caller(ctx), w.open().caller(ctx)}
				took := handOver(ctx, two, "hand-over", sized(r.part, 7, 1), settled, r.wrongOf(w.name))
				r.found(title, w.name+"/hand-over", spreadOf(took).Median)
			})
		}
		if w.dead != nil {
			r.Run(func() { r.found(title, w.name+"/dead", takeOver(ctx, w)) })
		}
	}
}

// takeOver takes a lock that is never extended, and returns after how many milliseconds a client that waits
// from the beginning has it.
func takeOver(ctx context.Context, w way) float64 {
	const name = "dead"
	leaves, waits := w.dead()
	must.Do(waits(ctx, name)(ctx)) // connections are made
	begun := time.Now()
	leaves(ctx, name)
	release := waits(ctx, name)
	took := milliseconds(time.Since(begun).Nanoseconds())
	must.Do(release(ctx))
	return took
}

// pace is how many pairs goroutines make a second, by one client, each of a lock of its own. Each
// makes one before, which is not counted: the first may make something that stays.
func (r *harness) paceOf(ctx context.Context, w way, goroutines int) float64 {
	all, names := openAll(ctx, w.open().caller, goroutines), lockNames(goroutines)
	must.AtOnce(ctx, goroutines, goroutines, func(ctx context.Context, i int) {
		all[i].acquire(ctx, names[i]).release(ctx)
	})
	return pairs(ctx, all, names, sized(r.part, time.Second, 50*time.Millisecond), r.wrongOf(w.name))
}

// settled is how long a waiter has until it waits. A watch of etcd may miss events in its first
// tenth of a second.
const settled = 150 * time.Millisecond

// storeAt opens a store in a place.
func storeAt(url, place string) func() driver.Store {
	return func() driver.Store { return replica.OpenStore(url, place) }
}

// tenure is the way of this library, on two stores that its clients use in turn, since the clients
// of a hand-over have one each. The connections of [replica.OpenStore] end with the process, so that
// a store for each client would be too many.
func (r *harness) tenure(waits bool, open func() driver.Store) way {
	var stores []driver.Store
	for range 2 {
		store := open()
		r.After(func() { _ = store.Close() })
		stores = append(stores, store)
	}
	clients := 0
	client := func(store driver.Store, options *tenure.Options) take {
		c := must.Have(tenure.New(store, options))
		r.After(func() { _ = c.Close(context.Background()) }) // it has released all
		return func(ctx context.Context, name string) func(context.Context) error {
			return must.Have(c.Acquire(ctx, name, nil)).Release
		}
	}
	return way{
		name: tenureName, waits: waits,
		open: func() take {
			clients++
			return client(stores[clients%len(stores)], nil)
		},
		dead: func() (take, take) {
			return alone(stores[0], deadLease), client(stores[1], &tenure.Options{LeaseDuration: deadLease})
		},
	}
}

func etcdWays(ctx context.Context, r *harness, address string) []way {
	prefix := "bench/" + rand.Text() + "/"
	config := clientv3.Config{Endpoints: []string{address}, DialTimeout: 20 * time.Second, Logger: zap.NewNop()}
	return []way{r.tenure(true, storeAt("etcd:"+address, prefix)), {name: "mutex", waits: true, open: func() take {
		client := must.Have(clientv3.New(config))
		r.After(func() { _ = client.Close() })
		session := must.Have(concurrency.NewSession(client)) // it stands before
		r.After(func() { _ = session.Close() })
		return func(ctx context.Context, name string) func(context.Context) error {
			m := concurrency.NewMutex(session, prefix+name)
			must.Do(m.Lock(ctx))
			return m.Unlock
		}
	}}}
}

func zookeeperWays(ctx context.Context, r *harness, address string) []way {
	root := "/bench-" + rand.Text()
	return []way{r.tenure(true, storeAt("zookeeper:"+address, root)), {name: "native", waits: true, open: func() take {
		conn, _, err := zk.Connect([]string{address}, time.Minute, zk.WithLogger(silent{}), zk.WithLogInfo(false))
		must.Do(err)
		r.After(conn.Close)
		_, _, err = conn.Exists("/") // its session stands before
		must.Do(err)
		return func(_ context.Context, name string) func(context.Context) error {
			l := zk.NewLock(conn, root+"-native/"+name, zk.WorldACL(zk.PermAll))
			must.Do(l.Lock())
			return func(context.Context) error { return l.Unlock() }
		}
	}}}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// postgresWays are Tenure, two plain updates that are as durable, and PostgreSQL's advisory locks,
// which are not: they have no token, and end with their connection. All are on a server that
// flushes, like a server in production.
func postgresWays(ctx context.Context, r *harness, _ string) []way {
	dir := r.folder()
	data, port := filepath.Join(dir, "data"), must.Have(launcher.Port())
	must.Do(errors.Join(os.Chmod(dir, 0o711), os.Mkdir(data, 0o700), launcher.Own(data), launcher.InitPostgreSQL(data)))
	start := func(data string, port int) {
		server := must.Have(launcher.PostgreSQL(data, port, "shared_buffers=32MB", "fsync=on", "full_page_writes=on", "wal_sender_timeout=10s", "max_connections=300"))
		process := must.Have(server.Start(data + "-log"))
		r.After(process.Kill)
		must.Do(process.Await(ctx))
	}
	start(data, port)
	const most = "&pool_max_conns=32"
	database := fmt.Sprintf("postgres://tenure@127.0.0.1:%d/postgres?sslmode=disable"+most, port)
	// The standby follows for all that is measured, and is never promoted.
	standby := filepath.Join(dir, "standby")
	must.Do(errors.Join(os.Mkdir(standby, 0o700), launcher.Own(standby), launcher.FollowPostgreSQL(standby, strings.TrimSuffix(database, most), "standby")))
	start(standby, must.Have(launcher.Port()))
	guarded := func(name string, g *pgstore.Guarded) way {
		r.Run(func() {
			pool := must.Have(pgxpool.New(ctx, database))
			r.After(pool.Close)
			must.Do(g.CreateTable(ctx, pool, name))
		})
		w := r.tenure(true, func() driver.Store {
			return must.Have(pgstore.Connect(database, &pgstore.Options{Table: name, Guarded: g}))
		})
		w.name, w.dead = name, nil
		return w
	}
	connect := func() *pgxpool.Pool {
		pool := must.Have(pgxpool.New(ctx, database))
		r.After(pool.Close)
		return pool
	}
	r.Run(func() {
		pool := connect()
		must.Do(pgstore.CreateTable(ctx, pool, ""))
		must.Have(pool.Exec(ctx, "CREATE TABLE plain (key text PRIMARY KEY, owner text) WITH (fillfactor = 50)"))
	})
	updates := func() take {
		pool := connect()
		update := func(ctx context.Context, name, owner string) int64 {
			done := must.Have(pool.Exec(ctx, "UPDATE plain SET owner = $2 WHERE key = $1", name, owner))
			return done.RowsAffected()
		}
		return func(ctx context.Context, name string) func(context.Context) error {
			if update(ctx, name, "me") == 0 {
				must.Have(pool.Exec(ctx, "INSERT INTO plain VALUES ($1, 'me')", name))
			}
			return func(ctx context.Context) error {
				update(ctx, name, "")
				return nil
			}
		}
	}
	advisory := func() take {
		pool := connect()
		return func(ctx context.Context, name string) func(context.Context) error {
			sum := fnv.New64a()
			_, _ = sum.Write([]byte(name))
			id := int64(sum.Sum64())
			conn := must.Have(pool.Acquire(ctx))
			must.Have(conn.Exec(ctx, "SELECT pg_advisory_lock($1)", id))
			return func(ctx context.Context) error {
				defer conn.Release()
				_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", id)
				return err
			}
		}
	}
	return []way{
		r.tenure(true, storeAt(database, "")),
		{name: "updates", open: updates},
		{name: "advisory", waits: true, open: advisory},
		guarded("watchdog", &pgstore.Guarded{Watchdog: true}),
		guarded("standbys", &pgstore.Guarded{Standbys: 1}),
	}
}

// kubernetesWays are Tenure, and the calls of client-go's lock that its elector makes for it,
// without the pauses of the elector: a read and an update to take it, and the same to release it.
func kubernetesWays(ctx context.Context, r *harness, file string) []way {
	config, _, err := k8sstore.Config(file, "")
	must.Do(err)
	namespace := "bench-" + strings.ToLower(rand.Text())
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	must.Have(must.Have(core.NewForConfig(config)).Namespaces().Create(ctx, made, metav1.CreateOptions{}))
	fast := *config
	fast.QPS = -1 // no limit of requests
	by := func(holder string) resourcelock.LeaderElectionRecord {
		now := metav1.NewTime(time.Now())
		return resourcelock.LeaderElectionRecord{
			HolderIdentity: holder, LeaseDurationSeconds: 15, AcquireTime: now, RenewTime: now,
		}
	}
	return []way{r.tenure(false, storeAt("kubernetes:"+file, namespace)), {name: "elector", open: func() take {
		client := must.Have(coordination.NewForConfig(&fast))
		return func(ctx context.Context, name string) func(context.Context) error {
			lock := &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "elector-" + name}, Client: client,
				LockConfig: resourcelock.ResourceLockConfig{Identity: "elector"},
			}
			update := func(ctx context.Context, holder string) error {
				if _, _, err := lock.Get(ctx); err != nil {
					return err
				}
				return lock.Update(ctx, by(holder))
			}
			if err := update(ctx, lock.Identity()); apierrors.IsNotFound(err) {
				must.Do(lock.Create(ctx, by(lock.Identity())))
			} else {
				must.Do(err)
			}
			return func(ctx context.Context) error { return update(ctx, "") }
		}
	}}}
}

// Engines returns the rows of the table: of Tenure and of the engine's own lock.
func (p *part) Engines() (rows [][]string) {
	for _, e := range engines {
		of := p.row(e.title).Values
		both := func(own, what string) string {
			ours, theirs := of[tenureName+what].Spread, of[own+what].Spread
			switch {
			case ours == nil:
				return none
			case theirs == nil:
				return "**" + short(ours.Median) + "**, " + none
			}
			return "**" + short(ours.Median) + "**, " + short(theirs.Median)
		}
		for _, own := range e.own {
			row := []string{e.title, own[1]}
			for _, pace := range []string{"/1", "/32"} {
				row = append(row, both(own[0], pace), p.row(e.title).Cell("ratio", own[0]+pace+"/"+ratio))
			}
			rows = append(rows, append(row, both(own[0], "/hand-over"), both(own[0], "/dead")))
		}
	}
	return rows
}
