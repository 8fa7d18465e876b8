// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package clock

import "time"

// readBoot says that there is no boot clock. macOS and Windows have clocks that
// count suspends, but package syscall has no call for them, and Holder is safe
// without.
func readBoot() (time.Duration, bool) { return 0, false }

// readRaw and hasRaw say that there is no raw clock, likewise.
func readRaw() (time.Duration, bool) { return 0, false }

func hasRaw() bool { return false }
