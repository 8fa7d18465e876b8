// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package lines writes lines to a reader that may stop reading, without ever waiting for
// it.
package lines

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// Buffer is how many lines may wait for a reader that does not read. Further ones are
// dropped: a stalled terminal or a full pipe must not hold up a heartbeat, or a child that
// has to be ended.
const Buffer = 1024

// line is what waits to be written, or a mark that is closed when all before it
// was.
type line struct {
	text []byte
	mark chan struct{}
}

// Lines is a writer that never blocks. Its methods may be called concurrently.
type Lines struct {
	to    io.Writer
	queue chan line
	done  chan struct{}

	mu     sync.Mutex
	closed bool
}

// New returns a writer to another one. It has a goroutine until [Lines.Close].
func New(to io.Writer) *Lines {
	l := &Lines{to: to, queue: make(chan line, Buffer), done: make(chan struct{})}
	go l.run()
	return l
}

func (l *Lines) run() {
	defer close(l.done)
	for p := range l.queue {
		if p.mark != nil {
			close(p.mark)
			continue
		}
		_, _ = l.to.Write(p.text) // there is nowhere to report the error
	}
}

// put has something wait, unless too much waits already. It returns an error after Close.
func (l *Lines) put(p line) (waits bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, io.ErrClosedPipe
	}
	select {
	case l.queue <- p:
		return true, nil
	default:
		return false, nil
	}
}

// Write takes p, and drops it if too much waits already.
func (l *Lines) Write(p []byte) (int, error) {
	if _, err := l.put(line{text: bytes.Clone(p)}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush waits until what was written before is, for as long as patience lasts.
func (l *Lines) Flush(patience time.Duration) {
	mark := make(chan struct{})
	if waits, _ := l.put(line{mark: mark}); waits {
		await(mark, patience)
	}
}

// Close writes what waits, for as long as patience lasts.
func (l *Lines) Close(patience time.Duration) {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	await(l.done, patience)
}

func await(done <-chan struct{}, patience time.Duration) {
	select {
	case <-done:
	case <-time.After(patience):
	}
}
