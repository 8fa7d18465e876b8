// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"bytes"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stuck is a writer that nobody reads from.
type stuck struct{ begun, end chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	<-s.end
	return len(p), nil
}

func TestLinesNeverBlock(t *testing.T) {
	s := stuck{make(chan struct{}, 1), make(chan struct{})}
	defer close(s.end)
	l := New(s)
	for range 10 * Buffer { // would hang
		if _, err := l.Write([]byte("x\n")); err != nil {
			t.Fatal(err)
		}
	}
	<-s.begun
	l.Close(time.Millisecond) // would hang, too
	if _, err := l.Write([]byte("late\n")); err == nil {
		t.Error("a write after the end was taken")
	}
}

// Who is about to be stopped waits until what was said is written, but not for a
// reader that does not read.
func TestLinesFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b slowWriter
		l := New(&b)
		defer l.Close(time.Hour)
		for range 3 {
			_, _ = l.Write([]byte("one\n"))
		}
		begun := time.Now()
		if l.Flush(time.Second); time.Since(begun) != time.Second || b.written() != 0 {
			t.Errorf("%v later %d lines were written", time.Since(begun), b.written())
		}
		if l.Flush(time.Hour); b.written() != 3 {
			t.Errorf("%d lines were written", b.written())
		}
	})
}

// slowWriter takes a minute for a line.
type slowWriter struct{ lines atomic.Int64 }

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(time.Minute)
	w.lines.Add(1)
	return len(p), nil
}

func (w *slowWriter) written() int64 { return w.lines.Load() }

func TestLinesAreWrittenAtTheEnd(t *testing.T) {
	var b bytes.Buffer
	l := New(&b)
	text := []byte("one\n")
	for range 3 {
		if _, err := l.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	copy(text, "two\n") // the writer must have copied it
	l.Close(time.Minute)
	if want := "one\none\none\n"; b.String() != want {
		t.Errorf("written: %q, want %q", b.String(), want)
	}
}
