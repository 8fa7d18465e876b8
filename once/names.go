// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import "github.com/tenurelock/tenure/internal/text"

// MaxNameLen is the longest name in bytes: that of a lock, less the suffix.
const MaxNameLen = 1018

// LockName returns the name of the lock under which [Once] runs, whose data are
// the ledger of its slots. It is what [Turn.Name] returns in the work: the resource
// that the token fences.
func LockName(name string) string { return name + text.OnceSuffix }

// EveryLockName is as [LockName], for [Every].
func EveryLockName(name string) string { return name + text.EverySuffix }

// checkName is here so that a mistake is not taken for an error of the store.
func checkName(name string) error { return text.CheckName("name", name, MaxNameLen) }
