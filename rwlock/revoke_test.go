// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/rwlock"
)

// A reader whose slot was revoked may be at work until it hears of it, or its lease is over.
// Until then the slot is reserved, for nobody: neither held nor free. A writer waits for it,
// whether the slot was revoked before the writer came or while it waits.
func TestRevokedReaderIsWaitedFor(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprintf("the writer waits already %v", waits), func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				r, w, operator := s.process("r"), s.process("w"), s.process("operator")
				l := r.read(t.Context())
				slot, _ := l.Slot()
				r.client.Partition()
				written := make(chan *rwlock.Lease)
				write := func() { written <- w.write(t.Context()) } // fails the test if the reader may read still
				if waits {
					go write()
					time.Sleep(refresh)
				}
				ctx, stop := context.WithTimeout(t.Context(), refresh)
				defer stop()
				if err := operator.client.Revoke(ctx, rwlock.SlotName(name, slot), "it does not answer"); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if st, err := operator.client.Status(t.Context(), rwlock.SlotName(name, slot)); st.State != tenure.StateReserved || l.Check() != nil {
					t.Fatalf("the slot is %q, %v; the reader: %v", st.State, err, l.Check())
				}
				if !waits {
					busy := w.busy(w.TryAcquireWrite(t.Context(), nil))
					if len(busy.Readers) != 1 || busy.FreeIn == 0 {
						t.Errorf("busy with %+v", busy)
					}
					go write()
				}
				w.release(<-written)
				r.leave(l)
				_ = l.Release(t.Context()) // it was lost
			})
		})
	}
}
