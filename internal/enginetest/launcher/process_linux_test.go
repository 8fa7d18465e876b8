// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package launcher

import "testing"

// TestPort: no other process gets the port, although nobody listens there yet.
func TestPort(t *testing.T) {
	port, err := Port()
	if err != nil || reserve(port) {
		t.Errorf("port %d can be had again, %v", port, err)
	}
}
