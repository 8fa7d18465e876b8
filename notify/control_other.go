// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix && !windows

package notify

import "syscall"

// control does nothing: package syscall has no call for it here.
func control(_, _ string, _ syscall.RawConn) error { return nil }
