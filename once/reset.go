// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tenurelock/tenure"
)

const opReset = "reset the ledger of"

// Reset opens one slot again: it may be begun once more, whatever its outcome was. It
// is for an operator who wants the work of a slot done again. [math.MinInt64] opens all
// slots in a new ledger. The reason must not be empty.
//
// The reset is in the ledger, as a run of StateReset with the reason and the
// operator's owner name, and in the history of the lock. It writes a new ledger if
// the lock's data are not a ledger; all slots are open in it. The error is a
// [*RunningError] if a holder is at work.
func Reset(ctx context.Context, client *tenure.Client, name string, slot int64, reason string) error {
	if err := checkReset(client, name, reason); err != nil {
		return wrap(opReset, name, err)
	}
	lease, err := reserve(ctx, client, LockName(name))
	if err != nil {
		return wrap(opReset, name, err)
	}
	data, err := dataOf(ctx, client, lease)
	l, bad := parseOnce(data, lease.Token())
	if err != nil {
		_ = lease.Release(context.WithoutCancel(ctx))
		return wrap(opReset, name, err)
	}
	text := textOf(errors.New(reason))
	if bad != nil {
		l = ledger{}
	}
	if slot == math.MinInt64 {
		l.Schedule = nil
	}
	l = l.reset(entry{
		Slot: slot, Token: lease.Token(), Owner: lease.Owner(), Begun: time.Now().UnixMilli(),
		State: StateReset, Error: text,
	})
	return finishReset(ctx, lease, name, l.bytes(), fmt.Sprintf("reset to slot %d: %s", slot, text))
}

func checkReset(client *tenure.Client, name, reason string) error {
	if err := checkCall(client, name, true); err != nil {
		return err
	}
	if reason == "" {
		return errors.New("the reason is empty: give one for the readers of the ledger")
	}
	return nil
}

// reserve takes a lock without a living holder, with its history.
func reserve(ctx context.Context, client *tenure.Client, lock string) (*tenure.Lease, error) {
	for range maxTries {
		lease, err := client.Acquire(ctx, lock, &tenure.AcquireOptions{UnlessAlive: true, History: true})
		held := &tenure.HeldError{}
		if !errors.As(err, &held) {
			return lease, err
		}
		st, err := client.Status(ctx, lock)
		if err != nil {
			return nil, err
		}
		if running := runningOf(st, nil, held); running != nil {
			return nil, running
		}
	}
	return nil, tenure.ErrHeld
}

// finishReset writes a ledger, and how that came about into the history.
func finishReset(ctx context.Context, lease *tenure.Lease, name string, data []byte, reason string) error {
	err := lease.SetData(ctx, data)
	if err == nil {
		err = lease.StepDown(&tenure.StepDownOptions{Reason: reason})
	}
	if left := lease.Release(context.WithoutCancel(ctx)); err == nil && !errors.Is(left, tenure.ErrUncertain) {
		err = left
	}
	if err != nil {
		return wrap(opReset, name, err)
	}
	return nil
}
