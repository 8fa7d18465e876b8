// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sqlitestore

import (
	"context"
	"os"

	"github.com/tenurelock/tenure/driver"
)

// Diagnose examines a database file from outside. Only Linux shows which processes use it.
func Diagnose(_ context.Context, file string) []driver.Finding {
	info, err := os.Stat(file)
	if err != nil {
		return []driver.Finding{driver.Bad("file", "%v", err).Advise("tenure run and tenure lead create it; " +
			"see the folder's permissions")}
	}
	return []driver.Finding{driver.OK("file", "%s, %d kB, %v", file, (info.Size()+1023)>>10, info.Mode())}
}
