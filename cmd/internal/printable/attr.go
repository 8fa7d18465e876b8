// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"log/slog"
	"strings"
)

// Attr makes an attribute of a log record fit for a terminal: it is what
// slog.HandlerOptions.ReplaceAttr wants. The handler of tint makes the escape code of a
// terminal of what is spelled as one; spelled in another way, nothing is made of it.
func Attr(_ []string, a slog.Attr) slog.Attr {
	text := ""
	switch v := a.Value.Any().(type) {
	case string:
		text = v
	case error:
		text = v.Error()
	default:
		return a
	}
	return slog.String(a.Key, strings.ReplaceAll(Text(text), `\x1b`, `\x1B`))
}
