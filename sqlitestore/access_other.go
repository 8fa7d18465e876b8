// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package sqlitestore

import "os"

// chownLike does nothing: files have no owner to copy here.
func chownLike(*os.File, os.FileInfo) {}

// access knows nothing here: the engine will say.
func access(string) error { return nil }

// noFiles knows nothing here.
func noFiles() error { return nil }
