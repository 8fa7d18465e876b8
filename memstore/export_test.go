// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package memstore

import "github.com/tenurelock/tenure/driver"

// Plant stores rec as it is.
func (s *Store) Plant(rec driver.Record) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.db.put(rec.Detach())
}
