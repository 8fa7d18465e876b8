// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/rand"
	"encoding/binary"
)

// random returns a number in [0, 1), for jitter. It comes from where the versions
// come from, so that a test which seeds that (testing/cryptotest) seeds all.
func random() float64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return float64(binary.LittleEndian.Uint64(b[:])>>11) / (1 << 53)
}
