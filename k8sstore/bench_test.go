// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/locks"
)

// BenchmarkAcquireRelease measures the library, and the calls of client-go's lock that its
// elector makes for it, without the pauses of the elector: a look and an update to take it,
// and the same to release it.
func BenchmarkAcquireRelease(b *testing.B) {
	file := enginetest.Shared(b, enginetest.Kubernetes, "kubernetes")
	config, namespace := mustConfig(b, file, "admin"), newNamespace(b, file)
	locks.Pairs(b, locks.Tenure(func(b *testing.B) driver.Store { return mustOpen(b, config, namespace, nil) }), locks.Way{
		Name: "elector", Client: func(b *testing.B) func(string) locks.Lock {
			newLock := locksOf(b, config, namespace)
			return func(name string) locks.Lock {
				lock := newLock("elector-" + name)
				if _, _, err := lock.Get(b.Context()); err != nil {
					if err := lock.Create(b.Context(), recordBy("")); err != nil {
						b.Fatal(err)
					}
				}
				by := func(holder string) func(context.Context) error {
					return func(ctx context.Context) error {
						if _, _, err := lock.Get(ctx); err != nil {
							return err
						}
						return lock.Update(ctx, recordBy(holder))
					}
				}
				return locks.Lock{Take: by(lock.Identity()), Release: by("")}
			}
		},
	})
}

// locksOf returns what makes locks of client-go, on one client without its limit of
// requests.
func locksOf(b *testing.B, config *rest.Config, namespace string) func(name string) resourcelock.Interface {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := coordination.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	return func(name string) resourcelock.Interface {
		return &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: "elector"},
		}
	}
}

func recordBy(holder string) resourcelock.LeaderElectionRecord {
	now := metav1.NewTime(time.Now())
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15, AcquireTime: now, RenewTime: now}
}
