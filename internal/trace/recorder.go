// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Recorder collects the events of a trace. A nil Recorder records nothing. Its
// methods may be called concurrently; the callers must add the events in the order
// of their times.
type Recorder struct {
	mu       sync.Mutex
	events   []Event
	requests int
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder { return &Recorder{} }

// Add appends an event.
func (r *Recorder) Add(e Event) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Request returns a number for a request that no other one has, 0 from a nil
// Recorder.
func (r *Recorder) Request() int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	return r.requests
}

// Events returns what was recorded until now.
func (r *Recorder) Events() []Event {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Write writes events as lines of JSON.
func Write(w io.Writer, events []Event) error {
	buf := bufio.NewWriter(w)
	enc := json.NewEncoder(buf)
	for _, e := range events {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return buf.Flush()
}

// Read reads what Write has written.
func Read(r io.Reader) ([]Event, error) {
	var events []Event
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	for {
		var e Event
		switch err := dec.Decode(&e); err {
		case nil:
			events = append(events, e)
		case io.EOF:
			return events, nil
		default:
			return nil, fmt.Errorf("event %d: %w", len(events)+1, err)
		}
	}
}
