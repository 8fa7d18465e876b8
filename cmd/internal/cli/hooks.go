// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
)

// hookFlags are what is run beside the command of a leader.
type hookFlags struct {
	OnElected *string `empty:"give it a command for the shell"`
	OnLost    *string `empty:"give it a command for the shell"`

	begun bool // something was started in this tenure
}

// linger is the command of a leader that has none: it ends when it is told to.
var linger = []string{
	"sh", "-c",
	`trap 'kill $! 2>/dev/null; exit 0' TERM INT QUIT; trap '' HUP USR1 USR2; while :; do sleep 3600 & wait $!; done`,
}

// lead runs the command of a leader, after what is to be run at its election: under the
// lease, and guarded as the command is. If that fails, the command is not run.
func (f *hookFlags) lead(t *command, lease *tenure.Lease) (outcome, error) {
	f.begun = false
	if f.OnElected != nil {
		command := t.program
		t.program.Args, t.what = shell(*f.OnElected), "the command of --on-elected, before which COMMAND does not begin,"
		o, err := t.hold(lease.Context(), lease)
		t.program, t.what = command, ""
		f.begun = err == nil
		if err != nil || o.status() != 0 || o.asked || o.steppedDown != nil {
			return o, err
		}
	}
	o, err := t.hold(lease.Context(), lease)
	f.begun = f.begun || err == nil
	return o, err
}

func shell(text string) []string { return []string{"sh", "-c", text} }

// lost runs what is to be run after the end of a tenure, for a lease at most. It holds
// nothing: another leader may be at work.
func (f *hookFlags) lost(t *command, lease *tenure.Lease) {
	if f.OnLost == nil || !f.begun {
		return
	}
	patience := t.client.Options().LeaseDuration
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	args := shell(*f.OnLost)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = t.environment(lease)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return killGroup(cmd.Process) }
	cmd.WaitDelay = patience / 10
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		t.console.warn("the command of --on-lost did not end within %v: it was killed", patience)
	case errors.Is(err, exec.ErrWaitDelay): // something that it has started keeps the output open
	case err != nil:
		t.console.warn("the command of --on-lost failed: %s", flags.OneLine(err))
	}
}
