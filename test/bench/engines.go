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
	"github.com/tenurelock/tenure/etcdstore"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/k8sstore"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/test/bed/must"
	"github.com/tenurelock/tenure/zkstore"
)

// way is a way to lock, which is measured beside others.
type way struct {
	name   string
	waits  bool          // whoever takes a lock of this way waits for it
	client func() opener // makes a client, of which are the callers
}

// engines are those that have locks of their own, or clients that have, and how these are called.
var engines = []struct {
	engine string // as scripts/engines calls it
	title  string
	own    map[string]string
	ways   func(ctx context.Context, r *rig, address string) []way
}{
	{"etcd", "etcd", map[string]string{"mutex": "`concurrency.Mutex`"}, etcdWays},
	{"zookeeper", "ZooKeeper", map[string]string{"native": "`zk.Lock` of go-zookeeper"}, zooKeeperWays},
	{"postgres", "PostgreSQL", map[string]string{
		"updates": "two plain updates, as durable", "advisory": "advisory locks, not durable",
	}, postgresWays},
	{"kubernetes", "Kubernetes", map[string]string{"elector": "the calls of client-go's elector"}, kubernetesWays},
}

// measureEngines measures pairs of a take and a release, and hand-overs, several times over.
func measureEngines(ctx context.Context, r *rig) {
	times := sized(r.part, 5, 1)
	r.Setting = fmt.Sprintf("Medians of %d runs", times)
	for _, e := range engines {
		address := os.Getenv(must.Have(launcher.Find(e.engine)).Variable)
		if address == "" {
			continue
		}
		r.add(native, "pairs a second, and milliseconds of a hand-over", e.title)
		r.Run(func() {
			ways := e.ways(ctx, r, address)
			for round := range times {
				r.say("%s, %d of %d", e.title, round+1, times)
				r.round(ctx, e.title, ways)
			}
		})
	}
	if len(r.Rows) == 0 {
		must.Do(errors.New("there is no engine: start some with scripts/engines"))
	}
}

// round measures each way, one after the other.
func (r *rig) round(ctx context.Context, title string, ways []way) {
	for _, goroutines := range []int{1, 32} {
		for _, w := range ways {
			r.Run(func() { r.found(title, fmt.Sprint(w.name, "/", goroutines), r.paceOf(ctx, w, goroutines)) })
		}
	}
	for _, w := range ways {
		if w.waits {
			r.Run(func() {
				two := []caller{w.client()(ctx), w.client()(ctx)}
				took := handOver(ctx, two, "hand-over", sized(r.part, 7, 1), settled, r.wrongOf(w.name))
				r.found(title, w.name+"/hand-over", spreadOf(took).Median)
			})
		}
	}
}

// pace is how many pairs goroutines make a second, by one client, each of a lock of its own. Each
// makes one before, which is not counted: the first may make something that stays.
func (r *rig) paceOf(ctx context.Context, w way, goroutines int) float64 {
	all, names := openAll(ctx, w.client(), goroutines), lockNames(goroutines)
	must.AtOnce(ctx, goroutines, goroutines, func(ctx context.Context, i int) {
		all[i].release(ctx, all[i].acquire(ctx, names[i]))
	})
	return pairs(ctx, all, names, sized(r.part, time.Second, 50*time.Millisecond), r.wrongOf(w.name))
}

// settled is how long a waiter has until it waits. A watch of etcd may tell nothing in its first
// tenth of a second.
const settled = 150 * time.Millisecond

// taking opens callers of locks that take takes, and that what it returns releases.
func taking(take func(ctx context.Context, name string) (release func(context.Context) error)) opener {
	return func(context.Context) caller {
		var release func(context.Context) error // of the one lock that it holds
		return caller{
			acquire: func(ctx context.Context, name string) *heldLock {
				release = take(ctx, name)
				return &heldLock{name: name}
			},
			release: func(ctx context.Context, _ *heldLock) { must.Do(release(ctx)) },
		}
	}
}

// tenure is the way of this library, on a store that is opened for each client.
func (r *rig) tenure(ctx context.Context, waits bool, open func() (driver.Store, error)) way {
	return way{"tenure", waits, func() opener {
		c := must.Have(tenure.New(must.Have(open()), nil))
		r.After(func() { _ = c.Close(context.WithoutCancel(ctx)) }) // it has released all
		return taking(func(ctx context.Context, name string) func(context.Context) error {
			return must.Have(c.Acquire(ctx, name, nil)).Release
		})
	}}
}

// closing has a store closed at the end.
func closing[S interface {
	driver.Store
	Close() error
}](r *rig, s S, err error) (driver.Store, error) {
	if err == nil {
		r.After(func() { _ = s.Close() })
	}
	return s, err
}

func etcdWays(ctx context.Context, r *rig, address string) []way {
	prefix := "bench/" + rand.Text() + "/"
	config := clientv3.Config{Endpoints: []string{address}, DialTimeout: 20 * time.Second, Logger: zap.NewNop()}
	ours := r.tenure(ctx, true, func() (driver.Store, error) {
		s, err := etcdstore.Open(ctx, config, &etcdstore.Options{Prefix: prefix})
		return closing(r, s, err)
	})
	return []way{ours, {"mutex", true, func() opener {
		client := must.Have(clientv3.New(config))
		r.After(func() { _ = client.Close() })
		session := must.Have(concurrency.NewSession(client)) // it stands before
		r.After(func() { _ = session.Close() })
		return taking(func(ctx context.Context, name string) func(context.Context) error {
			m := concurrency.NewMutex(session, prefix+name)
			must.Do(m.Lock(ctx))
			return m.Unlock
		})
	}}}
}

func zooKeeperWays(ctx context.Context, r *rig, address string) []way {
	root := "/bench-" + rand.Text()
	ours := r.tenure(ctx, true, func() (driver.Store, error) {
		s, err := zkstore.Open(ctx, []string{address}, &zkstore.Options{Root: root})
		return closing(r, s, err)
	})
	return []way{ours, {"native", true, func() opener {
		conn, _, err := zk.Connect([]string{address}, time.Minute, zk.WithLogger(silent{}), zk.WithLogInfo(false))
		must.Do(err)
		r.After(conn.Close)
		_, _, err = conn.Exists("/") // its session stands before
		must.Do(err)
		return taking(func(_ context.Context, name string) func(context.Context) error {
			l := zk.NewLock(conn, root+"-native/"+name, zk.WorldACL(zk.PermAll))
			must.Do(l.Lock())
			return func(context.Context) error { return l.Unlock() }
		})
	}}}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// postgresWays are Tenure, two plain updates that are as durable, and PostgreSQL's advisory locks,
// which are not: they have no token, and end with their connection. All are on a server that
// flushes, as one in use does.
func postgresWays(ctx context.Context, r *rig, _ string) []way {
	dir := r.folder()
	data, port := filepath.Join(dir, "data"), must.Have(launcher.Port())
	must.Do(errors.Join(os.Chmod(dir, 0o711), os.Mkdir(data, 0o700), launcher.Own(data), launcher.InitPostgreSQL(data)))
	server := must.Have(launcher.PostgreSQL(data, port, "shared_buffers=32MB", "fsync=on", "full_page_writes=on"))
	process := must.Have(server.Start(filepath.Join(dir, "log")))
	r.After(process.Kill)
	must.Do(process.Await(ctx))
	database := fmt.Sprintf("postgres://tenure@127.0.0.1:%d/postgres?sslmode=disable&pool_max_conns=32", port)
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
	ours := r.tenure(ctx, true, func() (driver.Store, error) {
		s, err := pgstore.Open(ctx, database, nil)
		return closing(r, s, err)
	})
	updates := func() opener {
		pool := connect()
		update := func(ctx context.Context, name, owner string) int64 {
			done := must.Have(pool.Exec(ctx, "UPDATE plain SET owner = $2 WHERE key = $1", name, owner))
			return done.RowsAffected()
		}
		return taking(func(ctx context.Context, name string) func(context.Context) error {
			if update(ctx, name, "me") == 0 {
				must.Have(pool.Exec(ctx, "INSERT INTO plain VALUES ($1, 'me')", name))
			}
			return func(ctx context.Context) error {
				update(ctx, name, "")
				return nil
			}
		})
	}
	advisory := func() opener {
		pool := connect()
		return taking(func(ctx context.Context, name string) func(context.Context) error {
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
		})
	}
	return []way{ours, {"updates", false, updates}, {"advisory", true, advisory}}
}

// kubernetesWays are Tenure, and the calls of client-go's lock that its elector makes for it,
// without the pauses of the elector: a look and an update to take it, and the same to release it.
func kubernetesWays(ctx context.Context, r *rig, file string) []way {
	config, _, err := k8sstore.Config(file, "admin")
	must.Do(err)
	namespace := "bench-" + strings.ToLower(rand.Text())
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	must.Have(must.Have(core.NewForConfig(config)).Namespaces().Create(ctx, made, metav1.CreateOptions{}))
	ours := r.tenure(ctx, false, func() (driver.Store, error) {
		s, err := k8sstore.Open(ctx, config, namespace, nil)
		return closing(r, s, err)
	})
	fast := *config
	fast.QPS = -1 // no limit of requests
	by := func(holder string) resourcelock.LeaderElectionRecord {
		now := metav1.NewTime(time.Now())
		return resourcelock.LeaderElectionRecord{
			HolderIdentity: holder, LeaseDurationSeconds: 15, AcquireTime: now, RenewTime: now,
		}
	}
	return []way{ours, {"elector", false, func() opener {
		client := must.Have(coordination.NewForConfig(&fast))
		return taking(func(ctx context.Context, name string) func(context.Context) error {
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
		})
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
