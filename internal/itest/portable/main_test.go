// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOtherSystems: what compiles on one system alone is told of for the other one, in code
// and in tests, and no error of one passes for one of the other.
func TestOtherSystems(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":             "module m\n\ngo 1.26\n",
		"a/a.go":             "package a\n\nimport \"m/b\"\n\nfunc A() { b.OnLinux() }\n",
		"b/b_linux.go":       "package b\n\nfunc OnLinux() {}\n",
		"b/b_darwin.go":      "package b\n\nfunc OnDarwin() {}\n",
		"b/b_windows.go":     "package b\n\nfunc OnLinux() {}\n",
		"c/c.go":             "package c\n\nimport _ \"net/http\"\n",
		"c/c_test.go":        "package c\n\nimport \"testing\"\n\nfunc TestC(t *testing.T) { fine(t) }\n",
		"c/c_linux_test.go":  "package c\n\nimport \"testing\"\n\nfunc fine(*testing.T) {}\n",
		"c/c_darwin_test.go": "package c\n\nimport \"testing\"\n\nfunc fine(*testing.T) {}\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	for system, want := range map[string][]string{
		"linux":   nil,
		"darwin":  {"undefined: b.OnLinux"},
		"windows": {"undefined: fine"},
	} {
		var b strings.Builder
		ok, err := check(t.Context(), &b, root, system, []string{"./..."})
		if err != nil {
			t.Fatal(err)
		}
		if ok != (want == nil) {
			t.Errorf("%s: %v:\n%s", system, ok, b.String())
		}
		for _, w := range want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%s is not told of %q:\n%s", system, w, b.String())
			}
		}
	}
	if ok, err := check(t.Context(), os.Stderr, root, "darwin", []string{"./none/..."}); ok || err == nil {
		t.Error("no package, and no error")
	}
}
