// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/lines"
	"github.com/tenurelock/tenure/once"
)

// What ends between the mark of a slot and the start of its command is no success: the slot
// counts as begun, and nothing was run.
func TestEndBeforeTheCommand(t *testing.T) {
	for want, cause := range map[int]error{128 + int(syscall.SIGTERM): signaled{syscall.SIGTERM}, statusLost: tenure.ErrExpired} {
		var b bytes.Buffer
		c := &console{screen: -1, stderr: lines.New(&b)}
		w := (&command{console: c, signals: &signals{}, lock: "job:once"}).newRuns()
		if sig := (signaled{}); errors.As(cause, &sig) {
			w.came = sig.sig
		}
		w.cancel(cause)
		err := w.work(w.ctx, nil)
		w.stop()
		result := once.Result{Run: once.Run{Slot: 7, Token: 1, State: once.StateFailed, Error: err.Error()}, Recorded: true}
		o := &onceCmd{job: job{Name: "job"}}
		if got := flags.StatusOf(o.ran(w, occurrence{slot: 7}, result, err)); got != want {
			t.Errorf("%v: status %d, want %d", cause, got, want)
		}
		c.stderr.Close(time.Minute)
	}
}
