// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package modules knows the Go modules of a revision of the repository that are released: it
// checks what they say, makes a module proxy of them, and tags them.
//
// All of them carry one version. A module in a folder has a tag of its own, such as
// pgstore/v0.1.0, since that is where the go command looks.
package modules

import (
	"context"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// Root is the path of the root module. The path of every other one is this and its folder.
const Root = "github.com/tenurelock/tenure"

// Commands are the programs that users install with go install.
func Commands() []string { return []string{Root + "/cmd/tenure", Root + "/cmd/tenured"} }

// apart begins the folders of modules that nobody but this repository uses. They are not
// tagged: a tag is for ever.
var apart = []string{"evidence", "examples", "internal", "recipes", "release"}

// A Module is one that is released.
type Module struct {
	// Dir is its folder, "." for the root module.
	Dir string
	// File is its go.mod.
	File *modfile.File
}

// Path is the module's path.
func (m Module) Path() string { return path.Join(Root, m.Dir) }

// Tag is the name of its tag for the version.
func (m Module) Tag(version string) string {
	return strings.TrimPrefix(path.Join(m.Dir, version), "./")
}

// subdir is its folder as the go command writes it, "" for the root module.
func (m Module) subdir() string {
	if m.Dir == "." {
		return ""
	}
	return m.Dir
}

// at is the module with its version.
func (m Module) at(version string) module.Version {
	return module.Version{Path: m.Path(), Version: version}
}

// Released returns the modules of the revision that are released, the root module first.
func (r Repository) Released(ctx context.Context, revision string) ([]Module, error) {
	paths, err := r.find(ctx, revision, func(p string) bool {
		return path.Base(p) == "go.mod" && !strings.Contains(p, "testdata/")
	})
	if err != nil {
		return nil, err
	}
	var list []Module
	for _, p := range paths {
		dir := path.Dir(p)
		// A module below an internal folder of a released one is as much apart.
		if slices.ContainsFunc(strings.Split(dir, "/"), func(part string) bool { return slices.Contains(apart, part) }) {
			continue
		}
		text, err := r.Read(ctx, revision, p)
		if err != nil {
			return nil, err
		}
		file, err := modfile.Parse(p, []byte(text), nil)
		if err != nil {
			return nil, err
		}
		list = append(list, Module{Dir: dir, File: file})
	}
	slices.SortFunc(list, func(a, b Module) int { return strings.Compare(a.subdir(), b.subdir()) })
	return list, nil
}
