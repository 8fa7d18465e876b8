// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// lineBuffer is how many lines may wait for a reader of standard error that
// does not read. Further ones are dropped: a stalled terminal or a full pipe
// must not hold up a heartbeat, or a child that has to be ended.
const lineBuffer = 1024

// line is what waits to be written, or a mark that is closed when all before it
// was.
type line struct {
	text []byte
	mark chan struct{}
}

// lines is a writer that never blocks.
type lines struct {
	to    io.Writer
	queue chan line
	done  chan struct{}

	mu     sync.Mutex
	closed bool
}

func newLines(to io.Writer) *lines {
	l := &lines{to: to, queue: make(chan line, lineBuffer), done: make(chan struct{})}
	go l.run()
	return l
}

func (l *lines) run() {
	defer close(l.done)
	for p := range l.queue {
		if p.mark != nil {
			close(p.mark)
			continue
		}
		_, _ = l.to.Write(p.text) // whom could it be told?
	}
}

// Write takes p, and drops it if too much waits already.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, io.ErrClosedPipe
	}
	select {
	case l.queue <- line{text: bytes.Clone(p)}:
	default:
	}
	return len(p), nil
}

// flush waits until what was written before is, for as long as patience lasts.
func (l *lines) flush(patience time.Duration) {
	mark := make(chan struct{})
	l.mu.Lock()
	queued := false
	if !l.closed {
		select {
		case l.queue <- line{mark: mark}:
			queued = true
		default: // more waits than anybody reads
		}
	}
	l.mu.Unlock()
	if !queued {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-mark:
	case <-timer.C:
	}
}

// close writes what waits, for as long as patience lasts.
func (l *lines) close(patience time.Duration) {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
	}
}
