// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

const namespace = "default"

var errNoTry = errors.New("the library cannot try without waiting")

// kubeLibrary is client-go's leaderelection.
var kubeLibrary = serve.Library{Name: kubeID, Module: "k8s.io/client-go", Open: openKube}

// kubeClient runs an elector for each lock.
type kubeClient struct {
	config                 *rest.Config
	lease, deadline, retry time.Duration
	bounded                bool // requests, as NewFromKubeconfig does it
	releases               bool // when its context ends
	client                 clientset.Interface

	ctx     context.Context // of all electors
	close   context.CancelFunc
	running sync.WaitGroup
}

func openKube(r *wire.Request) (serve.Client, error) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	lease := serve.Milliseconds(r.LeaseMs)
	l := &kubeClient{
		config: &rest.Config{
			Host: r.Endpoint, QPS: -1, // its limit of five requests a second is for other uses
			ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
		},
		lease: lease, deadline: lease * 2 / 3, retry: serve.Milliseconds(r.RefreshMs),
		bounded: r.RequestTimeout, releases: r.ReleaseOnCancel,
	}
	l.ctx, l.close = context.WithCancel(context.Background())
	var err error
	l.client, err = clientset.NewForConfig(l.config)
	return l, err
}

// lock makes the lease lock with or without a bound for each request: by
// NewFromKubeconfig as most controllers do, or by hand as the package's example
// does.
func (l *kubeClient) lock(name string) (resourcelock.Interface, error) {
	identity := resourcelock.ResourceLockConfig{Identity: strings.ToLower(rand.Text())}
	if l.bounded {
		kind := resourcelock.LeasesResourceLock
		return resourcelock.NewFromKubeconfig(kind, namespace, name, identity, l.config, l.deadline)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: name, Namespace: namespace},
		Client:     l.client.CoordinationV1(),
		LockConfig: identity,
	}, nil
}

func (l *kubeClient) Acquire(_ context.Context, r *wire.Request) (serve.Lock, error) {
	if r.TryOnly {
		return nil, serve.Refuse(wire.Unsupported, errNoTry)
	}
	lock, err := l.lock(r.Name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(l.ctx)
	h := &kubeLeader{
		library: l, name: r.Name, cancel: cancel,
		leads: make(chan context.Context, 1), over: make(chan struct{}),
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: l.lease, RenewDeadline: l.deadline, RetryPeriod: l.retry, ReleaseOnCancel: l.releases,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { h.leads <- ctx },
			OnStoppedLeading: func() { close(h.over) },
		},
	})
	if err != nil {
		cancel()
		return nil, err
	}
	l.running.Go(func() { elector.Run(ctx) })
	select {
	case ctx := <-h.leads:
		// The end of its context, or OnStoppedLeading: the first of the two is what it says.
		leading, stop := context.WithCancel(ctx)
		go func() {
			<-h.over
			stop()
		}()
		h.ctx = leading
		return h, nil
	case <-h.over:
		return nil, context.Canceled
	}
}

// Close ends all electors, as the end of their context does.
func (l *kubeClient) Close() error {
	l.close()
	l.running.Wait()
	return nil
}

type kubeLeader struct {
	library *kubeClient
	name    string
	cancel  context.CancelFunc
	ctx     context.Context // of the work
	leads   chan context.Context
	over    chan struct{}
}

// Check goes by the context of the work: IsLeader does not look at the clock.
func (h *kubeLeader) Check() bool             { return !closed(h.over) && h.ctx.Err() == nil }
func (h *kubeLeader) Notice() <-chan struct{} { return h.ctx.Done() }

// Token is the count of transitions, the only number in the record.
func (h *kubeLeader) Token() (uint64, bool) {
	leases := h.library.client.CoordinationV1().Leases(namespace)
	lease, err := leases.Get(context.Background(), h.name, metav1.GetOptions{})
	if err != nil || lease.Spec.LeaseTransitions == nil {
		return 0, false
	}
	return uint64(*lease.Spec.LeaseTransitions), true
}

func (h *kubeLeader) Release(*wire.Request) error {
	h.cancel()
	<-h.over
	return nil
}
