// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package sqlitestore

import "errors"

// renameNew is not to be had on all systems.
func renameNew(string, string) error { return errors.ErrUnsupported }
