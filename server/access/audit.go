// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
)

// Act is what an operator did, or tried to do.
type Act struct {
	// Principal is whose act it is, and Via the way it came: "api", "dashboard", or "file"
	// for a change of the file of principals.
	Principal, Via string
	// Action is what was done, such as "step-down" or "revoke".
	Action string
	// Lock is the name of the lock. To is for whom, in a hand-over, and ToLabel for whose
	// label.
	Lock, To, ToLabel string
	// Reason is what the operator has given as the reason.
	Reason string
	// Outcome is "done", or the kind of the problem, such as "forbidden" or "unanswered".
	Outcome string
	// Detail says more of an outcome, such as the text of an error.
	Detail string
}

// Audit returns a function that writes a line for each act to the logger, at the level
// Info. Text that an operator or a store has given is written as [Printable] has it, so that
// a line cannot look like two. The function may be called concurrently. With a nil logger it
// does nothing.
func Audit(logger *slog.Logger) func(context.Context, Act) {
	if logger == nil {
		return func(context.Context, Act) {}
	}
	return func(ctx context.Context, act Act) {
		var attrs []slog.Attr
		for _, of := range []struct{ name, text string }{
			{"principal", act.Principal},
			{"via", act.Via},
			{"action", act.Action},
			{"lock", act.Lock},
			{"to", act.To},
			{"to_label", act.ToLabel},
			{"reason", act.Reason},
			{"outcome", act.Outcome},
			{"detail", act.Detail},
		} {
			if of.text != "" {
				attrs = append(attrs, slog.String(of.name, Printable(of.text)))
			}
		}
		logger.LogAttrs(ctx, slog.LevelInfo, "tenure: audit", attrs...)
	}
}

// maxPrinted is how many bytes of a text a log line has.
const maxPrinted = 1100

// Printable returns the text with each character escaped, as Go does it, that cannot be
// seen or that steers a terminal: control characters, marks that turn the direction of
// writing, bytes that are no UTF-8. Text that is longer than any name or reason may be is
// cut.
func Printable(text string) string {
	if len(text) > maxPrinted {
		text = text[:maxPrinted] + "..."
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
