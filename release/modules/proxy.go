// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package modules

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// Proxy writes into dir what a module proxy serves of the released modules once the revision
// is tagged with the version. GOPROXY=file://DIR,… then installs them. It makes the archives
// with the code, and by the rules, of the go command.
func (r Repository) Proxy(ctx context.Context, revision, version, dir string) error {
	commit, err := r.Commit(ctx, revision)
	if err != nil {
		return fmt.Errorf("no revision %q here: %w", revision, err)
	}
	at, err := r.Time(ctx, commit)
	if err != nil {
		return err
	}
	list, err := r.Released(ctx, commit)
	if err != nil {
		return err
	}
	// The go command's code knows no worktrees. A clone without files shares the objects.
	clone, err := os.MkdirTemp("", "tenure-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(clone) }()
	if _, err := r.git(ctx, "clone", "--quiet", "--shared", "--no-checkout", ".", clone); err != nil {
		return err
	}
	for _, m := range list {
		escaped, err := module.EscapePath(m.Path())
		if err != nil {
			return err
		}
		into := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
		if err := os.MkdirAll(into, 0o755); err != nil {
			return err
		}
		text, err := r.Read(ctx, commit, filepath.ToSlash(filepath.Join(m.Dir, "go.mod")))
		if err != nil {
			return err
		}
		info, err := json.Marshal(map[string]any{"Version": version, "Time": at})
		if err != nil {
			return err
		}
		for name, content := range map[string]string{"list": version + "\n", version + ".info": string(info), version + ".mod": text + "\n"} {
			if err := os.WriteFile(filepath.Join(into, name), []byte(content), 0o644); err != nil {
				return err
			}
		}
		if err := archive(clone, m, commit, version, filepath.Join(into, version+".zip")); err != nil {
			return fmt.Errorf("%s: %w", m.Path(), err)
		}
	}
	return nil
}

// archive writes the zip file of a module.
func archive(clone string, m Module, commit, version, path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if closing := file.Close(); err == nil {
			err = closing
		}
	}()
	return zip.CreateFromVCS(file, m.at(version), clone, commit, m.subdir())
}
