// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tenurelock/tenure/fence"
)

func nothing(context.Context) error { return nil }

func TestGateComparesTokens(t *testing.T) {
	var told []*fence.StaleError
	gate := fence.NewGate(&fence.GateOptions{OnRefusal: func(e *fence.StaleError) { told = append(told, e) }})
	ctx := t.Context()
	if _, ok := gate.Highest("ledger"); ok {
		t.Error("a new gate knows a token")
	}
	for _, token := range []uint64{4, 4, 7, 7} { // equal ones pass: a holder writes often
		if err := gate.Do(ctx, "ledger", token, nothing); err != nil {
			t.Errorf("token %d: %v", token, err)
		}
	}
	ran := false
	err := gate.Do(ctx, "ledger", 6, func(context.Context) error { ran = true; return nil })
	var stale *fence.StaleError
	if !errors.As(err, &stale) || *stale != (fence.StaleError{Resource: "ledger", Token: 6, Highest: 7}) || ran {
		t.Errorf("got %v, ran: %v", err, ran)
	}
	if !errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrNoToken) {
		t.Errorf("%v matches the wrong sentinel", err)
	}
	if want := `fence "ledger": token 6 is stale, token 7 has passed: another holder has begun, stop`; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if err := gate.Check("ledger", 6); !errors.Is(err, fence.ErrStale) {
		t.Errorf("check of a stale token: %v", err)
	}
	if err := gate.Check("ledger", 9); err != nil {
		t.Errorf("check of a new token: %v", err)
	}
	if token, ok := gate.Highest("ledger"); token != 7 || !ok {
		t.Errorf("highest is %d, %v: a check has raised it, or a refused token lowered it", token, ok)
	}
	if err := gate.Admit(ctx, "other", 1); err != nil {
		t.Errorf("another resource: %v", err)
	}
	if gate.Refusals() != 2 || len(told) != 2 || told[0].Token != 6 {
		t.Errorf("%d refusals counted, reported %v", gate.Refusals(), told)
	}
}

func TestGateNeedsNames(t *testing.T) {
	gate := fence.NewGate(nil)
	if err := gate.Admit(t.Context(), "ledger", 0); !errors.Is(err, fence.ErrNoToken) || !strings.Contains(err.Error(), "Lease.Token()") {
		t.Errorf("token 0: %v", err)
	}
	if err := gate.Check("ledger", 0); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("check of token 0: %v", err)
	}
	for _, name := range []string{"", strings.Repeat("x", 1025)} {
		if err := gate.Admit(t.Context(), name, 1); err == nil || len(err.Error()) > 400 {
			t.Errorf("resource of %d bytes: %v", len(name), err)
		}
	}
	if gate.Len() != 0 || gate.Refusals() != 0 {
		t.Errorf("%d resources, %d refusals", gate.Len(), gate.Refusals())
	}
}

// A token counts from before its write begins: a write that failed may have
// left something behind.
func TestGateKeepsTheTokenOfAFailedWrite(t *testing.T) {
	gate := fence.NewGate(nil)
	broken := errors.New("disk full")
	if err := gate.Do(t.Context(), "ledger", 5, func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = gate.Do(t.Context(), "ledger", 6, func(context.Context) error { panic("slip") })
	}()
	if err := gate.Admit(t.Context(), "ledger", 5); !errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
	if err := gate.Admit(t.Context(), "ledger", 6); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

// Every call waits until the write before has ended, Admit too: otherwise data
// that are read after it could still change.
func TestGateHoldsTheResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := fence.NewGate(nil)
		inside, finish := make(chan struct{}), make(chan struct{})
		go func() {
			_ = gate.Do(t.Context(), "ledger", 1, func(context.Context) error {
				close(inside)
				<-finish
				return nil
			})
		}()
		<-inside
		admitted := false
		go func() {
			if err := gate.Admit(t.Context(), "ledger", 2); err != nil {
				t.Error(err)
			}
			admitted = true
		}()
		synctest.Wait()
		if admitted {
			t.Error("token 2 was admitted while a write of token 1 was under way")
		}
		if err := gate.Admit(t.Context(), "other", 1); err != nil {
			t.Errorf("another resource has to wait: %v", err)
		}
		if token, _ := gate.Highest("ledger"); token != 1 {
			t.Errorf("highest is %d", token)
		}
		close(finish)
		synctest.Wait()
		if !admitted {
			t.Error("token 2 waits for ever")
		}
	})
}

func TestGateWaitsForAsLongAsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := fence.NewGate(nil)
		_ = gate.Do(t.Context(), "ledger", 1, func(context.Context) error {
			ctx, cancel := context.WithCancelCause(t.Context())
			gone := errors.New("client gone")
			waited := make(chan error)
			go func() { waited <- gate.Do(ctx, "ledger", 9, func(context.Context) error { panic("was run") }) }()
			synctest.Wait()
			cancel(gone)
			if err := <-waited; !errors.Is(err, gone) {
				t.Error(err)
			}
			// Nor is it run when the resource is free, but the caller has given up.
			for range 20 {
				if err := gate.Do(ctx, "free", 9, func(context.Context) error { panic("was run") }); !errors.Is(err, gone) {
					t.Error(err)
				}
			}
			return nil
		})
		if token, _ := gate.Highest("ledger"); token != 1 || gate.Len() != 1 {
			t.Errorf("who was called off left a token behind: %d, of %d resources", token, gate.Len())
		}
	})
}

func TestGateForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := fence.NewGate(nil)
		gate.Forget("ledger") // unknown: nothing happens
		_ = gate.Admit(t.Context(), "ledger", 900)
		gate.Forget("ledger")
		if gate.Len() != 0 {
			t.Error("the resource takes up memory still")
		}
		if err := gate.Admit(t.Context(), "ledger", 1); err != nil {
			t.Error(err)
		}

		// Forget of a resource that one call is writing to, and another waits
		// for, admits no third call beside them.
		inside, finish := 0, make(chan struct{})
		for range 3 {
			go func() {
				_ = gate.Do(t.Context(), "ledger", 2, func(context.Context) error {
					inside++
					<-finish
					inside--
					return nil
				})
			}()
			synctest.Wait()
			gate.Forget("ledger")
		}
		for range 3 {
			if inside != 1 {
				t.Errorf("%d are inside", inside)
			}
			finish <- struct{}{}
			synctest.Wait()
		}
	})
}

func TestGateRefusesMoreThanItMayKnow(t *testing.T) {
	gate := fence.NewGate(&fence.GateOptions{MaxResources: 2})
	for _, name := range []string{"a", "b", "a"} {
		if err := gate.Admit(t.Context(), name, 3); err != nil {
			t.Error(err)
		}
	}
	if err := gate.Admit(t.Context(), "c", 3); !errors.Is(err, fence.ErrFull) {
		t.Error(err)
	}
	if err := gate.Admit(t.Context(), "a", 2); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a full gate has forgotten a token: %v", err)
	}
	gate.Forget("b")
	if err := gate.Admit(t.Context(), "c", 3); err != nil {
		t.Error(err)
	}
	unbounded := fence.NewGate(&fence.GateOptions{MaxResources: -1})
	for i := range 5 {
		if err := unbounded.Admit(t.Context(), fmt.Sprint(i), 1); err != nil {
			t.Error(err)
		}
	}
}

// With the race detector: writes under the gate need no other lock.
func TestGateIsALockOfItsResource(t *testing.T) {
	gate := fence.NewGate(nil)
	landed := map[string]*[]uint64{"a": {}, "b": {}}
	var wg sync.WaitGroup
	for worker := range 8 {
		random := rand.New(rand.NewPCG(1, uint64(worker)))
		wg.Go(func() {
			for range 500 {
				name, token := string(rune('a'+random.IntN(2))), 1+random.Uint64N(50)
				err := gate.Do(t.Context(), name, token, func(context.Context) error {
					*landed[name] = append(*landed[name], token)
					return nil
				})
				if err != nil && !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for name, tokens := range landed {
		if n := stale(*tokens); n > 0 || len(*tokens) == 0 {
			t.Errorf("%s: %d of %d writes were stale", name, n, len(*tokens))
		}
	}
	if gate.Refusals() == 0 {
		t.Error("nothing was refused")
	}
}
