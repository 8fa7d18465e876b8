// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gate

import (
	"errors"
	"sync"
)

// Meter adds up what requests use.
type Meter struct {
	metered bool

	mu      sync.Mutex
	weighed bool // keeps which items are used
	sent    Usage
	used    []Touch
	err     error
}

// Weigh has the meter keep which items are used, from now on.
func (m *Meter) Weigh() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.weighed = true
}

func (m *Meter) note(operation string, body []byte) {
	if !m.metered {
		return
	}
	u, used, err := Price(operation, body)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent.Add(u)
	if m.weighed {
		m.used = append(m.used, used...)
	}
	if err != nil && m.err == nil {
		m.err = err
	}
}

// Take returns what was used since the last call. The error is that of a request
// that has no price.
func (m *Meter) Take() (Usage, error) {
	u, _, err := m.TakeAll()
	return u, err
}

// During returns what was used while f ran, also if it failed.
func (m *Meter) During(f func() error) (Usage, error) {
	if _, err := m.Take(); err != nil {
		return Usage{}, err
	}
	err := f()
	u, unpriced := m.Take()
	return u, errors.Join(err, unpriced)
}

// TakeAll is Take, with the items that were used.
func (m *Meter) TakeAll() (Usage, []Touch, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u, used := m.sent, m.used
	m.sent, m.used = Usage{}, nil
	return u, used, m.err
}
