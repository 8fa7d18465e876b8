// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sqlitestore

import "errors"

// openKernel fails: here watches poll, and the next call checks the files.
func openKernel(identity) (kernel, error) { return nil, errors.ErrUnsupported }

// notify does nothing: no process would receive it.
func (s *Store) notify([]*write) {}
