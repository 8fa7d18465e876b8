// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// BenchmarkAcquireRelease takes and releases locks, each goroutine one of its own: through
// the whole of the library, and by the calls of client-go's lock that its elector makes
// for it, without the pauses of the elector: a look and an update to take it, and the same
// to release it. An operation is a pair.
func BenchmarkAcquireRelease(b *testing.B) {
	file := enginetest.Shared(b, enginetest.Kubernetes, "kubernetes")
	config, namespace := mustConfig(b, file, "admin"), newNamespace(b, file)
	for _, goroutines := range []int{1, 32} {
		b.Run(fmt.Sprintf("tenure/goroutines=%d", goroutines), func(b *testing.B) {
			c, err := tenure.New(mustOpen(b, config, namespace, nil), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close(context.WithoutCancel(b.Context()))
			pairs(b, goroutines, func(i int) func() error {
				name := fmt.Sprintf("lock-%d-%d", goroutines, i)
				return func() error {
					l, err := c.Acquire(b.Context(), name, nil)
					if err != nil {
						return err
					}
					return l.Release(b.Context())
				}
			})
		})
		b.Run(fmt.Sprintf("elector/goroutines=%d", goroutines), func(b *testing.B) {
			locks := locksOf(b, config, namespace)
			pairs(b, goroutines, func(i int) func() error {
				lock := locks(fmt.Sprintf("elector-%d-%d", goroutines, i))
				ctx := b.Context()
				if _, _, err := lock.Get(ctx); err != nil {
					if err := lock.Create(ctx, resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}); err != nil {
						b.Fatal(err)
					}
				}
				return func() error {
					for _, holder := range []string{lock.Identity(), ""} {
						if _, _, err := lock.Get(ctx); err != nil {
							return err
						}
						if err := lock.Update(ctx, recordBy(holder)); err != nil {
							return err
						}
					}
					return nil
				}
			})
		})
	}
}

// BenchmarkHeartbeat renews locks, each goroutine one of its own: by the store, and by the
// call of client-go's lock.
func BenchmarkHeartbeat(b *testing.B) {
	file := enginetest.Shared(b, enginetest.Kubernetes, "kubernetes")
	config, namespace := mustConfig(b, file, "admin"), newNamespace(b, file)
	for _, goroutines := range []int{1, 32} {
		b.Run(fmt.Sprintf("tenure/goroutines=%d", goroutines), func(b *testing.B) {
			s := mustOpen(b, config, namespace, nil)
			pairs(b, goroutines, func(i int) func() error {
				rec, _, err := s.Claim(b.Context(), held(fmt.Sprintf("beat-%d-%d-%d", goroutines, b.N, i)))
				if err != nil {
					b.Fatal(err)
				}
				return func() (err error) {
					rec, err = s.Swap(b.Context(), rec, beat(rec))
					return err
				}
			})
		})
		b.Run(fmt.Sprintf("elector/goroutines=%d", goroutines), func(b *testing.B) {
			locks := locksOf(b, config, namespace)
			pairs(b, goroutines, func(i int) func() error {
				lock := locks(fmt.Sprintf("elector-beat-%d-%d-%d", goroutines, b.N, i))
				if err := lock.Create(b.Context(), recordBy(lock.Identity())); err != nil {
					b.Fatal(err)
				}
				return func() error { return lock.Update(b.Context(), recordBy(lock.Identity())) }
			})
		})
	}
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

// pairs has goroutines make b.N operations together.
func pairs(b *testing.B, goroutines int, of func(i int) func() error) {
	all := make([]func() error, goroutines)
	for i := range all {
		all[i] = of(i)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for _, pair := range all {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := pair(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
