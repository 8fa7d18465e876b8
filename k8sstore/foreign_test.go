// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// contender is an elector of client-go.
type contender struct {
	leads, over chan struct{} // closed when it leads, and when it has stopped
	stop        func()        // ends it, and waits
}

// elect starts an elector, which ends with the test.
func elect(t *testing.T, config *rest.Config, namespace, name, identity string, lease time.Duration, release bool) *contender {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := coordination.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &contender{leads: make(chan struct{}), over: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: lease, RenewDeadline: lease * 2 / 3, RetryPeriod: 100 * time.Millisecond, ReleaseOnCancel: release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(c.leads) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		defer close(c.over)
		elector.Run(ctx)
	}()
	c.stop = func() {
		cancel()
		<-c.over
	}
	t.Cleanup(c.stop)
	return c
}

func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
	}
}

func newClientOf(t *testing.T, s driver.Store, owner string, lease time.Duration) *tenure.Client {
	t.Helper()
	client, err := tenure.New(s, &tenure.Options{Owner: owner, LeaseDuration: lease})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.WithoutCancel(t.Context())) }) // it may have been cut off
	return client
}

// TestBesideElector has an elector of client-go and Tenure contend for one Lease: each
// waits for the other, in life and after death, and tokens go on.
func TestBesideElector(t *testing.T) {
	const lease = 5 * time.Second
	file := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	config, namespace := mustConfig(t, file, "admin"), newNamespace(t, file)
	open := func() *Store { return mustOpen(t, config, namespace, &Options{SharedLease: true}) }
	store := open()
	client := newClientOf(t, store, "tenure-1", lease)
	ctx := t.Context()

	t.Log("an elector leads, and Tenure waits")
	first := elect(t, config, namespace, "controller", "elector-1", lease, false)
	await(t, first.leads, "the elector")
	if _, err := client.TryAcquire(ctx, "controller", nil); !errors.Is(err, tenure.ErrHeld) || !strings.Contains(fmt.Sprint(err), "elector-1") {
		t.Fatalf("TryAcquire: %v", err)
	}
	granted := make(chan *tenure.Lease, 1)
	go func() {
		l, err := client.Acquire(ctx, "controller", nil)
		if err != nil {
			t.Error(err)
		}
		granted <- l
	}()
	select {
	case <-granted:
		t.Fatal("Tenure has taken the Lease of an elector that lives")
	case <-time.After(lease * 3 / 2): // through many of its renewals
	}

	t.Log("it dies without a release, and Tenure takes over when its duration has passed")
	first.stop()
	renewed := mustLease(t, store, "controller").Spec.RenewTime.Time
	l := <-granted
	if l == nil {
		t.FailNow()
	}
	if early := time.Until(renewed.Add(lease)); early > 0 {
		t.Errorf("Tenure has taken over %v before the duration of the Lease had passed", early)
	}
	tokens := []uint64{l.Token()}
	if previous, ok := l.Previous(); !ok || previous.Owner != "elector-1" {
		t.Errorf("the tenure before: %+v, %t", previous, ok)
	}

	t.Log("Tenure leads, and an elector waits")
	second := elect(t, config, namespace, "controller", "elector-2", lease, true)
	select {
	case <-second.leads:
		t.Fatal("an elector has taken the Lease of a holder that lives")
	case <-time.After(lease * 3 / 2):
	}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}

	t.Log("Tenure dies, and the elector takes over when the lease has ended")
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, second.leads, "the second elector")
	if l.Check() == nil {
		t.Error("the elector leads beside Tenure")
	}

	t.Log("the elector releases, and Tenure takes over at once")
	store = open()
	client = newClientOf(t, store, "tenure-2", 15*time.Second)
	go func() {
		l, err := client.Acquire(ctx, "controller", nil)
		if err != nil {
			t.Error(err)
		}
		granted <- l
	}()
	second.stop()
	if l = <-granted; l == nil {
		t.FailNow()
	}
	tokens = append(tokens, l.Token())

	t.Log("Tenure releases, and an elector takes over at once")
	third := elect(t, config, namespace, "controller", "elector-3", 15*time.Second, true)
	if err := l.Release(ctx); err != nil {
		t.Fatal(err)
	}
	await(t, third.leads, "the third elector")
	third.stop()
	l, err := client.Acquire(ctx, "controller", nil)
	if err != nil {
		t.Fatal(err)
	}
	if tokens = append(tokens, l.Token()); tokens[0] >= tokens[1] || tokens[1] >= tokens[2] {
		t.Errorf("tokens %d do not rise", tokens)
	}
	t.Logf("tokens: %d", tokens)
	if n := mustLease(t, store, "controller").Spec.LeaseTransitions; n == nil || *n < 5 {
		t.Errorf("leaseTransitions: %v, want 5 changes of holder at least", n)
	}
}

// lease returns the spec that an elector writes.
func specBy(holder string, seconds int32, at time.Time) v1.LeaseSpec {
	micro := metav1.NewMicroTime(at)
	return v1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &micro, AcquireTime: &micro, LeaseTransitions: new(int32)}
}

// plantSpec has another client write a Lease as electors do: the rest of it stays.
func plantSpec(t *testing.T, s *Store, key string, spec v1.LeaseSpec, notes map[string]string) v1.Lease {
	t.Helper()
	o := v1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, Spec: spec}
	o.Name, o.Namespace, o.Annotations = s.object(key), s.namespace, notes
	var was, now v1.Lease
	err := s.calls.get(t.Context(), leases, s.namespace, o.Name, nil, &was)
	if err == nil {
		was.Spec = spec
		if was.Annotations == nil {
			was.Annotations = map[string]string{}
		}
		maps.Copy(was.Annotations, notes)
		err = s.calls.do(t.Context(), s.calls.request("PUT", leases, s.namespace, o.Name, nil).SetHeader("Content-Type", "application/json"), was, &now)
	} else {
		err = s.calls.create(t.Context(), leases, s.namespace, o, &now)
	}
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// TestForeignLeases: how the store reads Leases that no store has written.
func TestForeignLeases(t *testing.T) {
	s, other, _ := setUp(t, &Options{SharedLease: true})
	plain, err := New(mustConfig(t, enginetest.Shared(t, enginetest.Kubernetes, "kubernetes"), "admin"), s.namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	at := time.Now()
	for _, c := range []struct {
		name    string
		spec    v1.LeaseSpec
		notes   map[string]string
		refused string // what the error says; "" if it is understood
		state   driver.State
		lease   time.Duration
		token   uint64
	}{
		{name: "held", spec: specBy("elector", 15, at), state: driver.Held, lease: 15 * time.Second, token: 1},
		{name: "released", spec: specBy("", 1, at), state: driver.Released, lease: time.Second, token: 1},
		{name: "nothing-in-it", spec: v1.LeaseSpec{}, state: driver.Released, lease: time.Second, token: 1},
		{name: "no-duration", spec: v1.LeaseSpec{HolderIdentity: new("elector")}, refused: "no leaseDurationSeconds"},
		{name: "our-token", spec: specBy("elector", 15, at), notes: map[string]string{noteToken: "41", noteRecord: "{}"}, state: driver.Held, lease: 15 * time.Second, token: 42},
		{name: "no-token", spec: specBy("elector", 15, at), notes: map[string]string{noteRecord: "{}"}, refused: "it has no annotation " + noteToken},
		{name: "wrong-token", spec: specBy("elector", 15, at), notes: map[string]string{noteToken: "-1"}, refused: "not a whole number"},
		{name: "of-another-key", spec: specBy("elector", 15, at), notes: map[string]string{noteKey: "b"}, refused: `it is the Lease of "b"`},
		{name: "zero-in-the-name", spec: specBy("elect\x00or", 15, at), state: driver.Held, lease: 15 * time.Second, token: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := plantSpec(t, s, c.name, c.spec, c.notes)
			got, err := s.Get(t.Context(), c.name, driver.Strong)
			if c.refused != "" {
				if !errors.Is(err, driver.ErrUnreadable) || !strings.Contains(fmt.Sprint(err), c.refused) {
					t.Errorf("Get: %v, want %q", err, c.refused)
				}
				if _, _, err := s.Claim(t.Context(), held(c.name)); !errors.Is(err, driver.ErrUnreadable) || !errors.Is(err, driver.ErrNotApplied) {
					t.Errorf("Claim: %v", err)
				}
				return
			}
			if err != nil || got.State != c.state || got.Lease != c.lease || got.Token != c.token || got.Beat != "" || got.Version == "" {
				t.Fatalf("Get: %+v, %v", got, err)
			}
			if c.state == driver.Held && got.Owner != strings.ReplaceAll(*c.spec.HolderIdentity, "\x00", "\ufffd") {
				t.Errorf("owner %q", got.Owner)
			}
			// A sign of life, and only that, is another version.
			if c.state == driver.Held {
				again := plantSpec(t, s, c.name, c.spec, map[string]string{"note": "of others"})
				if same, err := s.Get(t.Context(), c.name, driver.Strong); err != nil || same.Sign() != got.Sign() || again.ResourceVersion == o.ResourceVersion {
					t.Errorf("a note of others changes the sign of life: %v, %v", same.Sign() != got.Sign(), err)
				}
				alive := c.spec
				alive.RenewTime = &metav1.MicroTime{Time: at.Add(time.Second)}
				plantSpec(t, s, c.name, alive, nil)
				if changed, err := s.Get(t.Context(), c.name, driver.Strong); err != nil || changed.Sign() == got.Sign() {
					t.Errorf("a renewal is no sign of life: %v", err)
				}
				plantSpec(t, s, c.name, c.spec, nil)
			}
			// Neither a takeover of a changed Lease takes it, nor a store that does not
			// share names.
			if err := s.Delete(t.Context(), got); !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) {
				t.Errorf("Delete: %v", err)
			}
			stale := got
			stale.Version = "another"
			taken := held(c.name)
			taken.Token = got.Token + 1
			conflict := (*driver.ConflictError)(nil)
			if _, err := s.Swap(t.Context(), stale, taken); !errors.As(err, &conflict) {
				t.Errorf("takeover of what has changed: %v", err)
			}
			var now driver.Record
			if c.state == driver.Released {
				now, _, err = s.Claim(t.Context(), taken)
			} else {
				if _, _, err := s.Claim(t.Context(), taken); !errors.As(err, &conflict) || conflict.Current.Owner != got.Owner {
					t.Errorf("Claim: %v", err)
				}
				now, err = s.Swap(t.Context(), got, taken)
			}
			if err != nil || now.Token != c.token+1 {
				t.Errorf("it is taken: %+v, %v", now, err)
			}
			if seen, err := other.Get(t.Context(), c.name, driver.Strong); err != nil || seen.Version != taken.Version || seen.Token != c.token+1 {
				t.Errorf("others see %+v, %v", seen, err)
			}
		})
	}
	// They are listed, together with taken ones.
	page, err := s.List(t.Context(), "", "")
	if err != nil || len(page.Records)+len(page.Unreadable) != s.page || page.Cursor == "" {
		t.Errorf("List: %d records, %d that are not read, cursor %q, %v", len(page.Records), len(page.Unreadable), page.Cursor, err)
	}
	t.Run("not shared", func(t *testing.T) {
		rec := mustClaim(t, plain, "lock")
		for _, holder := range []string{"elector", ""} {
			plantSpec(t, plain, "lock", specBy(holder, 15, at), nil)
			got, err := plain.Get(t.Context(), "lock", driver.Strong)
			if err != nil || got.Owner != holder || got.Token != rec.Token+1 {
				t.Fatalf("Get: %+v, %v", got, err)
			}
			taken := held("lock")
			taken.Token = got.Token + 1
			if _, err := plain.Swap(t.Context(), got, taken); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "SharedLease") {
				t.Errorf("takeover: %v", err)
			}
			if _, _, err := plain.Claim(t.Context(), taken); holder == "" && !errors.Is(err, errors.ErrUnsupported) || err == nil {
				t.Errorf("claim: %v", err)
			}
		}
	})
}

// TestForeignHeartbeat: neither a heartbeat nor a release of ours reaches a Lease that
// another client has taken meanwhile.
func TestForeignHeartbeat(t *testing.T) {
	s, other, _ := setUp(t, &Options{SharedLease: true})
	rec := mustClaim(t, s, "lock")
	rec, err := s.Swap(t.Context(), rec, func() driver.Record {
		next := beat(rec)
		next.Data = []byte("checkpoint")
		return next
	}())
	if err != nil {
		t.Fatal(err)
	}
	hints, _ := enginetest.Watched(t, other, "lock")
	plantSpec(t, other, "lock", specBy("elector", 15, time.Now()), nil)
	for name, next := range map[string]driver.Record{"heartbeat": beat(rec), "release": released(rec)} {
		conflict := (*driver.ConflictError)(nil)
		if _, err := s.Swap(t.Context(), rec, next); !errors.As(err, &conflict) || conflict.Current.Owner != "elector" || conflict.Current.Token != rec.Token+1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	enginetest.WantHint(t, hints, "a change of client") // in vain, which is allowed
	for len(hints) > 0 {
		<-hints
	}
	for i := range 5 { // its heartbeats call no hint
		plantSpec(t, other, "lock", specBy("elector", 15, time.Now().Add(time.Duration(i)*time.Second)), nil)
	}
	if n := len(hints); n > 0 {
		t.Errorf("%d hints of heartbeats", n)
	}
	plantSpec(t, other, "lock", specBy("", 1, time.Now()), nil)
	enginetest.WantHint(t, hints, "the release of another client")
	next := held("lock")
	now, prev, err := s.Claim(t.Context(), next)
	if err != nil || now.Token != rec.Token+2 || string(now.Data) != "checkpoint" || prev.State != driver.Released {
		t.Errorf("claim: %+v, %v", now, err)
	}
}

// TestSharedRefusals: an elector would take a lock under a session at once.
func TestSharedRefusals(t *testing.T) {
	s, _, w := setUp(t, &Options{SharedLease: true})
	under := held("lock")
	under.Session = "s"
	session := held(driver.SessionKey("s"))
	session.State = driver.Alive
	for name, rec := range map[string]driver.Record{"lock under a session": under, "session": session} {
		if _, _, err := s.Claim(t.Context(), rec); !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(fmt.Sprint(err), "electors") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if sent := w.requests(); len(sent) > 0 {
		t.Errorf("sent: %q", sent)
	}
	// Electors read the remaining time in whole seconds, rounded up.
	for lease, want := range map[time.Duration]int32{time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, 15 * time.Second: 15} {
		rec := held(fmt.Sprint("lease-", int64(lease)))
		rec.Lease = lease
		now, _, err := s.Claim(t.Context(), rec)
		if err != nil {
			t.Fatal(err)
		}
		if spec := mustLease(t, s, rec.Key).Spec; *spec.LeaseDurationSeconds != want || *spec.HolderIdentity != "o" {
			t.Errorf("lease of %v: %d s", lease, *spec.LeaseDurationSeconds)
		}
		next := now
		next.Version, next.State, next.Owner = "reserved", driver.Reserved, ""
		if _, err = s.Swap(t.Context(), now, next); err != nil {
			t.Fatal(err)
		}
		if spec := mustLease(t, s, rec.Key).Spec; *spec.LeaseDurationSeconds != want || *spec.HolderIdentity == "" {
			t.Errorf("a reservation for %v looks free to electors", lease)
		}
	}
}

// TestRaiseOverElectors: tokens are raised over the Lease of an elector, once it has not
// renewed it for its own duration; but not over a Lease under whose name Tenure has
// never granted a token.
func TestRaiseOverElectors(t *testing.T) {
	s, other, _ := setUp(t, &Options{SharedLease: true})
	ops := newClientOf(t, s, "ops", time.Second)
	for _, name := range []string{"lock", "free", "own"} {
		rec := mustClaim(t, other, name)
		if _, err := other.Swap(t.Context(), rec, released(rec)); err != nil {
			t.Fatal(err)
		}
	}
	// Electors have written the following ones since.
	plantSpec(t, other, "lock", specBy("elector", 2, time.Now()), nil)
	plantSpec(t, other, "free", specBy("", 1, time.Now()), nil)
	plantSpec(t, other, "never", specBy("controller", 3600, time.Now()), nil)

	begun := time.Now()
	n, err := admin.RaiseTokens(t.Context(), ops, "", 1000, nil)
	if err != nil || n != (admin.RaisedTokens{Locks: 3, Foreign: 1}) || time.Since(begun) < 2*time.Second {
		t.Errorf("%+v, %v, after %v", n, err, time.Since(begun))
	}
	for name, want := range map[string]uint64{"lock": 1002, "free": 1002, "own": 1001} {
		rec, err := other.Get(t.Context(), name, driver.Strong)
		if err != nil || rec.Token != want || rec.State != driver.Released {
			t.Errorf("%q: %+v, %v", name, rec, err)
		}
		if spec := mustLease(t, s, name).Spec; *spec.HolderIdentity != "" {
			t.Errorf("electors see %q with the holder %q", name, *spec.HolderIdentity)
		}
	}
	if spec := mustLease(t, s, "never").Spec; *spec.HolderIdentity != "controller" {
		t.Errorf("the Lease of another program was taken: %+v", spec)
	}

	// Without shared names, a record of Tenure that an elector has overwritten is left
	// alone, and named.
	plain, err := New(mustConfig(t, enginetest.Shared(t, enginetest.Kubernetes, "kubernetes"), "admin"), s.namespace, &Options{Prefix: prefixOf(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	rec := mustClaim(t, plain, "lock")
	if _, err := plain.Swap(t.Context(), rec, released(rec)); err != nil {
		t.Fatal(err)
	}
	plantSpec(t, plain, "lock", specBy("elector", 1, time.Now()), nil)
	n, err = admin.RaiseTokens(t.Context(), newClientOf(t, plain, "ops", time.Second), "", 1000, nil)
	if !errors.Is(err, errors.ErrUnsupported) || n != (admin.RaisedTokens{Unreadable: 1}) || !strings.Contains(err.Error(), "another client has written Lease") {
		t.Errorf("%+v, %v", n, err)
	}
}
