// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package peers

import "sync"

// Scope cleans up after the steps of a measurement. It may be used concurrently.
type Scope struct {
	mu   sync.Mutex
	ends []func()
}

// After registers a function to call when the current steps are over.
func (s *Scope) After(end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, end)
}

// Run runs steps, and then the registered functions, the latest first.
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
