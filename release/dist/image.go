// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/tenurelock/tenure/release/modules"
)

// Containerfile is the description of the image, which container engines build. Here the same
// image is made without one.
const Containerfile = "docs/guides/service/Containerfile"

// A recipe is what a Containerfile says.
type recipe struct {
	// run are the commands of the first stage, but for the one that builds the programs.
	run []string
	// copies are the files of the first stage, each with where it goes.
	copies     [][2]string
	user       string
	ports      []string
	entrypoint []string
}

// certificates is where the first stage, like most systems, has the authorities.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

// out is the folder of the first stage in which it makes files.
const out = "/out/"

// readRecipe reads a Containerfile of two stages, of which the second begins with nothing. A
// line that it does not know is an error: the image would be another one.
func readRecipe(text string) (*recipe, error) {
	var r recipe
	stage := 0
	for i, line := range strings.Split(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		rest := words[1:]
		switch what := words[0]; {
		case what == "FROM":
			if stage++; stage == 2 && !slices.Equal(rest, []string{"scratch"}) || stage > 2 {
				return nil, fmt.Errorf("statement %d: %q: only an image from scratch is understood", i+1, line)
			}
		case stage == 1 && what == "RUN":
			if command := strings.Join(rest, " "); !strings.HasPrefix(command, "CGO_ENABLED=0 go build ") {
				r.run = append(r.run, command)
			}
		case stage == 1 && (what == "WORKDIR" || what == "COPY"):
		case what == "COPY" && len(rest) >= 3 && rest[0] == "--from=build":
			to := rest[len(rest)-1]
			for _, from := range rest[1 : len(rest)-1] {
				if from != certificates && !strings.HasPrefix(from, out) || !strings.HasSuffix(to, "/") {
					return nil, fmt.Errorf("statement %d: %q: want the certificates or files of %s, to a folder", i+1, line, out)
				}
				r.copies = append(r.copies, [2]string{from, to})
			}
		case what == "USER" && len(rest) == 1:
			r.user = rest[0]
		case what == "EXPOSE":
			r.ports = append(r.ports, rest...)
		case what == "ENTRYPOINT":
			if err := json.Unmarshal([]byte(strings.Join(rest, " ")), &r.entrypoint); err != nil {
				return nil, fmt.Errorf("statement %d: %q: %w", i+1, line, err)
			}
		default:
			return nil, fmt.Errorf("statement %d: %q is not understood", i+1, line)
		}
	}
	if stage != 2 || len(r.copies) == 0 || len(r.entrypoint) == 0 || r.user == "" {
		return nil, fmt.Errorf("the Containerfile has no second stage with files, a user and an entry point")
	}
	return &r, nil
}

// image writes the image for all Linux platforms as an archive of OCI.
func (r *Release) image(ctx context.Context) error {
	text, err := r.Repository.Read(ctx, r.Revision, Containerfile)
	if err != nil {
		return err
	}
	recipe, err := readRecipe(text)
	if err != nil {
		return fmt.Errorf("%s: %w", Containerfile, err)
	}
	commit, err := r.Repository.Commit(ctx, r.Revision)
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.Platforms {
		if p.OS != "linux" {
			continue
		}
		entries, err := r.root(ctx, recipe, p)
		if err != nil {
			return err
		}
		img, err := r.onePlatform(recipe, p, entries, commit)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.OS, Architecture: p.Arch}},
		})
	}
	dir := filepath.Join(r.work, "image")
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version()})
	if err := at.AppendIndex(index, name); err != nil {
		return err
	}
	entries, err := walk(dir, "")
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(r.Out, fmt.Sprintf("tenure_%s_oci.tar", r.version())))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := writeTar(file, entries, r.at); err != nil {
		return err
	}
	return file.Close()
}

// root returns the files of the image.
func (r *Release) root(ctx context.Context, of *recipe, p Platform) ([]entry, error) {
	stage := filepath.Join(r.work, "stage", p.String()) + "/"
	if err := os.MkdirAll(stage, 0o755); err != nil {
		return nil, err
	}
	for _, command := range of.run {
		if err := r.run(ctx, stage, os.Environ(), "sh", "-euc", "umask 022; "+strings.ReplaceAll(command, out, stage)); err != nil {
			return nil, err
		}
	}
	var programs []string
	for _, c := range modules.Commands() {
		programs = append(programs, path.Base(c))
	}
	var entries []entry
	for _, c := range of.copies {
		from, to := c[0], strings.TrimPrefix(c[1], "/")
		name := path.Base(from)
		switch {
		case strings.HasSuffix(from, "/"):
			below, err := walk(filepath.Join(stage, strings.TrimPrefix(from, out)), to)
			if err != nil {
				return nil, err
			}
			entries = append(entries, below...)
		case from == certificates:
			entries = append(entries, entry{to + name, 0o644, r.Certificates})
		case slices.Contains(programs, name):
			entries = append(entries, entry{to + name, 0o755, filepath.Join(r.bin(p), name)})
		default:
			return nil, fmt.Errorf("%s: the file %s is not understood", Containerfile, from)
		}
	}
	return withFolders(entries), nil
}

// withFolders adds the folders in which entries are, and that are none themselves.
func withFolders(entries []entry) []entry {
	there := map[string]bool{"./": true}
	var list []entry
	for _, e := range entries {
		there[e.name] = true
	}
	for _, e := range entries {
		for dir := path.Dir(strings.TrimSuffix(e.name, "/")) + "/"; !there[dir]; dir = path.Dir(strings.TrimSuffix(dir, "/")) + "/" {
			there[dir] = true
			list = append(list, entry{name: dir, mode: 0o755})
		}
	}
	list = append(list, entries...)
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return list
}

// walk returns what is below a folder, as entries whose names begin with top.
func walk(dir, top string) (entries []entry, err error) {
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		e := entry{name: top + filepath.ToSlash(relative), mode: int64(info.Mode().Perm()), from: name}
		if info.Mode()&fs.ModeSticky != 0 {
			e.mode |= 0o1000
		}
		if d.IsDir() {
			e.name += "/"
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// onePlatform makes the image of a platform, with all files in one layer.
func (r *Release) onePlatform(of *recipe, p Platform, entries []entry, commit string) (v1.Image, error) {
	var b bytes.Buffer
	if err := writeTar(&b, entries, r.at); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.at}, CreatedBy: Containerfile}})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = p.OS, p.Arch, v1.Time{Time: r.at}
	file.Config = v1.Config{
		User: of.user, Entrypoint: of.entrypoint, ExposedPorts: map[string]struct{}{},
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "Tenure",
			"org.opencontainers.image.version":  r.version(),
			"org.opencontainers.image.revision": commit,
			"org.opencontainers.image.source":   "https://" + modules.Root,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	for _, port := range of.ports {
		file.Config.ExposedPorts[port+"/tcp"] = struct{}{}
	}
	return mutate.ConfigFile(img, file)
}
