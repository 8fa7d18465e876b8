// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package pgstore

import "syscall"

func limitUnacknowledged(string, string, syscall.RawConn) error { return nil }
