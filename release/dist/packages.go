// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// packages makes the packages for Debian and Red Hat, as nfpm.yaml says.
func (r *Release) packages(ctx context.Context, p Platform) error {
	unit, err := os.ReadFile(r.text("tenured.service"))
	if err != nil {
		return err
	}
	// Packages install below /usr, and bring a manual page and the user.
	packaged := filepath.Join(r.work, "texts", "packaged.service")
	if err := os.WriteFile(packaged, []byte(Packaged(string(unit))), 0o644); err != nil {
		return err
	}
	env := []string{
		"VERSION=" + r.version(), "ARCH=" + p.Arch, "BIN=" + r.bin(p), "TEXTS=" + filepath.Join(r.work, "texts"),
		"FILES=" + filepath.Join(string(r.Repository), "release", "packages"), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.at.Unix()),
	}
	for _, packager := range []string{"deb", "rpm"} {
		if err := r.tool(ctx, env, "nfpm", "package", "--config", filepath.Join("packages", "nfpm.yaml"), "--packager", packager, "--target", r.Out+"/"); err != nil {
			return err
		}
	}
	return nil
}

// Packaged returns the unit as packages install it. Its comment is about an installation by
// hand, which the packages do; what is left to do they say when they are installed.
func Packaged(unit string) string {
	if _, below, found := strings.Cut(unit, "\n[Unit]\n"); found {
		head, _, _ := strings.Cut(unit, "\n\n")
		unit = head + "\n\n[Unit]\n" + below
	}
	return strings.ReplaceAll(unit, "/usr/local/bin/", "/usr/bin/")
}
