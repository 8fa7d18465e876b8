// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package peers

import "sync"

// Scope ends what the steps of a measurement have begun. It may be used concurrently.
type Scope struct {
	mu   sync.Mutex
	ends []func()
}

// After has something be done when the steps are over that are being taken.
func (s *Scope) After(end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, end)
}

// Run takes steps, and ends what they have begun, the latest first.
func (s *Scope) Run(steps func()) {
	s.mu.Lock()
	before := len(s.ends)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		ends := s.ends[before:]
		s.ends = s.ends[:before:before]
		s.mu.Unlock()
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	}()
	steps()
}
