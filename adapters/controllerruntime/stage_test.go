// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurectrl_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tenurelock/tenure"
	tenureclientgo "github.com/tenurelock/tenure/adapters/clientgo"
	"github.com/tenurelock/tenure/adapters/clientgo/leasetest"
	tenurectrl "github.com/tenurelock/tenure/adapters/controllerruntime"
	"github.com/tenurelock/tenure/tenuretest"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// noCache and noClient stand for those that want an API server: no test here reads objects.
type noCache struct{ cache.Cache }

func (noCache) Start(ctx context.Context) error                 { <-ctx.Done(); return nil }
func (noCache) WaitForCacheSync(context.Context) bool           { return true }
func newCache(*rest.Config, cache.Options) (cache.Cache, error) { return noCache{}, nil }

func newClient(*rest.Config, client.Options) (client.Client, error) { return nil, nil }

func newMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return meta.NewDefaultRESTMapper(nil), nil
}

func options() manager.Options {
	return manager.Options{
		NewCache: newCache, NewClient: newClient, MapperProvider: newMapper,
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	}
}

// A host is a process with a manager.
type host struct {
	name string
	*tenuretest.Client
	kube *leasetest.Host
	ctx  context.Context
	stop context.CancelFunc
}

// set cuts the host off its store and its cluster, or makes their replies late.
func (h *host) set(cut bool, slow time.Duration) {
	h.kube.Set(cut, slow)
	h.Heal()
	h.Slow(2 * slow)
	if cut {
		h.Partition()
	}
}

// A stretch is a reconcile.
type stretch struct {
	host     string
	from, to time.Time
}

type stage struct {
	t       *testing.T
	world   *tenuretest.World
	cluster leasetest.Cluster
	hosts   []*host
	stops   time.Duration // a reconcile, when its context ends

	mu      sync.Mutex
	working map[string]*stretch
	done    []*stretch
	running sync.WaitGroup
}

func newStage(t *testing.T, n int) *stage {
	s := &stage{t: t, world: tenuretest.New(t), stops: 300 * time.Millisecond, working: make(map[string]*stretch)}
	for i := range n {
		h := &host{name: string(rune('a' + i)), kube: s.cluster.Host()}
		h.Client = s.world.Client(h.name, func(o *tenure.Options) { o.Logger = nil })
		h.ctx, h.stop = context.WithCancel(t.Context())
		s.hosts = append(s.hosts, h)
	}
	return s
}

// setup adds a controller whose only reconcile goes on until its context ends.
func (s *stage) setup(h *host, mgr manager.Manager) error {
	reconciler := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		w := &stretch{host: h.name, from: time.Now()}
		s.mu.Lock()
		s.working[h.name] = w
		s.done = append(s.done, w)
		s.mu.Unlock()
		<-ctx.Done()
		<-time.After(s.stops)
		s.ended(h)
		return reconcile.Result{}, nil
	})
	c, err := controller.New("the-controller", mgr, controller.Options{Reconciler: reconciler})
	if err != nil {
		return err
	}
	return c.Watch(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: "object"}})
		return nil
	}))
}

// ended says that the reconcile of the host has ended.
func (s *stage) ended(h *host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.working[h.name]; w != nil {
		w.to = time.Now()
		delete(s.working, h.name)
	}
}

// A way is how a host runs its manager until it stops.
type way func(*stage, *host) error

func byElection(s *stage, h *host) error {
	return tenurectrl.RunManager(h.ctx, h.Election("operator", nil), &rest.Config{}, options(), func(mgr manager.Manager, _ *tenure.Lease) error {
		return s.setup(h, mgr)
	})
}

func byLock(s *stage, h *host) error {
	return tenurectrl.RunStandby(h.ctx, newLock(h), &rest.Config{}, options(), func(mgr manager.Manager) error { return s.setup(h, mgr) })
}

// byLease is a manager with client-go's own lock. When Start returns, the process ends, and
// with it its reconcile; another one is started in its place.
func byLease(s *stage, h *host) error {
	for h.ctx.Err() == nil {
		o := options()
		o.LeaderElection = true
		o.LeaderElectionResourceLockInterface = h.kube.Lock(h.name)
		o.LeaderElectionReleaseOnCancel = true
		reuse := true
		o.Controller.SkipNameValidation = &reuse
		mgr, err := manager.New(&rest.Config{}, o)
		if err != nil {
			return err
		}
		if err := s.setup(h, mgr); err != nil {
			return err
		}
		err = mgr.Start(h.ctx)
		s.ended(h)
		if err == nil {
			return nil
		}
		if h.ctx.Err() == nil {
			// A manager of its own accord does not start again.
			if err := mgr.Start(h.ctx); err == nil {
				s.t.Error("a manager has started twice")
			}
		}
	}
	return nil
}

func (s *stage) start(how way) {
	for _, h := range s.hosts {
		s.running.Go(func() {
			if err := how(s, h); err != nil {
				s.t.Errorf("host %s: %v", h.name, err)
			}
		})
	}
}

// leader waits until a host reconciles, and returns it.
func (s *stage) leader() *host {
	s.t.Helper()
	for range 120 {
		<-time.After(time.Second)
		s.mu.Lock()
		n, name := len(s.working), ""
		for name = range s.working {
		}
		s.mu.Unlock()
		for _, h := range s.hosts {
			if n == 1 && h.name == name {
				return h
			}
		}
	}
	s.t.Fatal("nobody reconciles within two minutes")
	return nil
}

// end stops all hosts, and returns for how long two of them have reconciled beside each other,
// and in how many tenures of how many hosts.
func (s *stage) end() (beside time.Duration, what string, tenures int) {
	for _, h := range s.hosts {
		h.set(false, 0)
		h.stop()
	}
	s.running.Wait()
	<-time.After(time.Minute)
	s.mu.Lock()
	defer s.mu.Unlock()
	beside, what = besides(s.done)
	return beside, what, len(s.done)
}

// besides returns for how long two hosts have reconciled beside each other, at most, and which.
func besides(done []*stretch) (beside time.Duration, what string) {
	for i, d := range done {
		for _, before := range done[:i] {
			if by := before.to.Sub(d.from); by > beside && d.host != before.host {
				beside = by
				what = fmt.Sprintf("%s reconciles beside %s for %v", d.host, before.host, by)
			}
		}
	}
	return beside, what
}

func newLock(h *host) *tenureclientgo.Lock {
	return tenureclientgo.NewLock(h.Client.Client, "operator", nil)
}
