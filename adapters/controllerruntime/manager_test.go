// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurectrl_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenurelock/tenure"
	tenurectrl "github.com/tenurelock/tenure/adapters/controllerruntime"
)

var ways = map[string]way{"by an election": byElection, "by a lock": byLock}

// cutOff runs three hosts. The replies to the leader come late, and then it is cut off in the
// middle of a reconcile, for a minute.
func cutOff(t *testing.T, how way) {
	s := newWorld(t, 3)
	s.start(how)
	leader := s.leader()
	time.Sleep(30 * time.Second)
	leader.Slow(2 * 4900 * time.Millisecond) // one half of it is that of the reply
	time.Sleep(11 * time.Second)
	leader.Heal()
	leader.Partition()
	time.Sleep(time.Minute)
	leader.Heal()
	s.leader()
	if tenures := s.end(); tenures < 2 {
		t.Errorf("%d tenures", tenures)
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
			s := newWorld(t, 1)
			s.start(how)
			for range 3 {
				h := s.leader()
				h.Partition()
				time.Sleep(time.Minute)
				h.Heal()
			}
			s.leader()
			if tenures := s.end(); tenures != 4 {
				t.Errorf("%s: %d tenures of 4", name, tenures)
			}
		})
	}
}

// TestStepDown: a leader that is asked to make way ends its reconcile, then its lease, and
// another one leads. So does one that is shut down.
func TestStepDown(t *testing.T) {
	for name, how := range ways {
		synctest.Test(t, func(t *testing.T) {
			s := newWorld(t, 2)
			s.stops = 5 * time.Second
			s.start(how)
			for range 3 {
				former := s.leader()
				asked := time.Now()
				if err := former.StepDown(t.Context(), "operator", &tenure.StepDownOptions{Reason: "a test"}); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if took := time.Since(asked); took < s.stops || took > s.stops+2*time.Second {
					t.Errorf("%s: the lock was free after %v, with a reconcile that stops for %v", name, took, s.stops)
				}
				if s.leader() == former {
					t.Errorf("%s: the one who was asked leads again, before the other one", name)
				}
			}
			former := s.leader()
			former.stop()
			time.Sleep(s.stops + time.Second)
			if s.leader() == former {
				t.Errorf("%s: a host that was shut down leads", name)
			}
			s.end()
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
	for name, how := range map[string]way{
		"by an election": func(s *world, h *host) error {
			return tenurectrl.RunManager(h.ctx, h.Election("operator", nil), &rest.Config{}, options(), func(mgr manager.Manager, _ *tenure.Lease) error {
				return errors.Join(mgr.Add(notLeading{slow}), s.setup(h, mgr))
			})
		},
		"by a lock": func(s *world, h *host) error {
			return tenurectrl.RunStandby(h.ctx, newLock(h), &rest.Config{}, options(), func(mgr manager.Manager) error {
				return errors.Join(mgr.Add(notLeading{slow}), s.setup(h, mgr))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { cutOff(t, how) })
		})
	}
}

// notLeading is a runnable that needs no leader.
type notLeading struct{ manager.RunnableFunc }

func (notLeading) NeedLeaderElection() bool { return false }

// TestContext: the contexts of runnables carry the lease, and the values of BaseContext.
func TestContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 1)
		h := s.hosts[0]
		o := options()
		o.BaseContext = func() context.Context { return context.WithValue(t.Context(), key{}, "value") }
		failed := errors.New("failed")
		err := tenurectrl.RunManager(h.ctx, h.Election("operator", nil), &rest.Config{}, o, func(mgr manager.Manager, lease *tenure.Lease) error {
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
		err = tenurectrl.RunStandby(h.ctx, newLock(h), &rest.Config{}, o, func(mgr manager.Manager) error {
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
		if err := tenurectrl.RunManager(h.ctx, h.Election("operator", nil), &rest.Config{}, o, func(manager.Manager, *tenure.Lease) error { return failed }); !errors.Is(err, failed) {
			t.Errorf("an error of setup: %v", err)
		}
		time.Sleep(time.Minute)
	})
}

// TestStandby: what needs no leader runs in both, and the controllers in one.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 2)
		warm := make(chan string, 10)
		s.start(func(s *world, h *host) error {
			return tenurectrl.RunStandby(h.ctx, newLock(h), &rest.Config{}, options(), func(mgr manager.Manager) error {
				return errors.Join(s.setup(h, mgr), mgr.Add(notLeading{func(ctx context.Context) error {
					warm <- h.Options().Owner
					<-ctx.Done()
					return nil
				}}))
			})
		})
		s.leader()
		time.Sleep(time.Minute)
		if len(warm) != 2 {
			t.Errorf("%d of 2 managers run", len(warm))
		}
		if tenures := s.end(); tenures != 1 {
			t.Errorf("%d reconciles", tenures)
		}
	})
}

func TestBadOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newWorld(t, 1).hosts[0]
		bounded := 30 * time.Second
		for want, o := range map[string]manager.Options{
			"leave LeaderElection":           {LeaderElection: true},
			"GracefulShutdownTimeout is 30s": {GracefulShutdownTimeout: &bounded},
		} {
			err := tenurectrl.RunManager(t.Context(), h.Election("operator", nil), &rest.Config{}, o, nil)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			err = tenurectrl.RunStandby(t.Context(), newLock(h), &rest.Config{}, o, nil)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}
