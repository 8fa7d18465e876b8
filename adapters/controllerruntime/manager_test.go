// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurectrl_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// noCache replaces the manager's cache, which needs an API server: no test here reads
// objects.
type noCache struct{ cache.Cache }

func (noCache) Start(ctx context.Context) error       { <-ctx.Done(); return nil }
func (noCache) WaitForCacheSync(context.Context) bool { return true }

// object is a source of one object.
var object = source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	q.Add(reconcile.Request{})
	return nil
})

func options() manager.Options {
	return manager.Options{
		NewCache:  func(*rest.Config, cache.Options) (cache.Cache, error) { return noCache{}, nil },
		NewClient: func(*rest.Config, client.Options) (client.Client, error) { return nil, nil },
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return meta.NewDefaultRESTMapper(nil), nil
		},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	}
}

func newLock(c *tenuretest.Client) *tenureclientgo.Lock {
	return tenureclientgo.NewLock(c.Client, "operator", nil)
}

// A way is how a process runs managers until it stops. Each has the controller, and more.
type way func(ctx context.Context, s *world, c *tenuretest.Client, more ...manager.Runnable) error

var ways = map[string]way{"by an election": byElection, "by a lock": byLock}

func byElection(ctx context.Context, s *world, c *tenuretest.Client, more ...manager.Runnable) error {
	return tenurectrl.RunManager(ctx, c.Election("operator", nil), &rest.Config{}, options(),
		func(mgr manager.Manager, _ *tenure.Lease) error { return s.setup(c, mgr, more) })
}

func byLock(ctx context.Context, s *world, c *tenuretest.Client, more ...manager.Runnable) error {
	return tenurectrl.RunStandby(ctx, newLock(c), &rest.Config{}, options(),
		func(mgr manager.Manager) error { return s.setup(c, mgr, more) })
}

// cutOff runs three processes. The replies to the leader come late, and then it is cut off in
// the middle of a reconcile, for a minute.
func cutOff(t *testing.T, how way, more ...manager.Runnable) {
	s := start(t, 3, 300*time.Millisecond, how, more...)
	leader := s.Worker("operator")
	time.Sleep(30 * time.Second)
	leader.Slow(2 * 4900 * time.Millisecond) // one half of it is that of the reply
	time.Sleep(11 * time.Second)
	leader.Heal()
	leader.Partition()
	time.Sleep(time.Minute)
	leader.Heal()
	s.Worker("operator")
	s.Stop()
	if terms := s.terms.Load(); terms < 2 {
		t.Errorf("%d terms", terms)
	}
}

// TestLostInReconcile: a manager that loses its lease in the middle of a reconcile ends it
// before the next one begins its own.
func TestLostInReconcile(t *testing.T) {
	for name, how := range ways {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				synctest.Test(t, func(t *testing.T) { cutOff(t, how) })
			}
		})
	}
}

// TestLeadsAgain: the same process leads again after a loss, and its controllers run again.
func TestLeadsAgain(t *testing.T) {
	for name, how := range ways {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, 1, 300*time.Millisecond, how)
			for range 3 {
				s.Worker("operator").Partition()
				time.Sleep(time.Minute)
				s.Heal()
			}
			s.Worker("operator")
			s.Stop()
			if terms := s.terms.Load(); terms != 4 {
				t.Errorf("%s: %d terms of 4", name, terms)
			}
		})
	}
}

// TestStepDown: a leader that is asked to make way ends its reconcile, then its lease, and
// another one leads. So does a leader that is shut down.
func TestStepDown(t *testing.T) {
	for name, how := range ways {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, 2, 5*time.Second, how)
			for range 3 {
				former := s.Worker("operator")
				asked := time.Now()
				if err := former.StepDown(t.Context(), "operator", &tenure.StepDownOptions{Reason: "a test"}); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if took := time.Since(asked); took < s.stops || took > s.stops+2*time.Second {
					t.Errorf("%s: the lock was free after %v, with a reconcile that stops for %v", name, took, s.stops)
				}
				if s.Worker("operator") == former {
					t.Errorf("%s: the one who was asked leads again, before the other one", name)
				}
			}
			former := s.Worker("operator")
			former.Stop()
			time.Sleep(s.stops + time.Second)
			if s.Worker("operator") == former {
				t.Errorf("%s: a host that was shut down leads", name)
			}
			s.Stop()
			if s.Held("operator") {
				t.Errorf("%s: the lock is held after all", name)
			}
		})
	}
}

// TestOthersStopSlowly: a runnable that takes its time to stop does not keep the controllers
// at work: a manager by itself cancels these only when it has returned.
func TestOthersStopSlowly(t *testing.T) {
	slow := manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(10 * time.Second)
		return nil
	})
	for name, how := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { cutOff(t, how, notLeading{slow}) })
		})
	}
}

// notLeading is a runnable that needs no leader.
type notLeading struct{ manager.RunnableFunc }

func (notLeading) NeedLeaderElection() bool { return false }

// TestContext: the contexts of runnables carry the lease, and the values of BaseContext.
func TestContext(t *testing.T) {
	type key struct{}
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		c, config, o := w.Client("a"), &rest.Config{}, options()
		o.BaseContext = func() context.Context { return context.WithValue(t.Context(), key{}, "value") }
		failed := errors.New("failed")
		election := c.Election("operator", nil)
		err := tenurectrl.RunManager(t.Context(), election, config, o, func(mgr manager.Manager, lease *tenure.Lease) error {
			return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
				own, ok := tenure.FromContext(ctx)
				if !ok || own != lease || ctx.Value(key{}) != "value" {
					t.Errorf("lease %v, value %v", ok, ctx.Value(key{}))
				}
				return failed
			}))
		})
		if !errors.Is(err, failed) {
			t.Errorf("an error of a runnable: %v", err)
		}
		err = tenurectrl.RunStandby(t.Context(), newLock(c), config, o, func(mgr manager.Manager) error {
			return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
				if ctx.Value(key{}) != "value" {
					t.Errorf("value %v", ctx.Value(key{}))
				}
				return failed
			}))
		})
		if !errors.Is(err, failed) {
			t.Errorf("an error of a runnable, by a lock: %v", err)
		}
		fails := func(manager.Manager, *tenure.Lease) error { return failed }
		if err := tenurectrl.RunManager(t.Context(), election, config, o, fails); !errors.Is(err, failed) {
			t.Errorf("an error of setup: %v", err)
		}
		time.Sleep(time.Minute)
	})
}

// TestStandby: what needs no leader runs in both, and the controllers in one.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		warm := make(chan bool, 10)
		s := start(t, 2, 300*time.Millisecond, byLock, notLeading{func(ctx context.Context) error {
			warm <- true
			<-ctx.Done()
			return nil
		}})
		s.Worker("operator")
		time.Sleep(time.Minute)
		if len(warm) != 2 {
			t.Errorf("%d of 2 managers run", len(warm))
		}
		s.Stop()
		if terms := s.terms.Load(); terms != 1 {
			t.Errorf("%d reconciles", terms)
		}
	})
}

func TestBadOptions(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		c := w.Client("a")
		bounded := 30 * time.Second
		for want, o := range map[string]manager.Options{
			"leave LeaderElection":           {LeaderElection: true},
			"GracefulShutdownTimeout is 30s": {GracefulShutdownTimeout: &bounded},
		} {
			err := tenurectrl.RunManager(t.Context(), c.Election("operator", nil), &rest.Config{}, o, nil)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			err = tenurectrl.RunStandby(t.Context(), newLock(c), &rest.Config{}, o, nil)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}
