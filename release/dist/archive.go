// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"

	"github.com/tenurelock/tenure/release/modules"
)

// An entry is a file or, if its name ends with a slash, a folder of a tar file.
type entry struct {
	name string
	mode int64
	// from is the file with the content.
	from string
}

// writeTar writes the entries, all of them root's and of one time, so that the bytes depend on
// the content alone.
func writeTar(w io.Writer, entries []entry, at time.Time) error {
	out := tar.NewWriter(w)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, ModTime: at, Format: tar.FormatPAX, Typeflag: tar.TypeReg}
		var content []byte
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		} else {
			var err error
			if content, err = os.ReadFile(e.from); err != nil {
				return err
			}
			h.Size = int64(len(content))
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := out.Write(content); err != nil {
			return err
		}
	}
	return out.Close()
}

// text is where a text of the release is, before it is packed.
func (r *Release) text(name string) string {
	return filepath.Join(r.work, "texts", filepath.FromSlash(name))
}

// unitFile is the unit of the lock service.
const unitFile = "docs/guides/service/tenured.service"

// texts writes what is the same on all platforms: what the command says of itself, files of
// the repository, and the licences of others.
func (r *Release) texts(ctx context.Context) error {
	write := func(name string, text []byte) error {
		if err := os.MkdirAll(filepath.Dir(r.text(name)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(r.text(name), text, 0o644)
	}
	here := Platform{runtime.GOOS, runtime.GOARCH}
	if !slices.Contains(r.Platforms, here) {
		return fmt.Errorf("the man page is printed by the command: build for %s, too", here)
	}
	for name, args := range map[string][]string{
		"man/tenure.1":            {"man"},
		"completions/tenure.bash": {"completion", "bash"},
		"completions/tenure.zsh":  {"completion", "zsh"},
		"completions/tenure.fish": {"completion", "fish"},
	} {
		text, err := exec.CommandContext(ctx, filepath.Join(r.bin(here), "tenure"), args...).Output()
		if err != nil {
			return fmt.Errorf("tenure %s: %w", strings.Join(args, " "), err)
		}
		if err := write(name, text); err != nil {
			return err
		}
	}
	for name, from := range map[string]string{"LICENSE": "LICENSE", "CHANGELOG.md": "CHANGELOG.md", "README.md": "README.md", "tenured.service": unitFile} {
		text, err := r.Repository.Read(ctx, r.Revision, from)
		if err != nil {
			return err
		}
		if err := write(name, []byte(text+"\n")); err != nil {
			return err
		}
	}
	licences, err := r.licences()
	if err != nil {
		return err
	}
	return write("THIRD-PARTY-LICENSES", licences)
}

// A licence, or what must be passed on with one.
var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// licences returns the licences of all modules that are in the programs.
func (r *Release) licences() ([]byte, error) {
	used := map[string]module.Version{}
	for _, p := range r.Platforms {
		for _, c := range modules.Commands() {
			info, err := buildinfo.ReadFile(filepath.Join(r.bin(p), path.Base(c)))
			if err != nil {
				return nil, err
			}
			for _, d := range info.Deps {
				if d.Path != modules.Root && !strings.HasPrefix(d.Path, modules.Root+"/") {
					used[d.Path+"@"+d.Version] = module.Version{Path: d.Path, Version: d.Version}
				}
			}
		}
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "The programs of Tenure contain these modules of others, and Go's standard library.\n")
	add := func(of, dir string) error {
		files, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		found := false
		for _, f := range files {
			if f.IsDir() || !licence.MatchString(f.Name()) || filepath.Ext(f.Name()) == ".go" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				return err
			}
			found = true
			fmt.Fprintf(&out, "\n%s\n%s, %s\n\n%s\n", strings.Repeat("=", 80), of, f.Name(), bytes.TrimSpace(text))
		}
		if !found {
			return fmt.Errorf("%s has no licence: may it be passed on?", of)
		}
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(used)) {
		m := used[key]
		escaped, err := module.EscapePath(m.Path)
		if err != nil {
			return nil, err
		}
		if err := add(key, filepath.Join(r.work, "home", "go", "pkg", "mod", filepath.FromSlash(escaped)+"@"+m.Version)); err != nil {
			return nil, err
		}
	}
	if err := add("Go "+runtime.Version(), runtime.GOROOT()); err != nil { //nolint:staticcheck // the licence of the toolchain that builds
		return nil, err
	}
	return out.Bytes(), nil
}

// archive writes the tar.gz file of a platform.
func (r *Release) archive(p Platform) error {
	top := r.name(p)
	entries := []entry{{name: top + "/", mode: 0o755}}
	for _, c := range modules.Commands() {
		entries = append(entries, entry{top + "/" + path.Base(c), 0o755, filepath.Join(r.bin(p), path.Base(c))})
	}
	for _, folder := range []string{"man/", "completions/"} {
		entries = append(entries, entry{name: top + "/" + folder, mode: 0o755})
	}
	names := []string{"man/tenure.1", "completions/tenure.bash", "completions/tenure.zsh", "completions/tenure.fish", "LICENSE", "THIRD-PARTY-LICENSES", "README.md", "CHANGELOG.md"}
	if p.OS == "linux" {
		names = append(names, "tenured.service")
	}
	for _, name := range names {
		entries = append(entries, entry{top + "/" + name, 0o644, r.text(name)})
	}
	file, err := os.Create(filepath.Join(r.Out, top+".tar.gz"))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	zipped, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(zipped, entries, r.at); err != nil {
		return err
	}
	if err := zipped.Close(); err != nil {
		return err
	}
	return file.Close()
}

// contents writes what is in the programs (SBOM), in the form of CycloneDX.
func (r *Release) contents(ctx context.Context, p Platform) error {
	for _, c := range modules.Commands() {
		program := path.Base(c)
		out := filepath.Join(r.Out, fmt.Sprintf("%s_%s_%s.cdx.json", program, r.version(), p))
		if err := r.tool(ctx, nil, "cyclonedx-gomod", "bin", "-json", "-noserial", "-std", "-version", r.Version, "-output", out, filepath.Join(r.bin(p), program)); err != nil {
			return err
		}
	}
	return nil
}

// tool runs a program that go.mod pins.
func (r *Release) tool(ctx context.Context, env []string, name string, args ...string) error {
	dir := filepath.Join(string(r.Repository), "release")
	return r.run(ctx, dir, append(append(os.Environ(), "GOWORK=off"), env...), "go", append([]string{"tool", name}, args...)...)
}
