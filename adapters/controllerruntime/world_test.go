// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurectrl_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenurelock/tenure/tenuretest"
)

// world counts the terms with a reconcile.
type world struct {
	*tenuretest.World
	stops time.Duration // a reconcile, when its context ends
	terms atomic.Int64
}

// start returns a world with some processes that run managers in one way.
func start(t *testing.T, n int, stops time.Duration, how way, more ...manager.Runnable) *world {
	s := &world{World: tenuretest.New(t), stops: stops}
	for _, name := range []string{"a", "b", "c"}[:n] {
		c := s.Client(name)
		c.Go(func(ctx context.Context) error { return how(ctx, s, c, more...) })
	}
	return s
}

// setup adds runnables, and a controller whose only reconcile goes on until its context ends.
func (s *world) setup(c *tenuretest.Client, mgr manager.Manager, more []manager.Runnable) error {
	reconciler := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		defer c.Work("operator")()
		s.terms.Add(1)
		<-ctx.Done()
		<-time.After(s.stops)
		return reconcile.Result{}, nil
	})
	var errs []error
	for _, runnable := range more {
		errs = append(errs, mgr.Add(runnable))
	}
	ctrl, err := controller.New("the-controller", mgr, controller.Options{Reconciler: reconciler})
	if err == nil {
		err = ctrl.Watch(object)
	}
	return errors.Join(append(errs, err)...)
}
