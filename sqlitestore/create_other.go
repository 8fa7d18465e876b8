// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package sqlitestore

import "os"

// createMode is how SQLite opens a database that is missing: it makes it itself,
// where files have no permissions of this kind.
const createMode = "rwc"

func makeFile(string, os.FileMode, os.FileInfo) error { return nil }
