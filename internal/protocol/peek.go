// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

// Under returns what the process has seen of the session that keeps the lock
// alive, nil if it is its own lease.
func (s *Sight) Under() *Sight { return s.under() }

// Left says that the work has returned, and that only the closing of the session is
// left to do, which frees the lock.
func (h *Holder) Left() bool { return h.done() && h.out == nil && h.leaves() }

// Closed says whether the lock is held under a session that its own process has closed,
// so that no work goes on under it.
func (s *Sight) Closed() bool {
	u := s.under()
	return u != nil && u.found && closedInOrder(u.rec)
}

// Ended says whether the lock is held under a session that is over for certain.
func (s *Sight) Ended() bool {
	u := s.under()
	return u != nil && u.ended(s.term)
}
