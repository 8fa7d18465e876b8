// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/tenurelock/tenure"
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

// BenchmarkFailOver measures the library and client-go's elector, whose periods have the
// proportions of its defaults.
func BenchmarkFailOver(b *testing.B) {
	file := enginetest.Shared(b, enginetest.Kubernetes, "kubernetes")
	namespace := locks.Inherited(b, "NAMESPACE", func() string { return newNamespace(b, file) })
	config := mustConfig(b, file, "admin")
	open := func(b *testing.B) driver.Store { return mustOpen(b, config, namespace, nil) }
	locks.FailOver(b, locks.TenureWith(open, &tenure.Options{LeaseDuration: locks.Lease}), elector(config, namespace))
}

// elector is client-go's, with all of its pauses.
func elector(config *rest.Config, namespace string) locks.Way {
	return locks.Way{Name: "elector", Client: func(b *testing.B) func(string) locks.Lock {
		newLock := locksOf(b, config, namespace)
		return func(name string) locks.Lock {
			var stop context.CancelFunc
			ended := make(chan struct{}, 1)
			return locks.Lock{
				Take: func(ctx context.Context) error {
					lock := newLock(name).(*resourcelock.LeaseLock)
					lock.LockConfig.Identity = fmt.Sprint(os.Getpid(), "-", time.Now().UnixNano())
					leads := make(chan struct{})
					e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
						Lock: lock, LeaseDuration: locks.Lease, RenewDeadline: locks.Lease * 2 / 3, RetryPeriod: locks.Lease * 2 / 15,
						ReleaseOnCancel: true,
						Callbacks: leaderelection.LeaderCallbacks{
							OnStartedLeading: func(context.Context) { close(leads) }, OnStoppedLeading: func() {},
						},
					})
					if err != nil {
						return err
					}
					run, cancel := context.WithCancel(context.WithoutCancel(ctx))
					stop = cancel
					go func() {
						e.Run(run)
						ended <- struct{}{}
					}()
					select {
					case <-leads:
						return nil
					case <-ctx.Done():
						cancel()
						return ctx.Err()
					}
				},
				Release: func(context.Context) error {
					stop()
					<-ended
					return nil
				},
			}
		}
	}}
}

// BenchmarkHeartbeat renews locks, each goroutine one of its own: by the store, and by the
// call of client-go's lock.
func BenchmarkHeartbeat(b *testing.B) {
	file := enginetest.Shared(b, enginetest.Kubernetes, "kubernetes")
	config, namespace := mustConfig(b, file, "admin"), newNamespace(b, file)
	for _, goroutines := range []int{1, 32} {
		b.Run(fmt.Sprintf("tenure/goroutines=%d", goroutines), func(b *testing.B) {
			s := mustOpen(b, config, namespace, nil)
			locks.Together(b, goroutines, func(i int) func() error {
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
			newLock := locksOf(b, config, namespace)
			locks.Together(b, goroutines, func(i int) func() error {
				lock := newLock(fmt.Sprintf("elector-beat-%d-%d-%d", goroutines, b.N, i))
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
