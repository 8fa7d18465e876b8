// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/tenurelock/tenure/cmd/internal/printable"
)

// logFlags say how much is logged, and how.
type logFlags struct {
	Log     string `default:"text"`
	Quiet   bool   `short:"q" xor:"loudness"`
	Verbose bool   `short:"v" xor:"loudness"`
}

// logger returns what writes a line for each record to the writer, which must not block.
func (f *logFlags) logger(to io.Writer, terminal bool) (*slog.Logger, error) {
	level := slog.LevelInfo
	switch {
	case f.Quiet:
		level = slog.LevelWarn
	case f.Verbose:
		level = slog.LevelDebug
	}
	switch f.Log {
	case "json":
		return slog.New(slog.NewJSONHandler(jsonWriter{to}, &slog.HandlerOptions{Level: level})), nil
	case "text":
		if !terminal {
			return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: level, ReplaceAttr: printable.Attr})), nil
		}
		return slog.New(tint.NewTextHandler(to, &tint.Options{
			Level: level, TimeFormat: "15:04:05.000", ReplaceAttr: printable.Attr, NoColor: os.Getenv("NO_COLOR") != "",
		})), nil
	}
	return nil, fmt.Errorf("--log %.20q: want text or json", f.Log)
}

// jsonWriter escapes what a terminal would obey.
type jsonWriter struct{ to io.Writer }

func (w jsonWriter) Write(p []byte) (int, error) {
	if _, err := w.to.Write(printable.JSON(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// isTerminal says that people read the file on a terminal that obeys escapes.
func isTerminal(f *os.File) bool {
	return term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}
