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
	ctx  context.Context
	stop context.CancelFunc
}

// set cuts the host off its store and its cluster, or makes their replies late.
func (h *host) set(cut bool, slow time.Duration) {
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

type world struct {
	*tenuretest.World
	t     *testing.T
	hosts []*host
	stops time.Duration // a reconcile, when its context ends

	mu      sync.Mutex
	working map[string]*stretch
	done    []*stretch
	running sync.WaitGroup
}

func newWorld(t *testing.T, n int) *world {
	s := &world{World: tenuretest.New(t), t: t, stops: 300 * time.Millisecond, working: make(map[string]*stretch)}
	for i := range n {
		h := &host{name: string(rune('a' + i))}
		h.Client = s.Client(h.name)
		h.ctx, h.stop = context.WithCancel(t.Context())
		s.hosts = append(s.hosts, h)
	}
	return s
}

// setup adds a controller whose only reconcile goes on until its context ends.
func (s *world) setup(h *host, mgr manager.Manager) error {
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
func (s *world) ended(h *host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.working[h.name]; w != nil {
		w.to = time.Now()
		delete(s.working, h.name)
	}
}

// A way is how a host runs its manager until it stops.
type way func(*world, *host) error

func byElection(s *world, h *host) error {
	return tenurectrl.RunManager(h.ctx, h.Election("operator", nil), &rest.Config{}, options(), func(mgr manager.Manager, _ *tenure.Lease) error {
		return s.setup(h, mgr)
	})
}

func byLock(s *world, h *host) error {
	return tenurectrl.RunStandby(h.ctx, newLock(h), &rest.Config{}, options(), func(mgr manager.Manager) error { return s.setup(h, mgr) })
}

func (s *world) start(how way) {
	for _, h := range s.hosts {
		s.running.Go(func() {
			if err := how(s, h); err != nil {
				s.t.Errorf("host %s: %v", h.name, err)
			}
		})
	}
}

// leader waits until a host reconciles, and returns it.
func (s *world) leader() *host {
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
func (s *world) end() (beside time.Duration, what string, tenures int) {
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
