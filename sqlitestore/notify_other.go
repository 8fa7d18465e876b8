// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sqlitestore

import "errors"

// openEvents fails: here watches poll.
func openEvents(string) (source, error) { return nil, errors.ErrUnsupported }
