// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
)

// TestEngineOfThePage: the page shows what tenure doctor says of the file.
func TestEngineOfThePage(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("files are examined on Linux alone")
	}
	file := filepath.Join(t.TempDir(), "locks.db")
	at, err := storeurl.Parse("sqlite:" + file)
	if err != nil {
		t.Fatal(err)
	}
	store, err := at.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	options, err := flags.WithDefaults(tenure.Options{})
	if err != nil {
		t.Fatal(err)
	}
	found := examine(at, options)(t.Context())
	if !slices.ContainsFunc(found, func(f driver.Finding) bool {
		return f.Check == "file" && f.Level == driver.LevelWarn && strings.HasPrefix(f.Finding, "any user can write it")
	}) {
		t.Errorf("nothing is said of a file that anybody can write: %+v", found)
	}
}
