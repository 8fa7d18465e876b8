// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"log/slog"
)

// hiddenNotify replaces the address for notifications where a record is shown.
const hiddenNotify = "(hidden)"

// plain is a record that fmt shows field by field.
type plain Record

// Format shows the record as fmt shows any struct, without its address for notifications, which
// contains a secret that must not end in a log.
func (r Record) Format(s fmt.State, verb rune) {
	if r.Notify != "" {
		r.Notify = hiddenNotify
	}
	fmt.Fprintf(s, fmt.FormatString(s, verb), plain(r))
}

// LogValue is [Record.Format] for package slog.
func (r Record) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf("%+v", r)) }
