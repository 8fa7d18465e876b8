// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package leasetest is a Lease of Kubernetes in memory, for tests of leader election with
// client-go's own lock: several hosts share it, over networks that are slow or cut. It works
// in the bubbles of testing/synctest.
//
// It has what resourcelock's leases call: Get, Create and Update of one Lease, with optimistic
// locking by its resource version. It has no watch and no other object.
package leasetest

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Timeout is that of a request: half of client-go's renew deadline by default, as
// resourcelock.NewFromKubeconfig has it.
const Timeout = 5 * time.Second

// Cluster is an API server with one Lease. The zero value is one without it. All methods may
// be called concurrently.
type Cluster struct {
	mu    sync.Mutex
	lease *coordination.Lease
}

// Host returns a host that reaches the cluster.
func (c *Cluster) Host() *Host { return &Host{cluster: c} }

// Host is a host of the cluster, with a network of its own. All methods may be called
// concurrently.
type Host struct {
	cluster *Cluster

	mu   sync.Mutex
	cut  bool
	slow time.Duration
}

// Set cuts the host off, or not, and makes the replies to it come late by slow. Requests of a
// host that is cut off reach nothing, and hang until their timeout.
func (h *Host) Set(cut bool, slow time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut, h.slow = cut, slow
}

// Lock returns client-go's lock in the Lease.
func (h *Host) Lock(identity string) resourcelock.Interface {
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "lease", Namespace: "default"},
		Client:     leases{host: h},
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
}

// leases is what LeaseLock calls. The other methods of the interface are nil.
type leases struct {
	typed.LeaseInterface
	host *Host
}

func (l leases) Leases(string) typed.LeaseInterface { return l }

func (l leases) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordination.Lease, error) {
	return l.call(ctx, func(c *Cluster) (*coordination.Lease, error) {
		if c.lease == nil {
			return nil, apierrors.NewNotFound(coordination.Resource("leases"), name)
		}
		return c.lease.DeepCopy(), nil
	})
}

func (l leases) Create(ctx context.Context, lease *coordination.Lease, _ metav1.CreateOptions) (*coordination.Lease, error) {
	return l.write(ctx, "", lease)
}

func (l leases) Update(ctx context.Context, lease *coordination.Lease, _ metav1.UpdateOptions) (*coordination.Lease, error) {
	return l.write(ctx, lease.ResourceVersion, lease)
}

// write replaces the Lease of that version.
func (l leases) write(ctx context.Context, version string, lease *coordination.Lease) (*coordination.Lease, error) {
	return l.call(ctx, func(c *Cluster) (*coordination.Lease, error) {
		now := 0
		if c.lease != nil {
			now, _ = strconv.Atoi(c.lease.ResourceVersion)
		}
		if was, _ := strconv.Atoi(version); was != now {
			return nil, apierrors.NewConflict(coordination.Resource("leases"), lease.Name, errors.New("it has changed"))
		}
		c.lease = lease.DeepCopy()
		c.lease.ResourceVersion = strconv.Itoa(now + 1)
		return c.lease.DeepCopy(), nil
	})
}

// call has the cluster answer, if the network lets it.
func (l leases) call(ctx context.Context, answer func(*Cluster) (*coordination.Lease, error)) (*coordination.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	l.host.mu.Lock()
	cut, slow := l.host.cut, l.host.slow
	l.host.mu.Unlock()
	if cut {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	l.host.cluster.mu.Lock()
	lease, err := answer(l.host.cluster)
	l.host.cluster.mu.Unlock()
	reply := time.NewTimer(slow)
	defer reply.Stop()
	select {
	case <-reply.C:
		return lease, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
