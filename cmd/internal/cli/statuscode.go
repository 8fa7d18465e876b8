// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
)

// stateInDoubt is that of a lock whose holder has shown no sign of life for as long as
// --max-age allows, and may be alive.
const stateInDoubt = "in doubt"

// statusCodes are the exit statuses of --exit-code, by the state.
var statusCodes = map[string]int{
	stateHeld: 0, stateAsked: 0,
	stateFree: 1, stateNever: 2, stateReserved: 3, stateInDoubt: 4, stateExpired: 5, stateUnreadable: 6,
}

// checkOne checks what is for one lock alone.
func (f *statusCmd) checkOne() error {
	for _, flag := range []struct {
		name  string
		given bool
	}{{"--exit-code", f.ExitCode}, {"--max-age", f.MaxAge != nil}} {
		switch {
		case flag.given && f.Watch:
			return usage("%s is for one answer, and --watch goes on", flag.name)
		case flag.given && len(f.Names) != 1:
			return usage("%s is for one lock: name it, and no other", flag.name)
		}
	}
	if f.MaxAge != nil && *f.MaxAge <= 0 {
		return usage("--max-age %v must be positive: it is how long a sign of life is waited for", *f.MaxAge)
	}
	return nil
}

// exit ends with the status of a lock's state.
func (f *statusCmd) exit(r row) error {
	if r.err != nil {
		return failed(statusCodes[r.state], fmt.Errorf("%s", flags.OneLine(r.err)))
	}
	if code := statusCodes[r.state]; code != 0 {
		return ended(code)
	}
	return nil
}

// age looks at a lock that is held until its holder shows a sign of life, for most at the
// longest. No clock of another machine is compared: how old a heartbeat was when the first
// look found it, nobody can know here.
func age(ctx context.Context, client *tenure.Client, rows []row, most, refresh time.Duration) ([]row, error) {
	if len(rows) != 1 || rows[0].state != stateHeld && rows[0].state != stateAsked {
		return rows, nil // there is no life to be shown
	}
	pause := min(refresh, max(most/10, time.Millisecond))
	token := rows[0].Token
	for begun := time.Now(); ; { // the first look has ended before
		if err := sleep(ctx, min(pause, most-time.Since(begun))); err != nil {
			return nil, err
		}
		passed := time.Since(begun)
		next, err := look(ctx, client, []string{rows[0].Name})
		if err != nil {
			return nil, err
		}
		if len(next) != 1 || next[0].Token != token || next[0].state != stateHeld && next[0].state != stateAsked {
			return next, nil
		}
		// It is 0 in the look that finds a sign of life, and else at least what has passed, by
		// another clock.
		if next[0].Unchanged < passed/2 {
			return next, nil
		}
		if passed >= most {
			next[0].state = stateInDoubt
			return next, nil
		}
	}
}
