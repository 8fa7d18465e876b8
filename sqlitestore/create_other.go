// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package sqlitestore

import "os"

// createMode is how SQLite opens a missing database: it creates it itself, where
// files have no permissions of this kind.
const createMode = "rwc"

func makeFile(string, os.FileMode, os.FileInfo) error { return nil }
