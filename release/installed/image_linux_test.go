// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// A container is a stand-in for one: the files and the settings of the release's image, with
// a root, processes and, in a lan, a network of its own.
type container struct {
	t      *testing.T
	root   string
	config v1.Config
	home   string
	lan    *lan
}

// unpack makes an empty folder the root of a container of the release's image, as an engine
// does.
func unpack(t *testing.T, l *lan) *container {
	t.Helper()
	archive := t.TempDir()
	output(t, archive, "tar", "xf", only(t, "_oci.tar"))
	index, err := layout.ImageIndexFromPath(archive)
	if err != nil {
		t.Fatal(err)
	}
	img := platformImage(t, index)
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "tenure-root-") //nolint:usetesting // the user in it reaches this folder
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	files := mutate.Extract(img)
	defer func() { _ = files.Close() }()
	extract(t, files, root)
	users, err := os.ReadFile(root + "/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Split(string(users), ":")
	if user := fields[2] + ":" + fields[3]; user != file.Config.User {
		t.Errorf("the image runs as %s, and has the user %s", file.Config.User, user)
	}
	return &container{t: t, root: root, config: file.Config, home: fields[5], lan: l}
}

// platformImage returns the image for this machine.
func platformImage(t *testing.T, index v1.ImageIndex) v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		if m.MediaType.IsIndex() {
			below, err := index.ImageIndex(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return platformImage(t, below)
		}
		if m.Platform != nil && m.Platform.OS == "linux" && m.Platform.Architecture == runtime.GOARCH {
			img, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return img
		}
	}
	t.Fatalf("no image for linux/%s among %+v", runtime.GOARCH, manifest.Manifests)
	return nil
}

func extract(t *testing.T, from io.Reader, root string) {
	t.Helper()
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
		}
		if err == nil {
			err = os.Chown(path, h.Uid, h.Gid)
		}
		if err == nil {
			err = os.Chmod(path, h.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// command returns a command that runs in the container, as its user, with a /proc and a home as
// engines give them.
func (c *container) command(env []string, argv ...string) *exec.Cmd {
	env = append([]string{"HOME=" + c.home}, env...)
	inside := fmt.Sprintf(`mkdir -p "$0/proc"; mount -t proc proc "$0/proc"; exec env -i %s chroot --userspec=%s "$0" "$@"`, quoted(append(slices.Clone(c.config.Env), env...)), c.config.User)
	args := []string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", inside, c.root}
	if c.lan != nil {
		args = append([]string{"nsenter", "--target", strconv.Itoa(c.lan.pid), "--net", "--"}, args...)
	}
	args = append(args, argv...)
	return exec.CommandContext(context.WithoutCancel(c.t.Context()), args[0], args[1:]...)
}

func quoted(words []string) string {
	var all []string
	for _, w := range words {
		all = append(all, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
	}
	return strings.Join(all, " ")
}

// The image has what the Containerfile says, and tenure works in its empty root.
func TestImage(t *testing.T) {
	needs(t, "unshare", "chroot")
	c := unpack(t, nil)
	var there []string
	err := filepath.WalkDir(c.root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			there = append(there, strings.TrimPrefix(path, c.root))
		}
		return err
	})
	want := []string{"/etc/passwd", "/etc/ssl/certs/ca-certificates.crt", "/usr/local/bin/tenure", "/usr/local/bin/tenured"}
	if err != nil || !slices.Equal(there, want) {
		t.Errorf("in the image: %q, %v; want %q", there, err, want)
	}
	if c.config.User != "65532:65532" || !slices.Equal(c.config.Entrypoint, []string{"/usr/local/bin/tenured"}) {
		t.Errorf("it runs %q as %q", c.config.Entrypoint, c.config.User)
	}
	out, err := c.command(nil, "/usr/local/bin/tenure", "run", "--store", "sqlite:/tmp/locks.db", "x", "--", "/usr/local/bin/tenure", "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "tenure ") {
		t.Errorf("tenure run ends with %v: %s", err, out)
	}
	cmd := c.command([]string{"TENURE_STORE=memory:"}, append(slices.Clone(c.config.Entrypoint), "check", "--listen", "127.0.0.1:8368")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the service does not start: %v: %s", err, out)
	}
	// No rights: it may write where it shall, and nowhere else.
	var dir syscall.Stat_t
	if err := syscall.Stat(c.root+"/tmp", &dir); err != nil || dir.Mode&0o7777 != 0o1777 {
		t.Errorf("/tmp has mode %o, %v", dir.Mode, err)
	}
	cmd = c.command(nil, "/usr/local/bin/tenure", "run", "--store", "sqlite:/locks.db", "x", "--", "/usr/local/bin/tenure", "--version")
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("it writes into its root: %s", out)
	}
}

// The release workflow pushes the image from the archive, and a registry gives it to whoever
// asks for the version.
func TestImageIsPushed(t *testing.T) {
	needs(t, "tar")
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	workflow, err := os.ReadFile("../../.github/workflows/release.yml")
	if err != nil {
		t.Fatal(err)
	}
	const push = `crane" push image "ghcr.io/$GITHUB_REPOSITORY:${GITHUB_REF_NAME#v}"`
	if !strings.Contains(string(workflow), push) {
		t.Errorf("the workflow does not say %s", push)
	}
	dir := t.TempDir()
	output(t, dir, "tar", "xf", only(t, "_oci.tar"))
	at := strings.TrimPrefix(server.URL, "http://") + "/tenurelock/tenure:" + strings.TrimPrefix(version, "v")
	output(t, "..", "go", "tool", "crane", "push", dir, at)
	reference, err := name.ParseReference(at)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(reference)
	if err != nil {
		t.Fatal(err)
	}
	file, err := platformImage(t, index).ConfigFile()
	if err != nil || file.Config.User != "65532:65532" || file.Config.Labels["org.opencontainers.image.version"] != strings.TrimPrefix(version, "v") {
		t.Errorf("from the registry comes %+v, %v", file, err)
	}
}
