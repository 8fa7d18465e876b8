// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurectrl_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenurelock/tenure"
	tenureclientgo "github.com/tenurelock/tenure/adapters/clientgo"
	tenurectrl "github.com/tenurelock/tenure/adapters/controllerruntime"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/k8sstore"
)

// The times of client-go's lock, and of ours. The renew deadline is near the lease, as it is
// by default, and replies are late by almost all of a request's time, which is half of it.
const (
	realLease    = 4 * time.Second
	realDeadline = 3500 * time.Millisecond
	realRetry    = 500 * time.Millisecond
	realLate     = 1700 * time.Millisecond
)

// network is that of one host, between it and the API server.
type network struct {
	mu   sync.Mutex
	cut  bool
	late time.Duration
	next int
	open map[int]context.CancelFunc
}

// set cuts the host off, or not, or has replies come late. What is under way when it is cut
// off hangs, watches too.
func (n *network) set(cut bool, late time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut, n.late = cut, late
	if cut {
		for _, cancel := range n.open {
			cancel()
		}
	}
}

// linked is a transport of that host.
type linked struct {
	*network
	through http.RoundTripper
}

func (n linked) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	n.mu.Lock()
	cut, late, id := n.cut, n.late, n.next
	n.next++
	n.open[id] = cancel
	n.mu.Unlock()
	context.AfterFunc(req.Context(), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.open, id)
	})
	if cut {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	reply, err := n.through.RoundTrip(req.WithContext(ctx))
	if ctx.Err() != nil && req.Context().Err() == nil {
		<-req.Context().Done()
	}
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(late):
		return reply, nil
	case <-req.Context().Done():
		_ = reply.Body.Close()
		return nil, req.Context().Err()
	}
}

// operator is one process: a manager whose controller reconciles one ConfigMap.
type operator struct {
	p       *operators
	name    string
	network *network
	config  *rest.Config
	client  *tenure.Client
	ctx     context.Context
	stop    context.CancelFunc
}

// operators are the processes, and what they have done.
type operators struct {
	t         *testing.T
	namespace string
	all       []*operator
	running   sync.WaitGroup

	mu      sync.Mutex
	working map[string]int // reconciles of an operator
}

// Reconcile goes on until its context ends, and a little longer.
func (o *operator) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	if r.Name != "object" {
		return reconcile.Result{}, nil // that of the API server itself
	}
	o.p.mu.Lock()
	for other, n := range o.p.working {
		if other != o.name && n > 0 {
			o.p.t.Errorf("%s reconciles beside %s", o.name, other)
		}
	}
	o.p.working[o.name]++
	o.p.mu.Unlock()
	<-ctx.Done()
	<-time.After(100 * time.Millisecond)
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	o.p.working[o.name]--
	return reconcile.Result{}, nil
}

func (o *operator) setup(mgr manager.Manager) error {
	again := true
	return builder.ControllerManagedBy(mgr).Named("objects").For(&corev1.ConfigMap{}).
		WithOptions(controller.Options{SkipNameValidation: &again}).Complete(o)
}

func (o *operator) options() manager.Options {
	return manager.Options{
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{o.p.namespace: {}}},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	}
}

// realWays are how an operator runs until it is stopped.
var realWays = map[string]func(*operator) error{
	"by an election": func(o *operator) error {
		return tenurectrl.RunManager(o.ctx, o.client.Election("operator", nil), o.config, o.options(), func(mgr manager.Manager, _ *tenure.Lease) error { return o.setup(mgr) })
	},
	"by a lock": func(o *operator) error {
		options := o.options()
		options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = at(realLease), at(realDeadline), at(realRetry)
		return tenurectrl.RunStandby(o.ctx, tenureclientgo.NewLock(o.client, "operator", nil), o.config, options, o.setup)
	},
}

func at(d time.Duration) *time.Duration { return &d }

func newOperators(t *testing.T, kubeconfig string) *operators {
	p := &operators{t: t, working: map[string]int{}, namespace: fmt.Sprintf("operators-%d", time.Now().UnixNano())}
	enginetest.CreateInKubernetes(t, kubeconfig, "/api/v1/namespaces", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+p.namespace+"}\n")
	enginetest.CreateInKubernetes(t, kubeconfig, "/api/v1/namespaces/"+p.namespace+"/configmaps", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: object}\n")
	for _, name := range []string{"a", "b", "c"} {
		o := &operator{p: p, name: name, network: &network{open: map[int]context.CancelFunc{}}}
		config, _, err := k8sstore.Config(kubeconfig, "admin")
		if err != nil {
			t.Fatal(err)
		}
		config.QPS = -1
		config.Wrap(func(through http.RoundTripper) http.RoundTripper {
			return linked{o.network, through}
		})
		o.config = config
		store, err := k8sstore.Open(t.Context(), rest.CopyConfig(config), p.namespace, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		if o.client, err = tenure.New(store, &tenure.Options{Owner: name, LeaseDuration: realLease}); err != nil {
			t.Fatal(err)
		}
		o.ctx, o.stop = context.WithCancel(t.Context())
		p.all = append(p.all, o)
	}
	return p
}

// leader waits until an operator other than the given one reconciles, and returns it.
func (p *operators) leader(other *operator) *operator {
	p.t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Minute; <-time.After(20 * time.Millisecond) {
		p.mu.Lock()
		for _, o := range p.all {
			if o != other && p.working[o.name] > 0 {
				p.mu.Unlock()
				return o
			}
		}
		p.mu.Unlock()
	}
	p.t.Fatal("no other operator reconciles within a minute")
	return nil
}

// TestKubernetesManager: three managers with real caches and watches on a real API server,
// whose lock is in a Lease of it. The replies to the leader come late, then it is cut off in
// the middle of a reconcile. That ends before the next one begins, and the same process leads
// again when the others have stopped.
func TestKubernetesManager(t *testing.T) {
	kubeconfig := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	for name, how := range realWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newOperators(t, kubeconfig)
			for _, o := range p.all {
				p.running.Go(func() {
					if err := how(o); err != nil {
						t.Errorf("%s: %v", o.name, err)
					}
				})
			}
			first := p.leader(nil)
			first.network.set(false, realLate)
			<-time.After(2 * realLease)
			first.network.set(true, 0)
			p.leader(first)
			<-time.After(realLease)
			first.network.set(false, 0)
			for _, o := range p.all {
				if o != first {
					o.stop()
				}
			}
			for begun := time.Now(); p.leader(nil) != first; <-time.After(20 * time.Millisecond) {
				if time.Since(begun) > time.Minute {
					t.Fatal("the first one does not lead again within a minute")
				}
			}
			first.stop()
			p.running.Wait()
		})
	}
}
