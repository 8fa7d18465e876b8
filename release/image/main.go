// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Command image writes the container image of a release as a folder of OCI: one index, with an
// image of one layer for each platform. It needs no container engine.
//
//	image VERSION COMMIT SECONDS FOLDER OS_ARCH.tar...
//
// SECONDS since 1970 date the image. Each tar file has the files of the platform that it is
// named after.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(args []string) error {
	if len(args) < 5 {
		return errors.New("usage: image VERSION COMMIT SECONDS FOLDER OS_ARCH.tar, of one platform or more")
	}
	version, commit, folder := args[0], args[1], args[3]
	seconds, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	at := v1.Time{Time: time.Unix(seconds, 0).UTC()}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, file := range args[4:] {
		system, arch, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".tar"), "_")
		platform := v1.Platform{OS: system, Architecture: arch}
		img, err := onePlatform(file, config(version, commit), platform, at)
		if err != nil {
			return err
		}
		described := v1.Descriptor{Platform: &platform}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: described})
	}
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	named := map[string]string{"org.opencontainers.image.ref.name": version}
	return path.AppendIndex(index, layout.WithAnnotations(named))
}

// config is what the Containerfile says: a test compares them.
func config(version, commit string) v1.Config {
	return v1.Config{
		User:         "65532:65532",
		Entrypoint:   []string{"/usr/local/bin/tenured"},
		ExposedPorts: map[string]struct{}{"8368/tcp": {}},
		Env:          []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "Tenure",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.revision": commit,
			"org.opencontainers.image.source":   "https://github.com/tenurelock/tenure",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
}

// onePlatform makes the image of a platform, with the tar file as its layer.
func onePlatform(file string, config v1.Config, platform v1.Platform, at v1.Time) (v1.Image, error) {
	layer, err := tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	history := v1.History{Created: at, CreatedBy: "docs/guides/service/Containerfile"}
	if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: history}); err != nil {
		return nil, err
	}
	made, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	made = made.DeepCopy()
	made.OS, made.Architecture, made.Created, made.Config = platform.OS, platform.Architecture, at, config
	return mutate.ConfigFile(img, made)
}
