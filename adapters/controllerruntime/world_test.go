// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurectrl_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
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
	*tenuretest.Client
	ctx  context.Context
	stop context.CancelFunc
}

type world struct {
	*tenuretest.World
	t       *testing.T
	hosts   []*host
	stops   time.Duration // a reconcile, when its context ends
	tenures atomic.Int64
	running sync.WaitGroup
}

func newWorld(t *testing.T, n int) *world {
	s := &world{World: tenuretest.New(t), t: t, stops: 300 * time.Millisecond}
	for _, name := range []string{"a", "b", "c"}[:n] {
		h := &host{Client: s.Client(name)}
		h.ctx, h.stop = context.WithCancel(t.Context())
		s.hosts = append(s.hosts, h)
	}
	return s
}

// setup adds a controller whose only reconcile goes on until its context ends.
func (s *world) setup(h *host, mgr manager.Manager) error {
	reconciler := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		defer h.Work("operator")()
		s.tenures.Add(1)
		<-ctx.Done()
		<-time.After(s.stops)
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
				s.t.Errorf("host %s: %v", h.Options().Owner, err)
			}
		})
	}
}

// leader waits until a host reconciles, and returns it.
func (s *world) leader() *host {
	s.t.Helper()
	var at []*tenuretest.Client
	s.Until("one host reconciles", func() bool { at = s.Working("operator"); return len(at) == 1 })
	return s.hosts[slices.IndexFunc(s.hosts, func(h *host) bool { return h.Client == at[0] })]
}

// end stops all hosts, and returns in how many tenures they have reconciled.
func (s *world) end() (tenures int64) {
	for _, h := range s.hosts {
		h.Heal()
		h.stop()
	}
	s.running.Wait()
	<-time.After(time.Minute)
	return s.tenures.Load()
}

func newLock(h *host) *tenureclientgo.Lock {
	return tenureclientgo.NewLock(h.Client.Client, "operator", nil)
}
