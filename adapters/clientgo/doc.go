// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenureclientgo has a lock for the leader election of Kubernetes' client-go, and
// of packages built on it. A Tenure lease holds the lock, on any of Tenure's stores.
//
//	lock := tenureclientgo.NewLock(client, "operator", nil)
//	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
//		Lock: lock, ReleaseOnCancel: true, ...
//		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: lock.Leading(work), ...},
//	})
//	...
//	bound, stop := lock.Bind(ctx)
//	elector.Run(bound)
//	stop()
//
// The elector decides when it tries, and the lease whether it may lead: [Lock.Update]
// succeeds while the lease is good by the clock of this process, and not otherwise. So the
// elector's own clocks and durations can make it late, and never wrong.
//
// # What client-go cannot give
//
// An elector cannot stop work in time. It counts its lease from the reply, and notices a loss
// when its renew deadline has passed, 10 s by default; it does not wait for
// OnStartedLeading to return before it releases. [Lock.Bind] ends the elector at the
// deadline of the lease, and with it the context of the work. [Lock.Leading] keeps the lock
// held until the work has returned. Use both. Work that ignores its context goes on beside
// the next leader; end the process in OnStoppedLeading then.
//
// An elector runs once: make another one to lead again. The lock can be used again.
//
// It has no coordinated leader election, no events in the API server, and no locks in
// Endpoints or ConfigMaps.
package tenureclientgo
