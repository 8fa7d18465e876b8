// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurectrl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenurelock/tenure"
	tenureclientgo "github.com/tenurelock/tenure/adapters/clientgo"
)

// RunManager campaigns, and runs a manager at every election won, until ctx ends. Setup adds
// the controllers to a new manager each time; its lease is in their contexts, too:
// [tenure.FromContext]. While this process follows there is no manager: no caches, webhooks
// or probes.
//
// The options are those of the manager, but for leader election, which must be off, and for
// GracefulShutdownTimeout: the manager waits for all that it runs, without a bound, because
// the lock is released then. Heartbeats go on meanwhile, for [tenure.Options.StopTimeout] at
// most. Names of controllers may be used again.
//
// RunManager returns nil when ctx has ended and the manager has. When the lease is lost, or
// the leader is asked to make way, it campaigns again. It returns other errors of setup and
// of the manager, and those of [tenure.Election.Run].
func RunManager(ctx context.Context, election *tenure.Election, config *rest.Config, options manager.Options, setup func(manager.Manager, *tenure.Lease) error) error {
	if err := check(options); err != nil {
		return fmt.Errorf("run a manager for %q: %w", election.Name(), err)
	}
	return election.Run(ctx, func(ctx context.Context, lease *tenure.Lease) error {
		mgr, stop, err := build(ctx, config, options, lease.Bind)
		if err != nil {
			return err
		}
		defer stop()
		if err := setup(mgr, lease); err != nil {
			return err
		}
		return mgr.Start(ctx)
	})
}

// RunStandby runs a manager until ctx ends, whose controllers run while this process leads.
// Caches, webhooks, probes, and what needs no leader, run while it waits, too. Setup adds the
// controllers to a new manager each time: when the lease is lost, or the leader is asked to
// make way, the manager ends, and the next one waits for the lock. The lease is that of the
// lock: [tenureclientgo.Lock.Lease].
//
// The options are those of RunManager. LeaseDuration, RenewDeadline and RetryPeriod say how
// often the manager tries; the lock's options say how long its lease is.
//
// RunStandby returns nil when ctx has ended and the manager has, and other errors of setup
// and of the manager.
func RunStandby(ctx context.Context, lock *tenureclientgo.Lock, config *rest.Config, options manager.Options, setup func(manager.Manager) error) error {
	if err := check(options); err != nil {
		return fmt.Errorf("run a manager for %s: %w", lock.Describe(), err)
	}
	options.LeaderElection = true
	options.LeaderElectionResourceLockInterface = lock
	options.LeaderElectionReleaseOnCancel = true
	for ctx.Err() == nil {
		if again, err := standby(ctx, lock, config, options, setup); !again {
			return err
		}
	}
	return nil
}

// standby runs one manager, and reports whether to run another one.
func standby(ctx context.Context, lock *tenureclientgo.Lock, config *rest.Config, options manager.Options, setup func(manager.Manager) error) (again bool, err error) {
	bound, stop := lock.Bind(ctx)
	defer stop()
	mgr, free, err := build(bound, config, options, lock.Bind)
	if err != nil {
		return false, err
	}
	defer free()
	if err := setup(mgr); err != nil {
		return false, err
	}
	err = mgr.Start(bound)
	switch {
	case ctx.Err() != nil:
		return false, nil
	case bound.Err() != nil:
		return true, nil // by the lease
	}
	return false, err
}

// check refuses options that would take the lock from the lease.
func check(options manager.Options) error {
	switch {
	case options.LeaderElection, options.LeaderElectionResourceLockInterface != nil:
		return errors.New("the options enable the manager's own leader election: leave out LeaderElection and its lock")
	case options.GracefulShutdownTimeout != nil && *options.GracefulShutdownTimeout >= 0:
		return fmt.Errorf("GracefulShutdownTimeout is %v: leave it out; the manager must wait for all its runnables before the lock is released", *options.GracefulShutdownTimeout)
	}
	return nil
}

// build makes a manager whose runnables have contexts with the values of ctx, or of their
// own BaseContext, that end with the lease.
func build(ctx context.Context, config *rest.Config, options manager.Options, bind func(context.Context) (context.Context, context.CancelFunc)) (manager.Manager, context.CancelFunc, error) {
	forever, reuse := time.Duration(-1), true
	options.GracefulShutdownTimeout = &forever
	options.Controller.SkipNameValidation = &reuse
	// The contexts of runnables come from here, and not from that of Start: when that ends,
	// the manager cancels one group of them when the one before has returned.
	base := context.WithoutCancel(ctx)
	if options.BaseContext != nil {
		base = options.BaseContext()
	}
	base, stop := bind(base)
	options.BaseContext = func() context.Context { return base }
	mgr, err := manager.New(config, options)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return mgr, stop, nil
}
