// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const (
	ours = "github.com/tenurelock/tenure"
	// installing and jobs are the guides whose commands the tests run.
	installing = "../../docs/guides/installing.md"
	jobs       = "../../docs/guides/jobs.md"
)

// version is the released version: the modules require each other at it.
var version = func() string {
	work, _ := os.ReadFile("../../go.work")
	return string(regexp.MustCompile(`v\d\S+`).Find(work))
}()

// file returns the one file of the release with the ending.
func file(t *testing.T, ending string) string {
	t.Helper()
	found, err := filepath.Glob(trial + "/dist/*" + ending)
	if err != nil || len(found) != 1 {
		t.Fatalf("of %s there are %q, %v", ending, found, err)
	}
	return found[0]
}

// command returns a folder with the contents of the release's archive.
func command(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	output(t, exec.CommandContext(t.Context(), "tar", "xzf", file(t, "_amd64.tar.gz"), "-C", dir, "--strip-components=1"))
	return dir
}

// shown returns the blocks of a language below a heading of a page, or those that are indented.
func shown(t *testing.T, page, heading, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, below, _ := strings.Cut(string(text), "\n"+heading+"\n")
	below, _, _ = strings.Cut(below, "\n## ")
	block := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```")
	if language == "" {
		block = regexp.MustCompile(`(?m)((?:^    .*\n)+)`)
	}
	for _, found := range block.FindAllStringSubmatch(below, -1) {
		blocks = append(blocks, strings.ReplaceAll("\n"+found[1], "\n    ", "\n")[1:])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s shows no %s below %q", page, language, heading)
	}
	return blocks
}

// changed replaces the placeholders of a guide, which must be there.
func changed(t *testing.T, text, from, to string) string {
	t.Helper()
	if !strings.Contains(text, from) {
		t.Fatalf("the guide has no %q:\n%s", from, text)
	}
	return strings.ReplaceAll(text, from, to)
}

// fromPage serves the release's files to the machines, and has a guide's script take them.
func fromPage(t *testing.T, script string) string {
	t.Helper()
	return changed(t, script, "https://github.com/tenurelock/tenure/releases/download/v$version", "http://127.0.0.1:8000")
}

// Each way to install: the version is there, a lock is held while the same is installed again as an
// upgrade does it, and when the command is removed, the locks stay.
func TestWays(t *testing.T) {
	serve(t, 8000, "python3", "-m", "http.server", "8000", "--bind", "127.0.0.1", "--directory", trial+"/dist")
	rpm := `rpm --root "$ROOT" --nodeps --noscripts ` // Debian has no database of it, and the scripts are the other's
	for way, do := range map[string]struct {
		here            bool // on the machine under the stand-in, whose files are in $ROOT
		install, remove string
	}{
		"archive": {false, fromPage(t, shown(t, installing, "## An archive", "sh")[0]), "rm /usr/local/bin/tenure"},
		"deb":     {false, fromPage(t, shown(t, installing, "## A package", "sh")[0]), "dpkg --remove tenure"},
		"rpm":     {true, rpm + "--upgrade --replacepkgs " + file(t, ".rpm"), rpm + "--erase tenure"},
		"go":      {true, "install " + goInstall(t) + ` "$ROOT/usr/local/bin/"`, `rm "$ROOT/usr/local/bin/tenure"`},
	} {
		t.Run(way, func(t *testing.T) {
			m := boot(t, way, "TENURE_STORE=sqlite:/var/locks.db")
			run := func(script string) {
				t.Helper()
				if !do.here {
					m.must(script)
					return
				}
				cmd := shell(script)
				cmd.Env = append(os.Environ(), "ROOT="+m.root())
				output(t, cmd)
			}
			run(do.install)
			if out := m.must("tenure --version"); !strings.HasPrefix(out, "tenure "+version+" ") {
				t.Errorf("installed is %s", out)
			}
			m.must("systemd-run --quiet --unit=holder --setenv=" + m.env[0] + " $(command -v tenure) run x -- sleep 600")
			m.eventually("tenure status x -q --exit-code")
			if way == "deb" {
				service(t, m)
			}
			run(do.install)
			if out, err := m.try("tenure run --wait 0 x -- true"); err == nil || !strings.Contains(out, "held by") {
				t.Errorf("beside the old program the new one ends with %v: %s", err, out)
			}
			m.must("systemctl stop holder; tenure run --wait 0 x -- true")
			run(do.remove)
			m.must("! command -v tenure; test -e /var/locks.db")
			if way == "deb" {
				m.must("test -d /etc/tenured; test -e /var/lib/tenured/locks.db; ! systemctl is-active tenured")
			}
		})
	}
}

// service starts the lock service that the package brings, as the guide says. It holds a lock, and
// an upgrade starts it again.
func service(t *testing.T, m *machine) {
	t.Helper()
	m.must("getent passwd tenured; ! systemctl is-active tenured")
	token, _, _ := strings.Cut(m.must(shown(t, installing, "## A package", "sh")[1]), "\n")
	m.eventually("systemctl is-active tenured")
	out := m.must("curl -fsS --unix-socket /run/tenured/tenured.sock -H 'Authorization: Bearer " + token + "' " +
		`-H 'Content-Type: application/json' http://localhost/v1/acquire -d '{"name": "report", "owner": "me"}'`)
	if !strings.Contains(out, `"token":1`) {
		t.Errorf("the service says %s", out)
	}
	const pid = "systemctl show --property=MainPID tenured"
	m.must(pid + " >before; dpkg --install tenure_*.deb; " + pid + " >after; ! cmp -s before after")
	m.must("systemctl is-active tenured")
}

// goInstall installs the command as the guide says, with an empty home, from the tags. These are
// the bytes that the archive has.
func goInstall(t *testing.T) (program string) {
	t.Helper()
	home := t.TempDir()
	cache := strings.Fields(output(t, exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE", "GOPROXY")))
	config := "[url \"file://" + trial + "\"]\n\tinsteadOf = https://" + ours + "\n[safe]\n\tdirectory = *\n"
	if err := os.WriteFile(home+"/.gitconfig", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := shell("cd; " + changed(t, shown(t, installing, "## Where a file comes from", "")[1], "@"+version, "@"+version))
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GOPRIVATE=" + ours, "GOCACHE=" + cache[0], "GOFLAGS=-modcacherw",
		"GOPROXY=file://" + cache[1] + "/cache/download," + cache[2],
	}
	output(t, cmd)
	program = home + "/go/bin/tenure"
	output(t, exec.CommandContext(t.Context(), "cmp", program, command(t)+"/tenure"))
	return program
}

// All modules are tagged; the checksums are of all files. The list of contents has each module that
// is in a program, and the licences are theirs.
func TestContents(t *testing.T) {
	tags := output(t, exec.CommandContext(t.Context(), "git", "-C", trial, "tag", "--list"))
	tags = strings.ReplaceAll(tags, version+"\n", "")
	if want := "adapters/certmagic/adapters/clientgo/adapters/controllerruntime/adapters/gocron/azblobstore/" +
		"cmd/dynamostore/etcdstore/gcsstore/k8sstore/mysqlstore/pgstore/redisstore/s3store/sqlitestore/" +
		"tenureotel/tenureprom/zkstore/"; tags != want {
		t.Errorf("tags of %q, want %q", tags, want)
	}
	sums := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = trial + "/dist"
	files, err := os.ReadDir(sums.Dir)
	if got := strings.Count(output(t, sums), ": OK\n"); err != nil || got != 6 || len(files) != 7 {
		t.Errorf("%d files of %q, %v, have sums", got, files, err)
	}
	here := command(t)
	licences, err := os.ReadFile(here + "/THIRD-PARTY-LICENSES")
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"tenure", "tenured"} {
		info, err := buildinfo.ReadFile(filepath.Join(here, program))
		if err != nil || info.Main.Path != ours+"/cmd" || info.Main.Version != version || len(info.Deps) < 20 {
			t.Fatalf("%s is of %+v, %v", program, info, err)
		}
		text, err := os.ReadFile(trial + "/dist/" + program + "_" + version[1:] + "_linux_amd64.cdx.json")
		if err != nil {
			t.Fatal(err)
		}
		type component struct{ Name, Version string }
		var list struct {
			BOMFormat  string `json:"bomFormat"`
			Metadata   struct{ Component component }
			Components []component
		}
		if err := json.Unmarshal(text, &list); err != nil || list.BOMFormat != "CycloneDX" ||
			list.Metadata.Component != (component{info.Main.Path, version}) {
			t.Errorf("%s: the list, in the form %q, is of %+v, %v", program, list.BOMFormat, list.Metadata, err)
		}
		for _, d := range info.Deps {
			if !slices.Contains(list.Components, component{d.Path, d.Version}) {
				t.Errorf("%s: the list lacks %s %s", program, d.Path, d.Version)
			}
			if !strings.HasPrefix(d.Path, ours) && !bytes.Contains(licences, []byte("\n"+d.Path+"@"+d.Version+", ")) {
				t.Errorf("%s: there is no licence of %s", program, d.Path)
			}
		}
	}
}

// pulled is the root of a container with the image of the release, from a registry to which it was
// pushed.
func pulled(t *testing.T) (root string) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	archive := t.TempDir()
	output(t, exec.CommandContext(t.Context(), "tar", "xf", file(t, "_oci.tar"), "-C", archive))
	index, err := layout.ImageIndexFromPath(archive)
	if err != nil {
		t.Fatal(err)
	}
	at, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/tenurelock/tenure:" + version[1:])
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(at, index); err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(at, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil || config.Config.User != "65532:65532" ||
		!slices.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/tenured"}) ||
		config.Config.Labels["org.opencontainers.image.version"] != version[1:] {
		t.Errorf("the image is %+v, %v", config, err)
	}
	root, err = os.MkdirTemp("", "tenure-root-") //nolint:usetesting // the user in it reaches this folder
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	files := mutate.Extract(img)
	defer func() { _ = files.Close() }()
	unpack := shell("umask 0; chmod 755 " + root + "; tar xp -C " + root + "; mkdir " + root + "/proc")
	unpack.Stdin = files
	output(t, unpack)
	return root
}

// contained runs a command in the root, as the image's user, with processes of its own.
func contained(root, store string, argv ...string) *exec.Cmd {
	cmd := inside("unshare", append([]string{
		"--mount", "--pid", "--fork", "--kill-child", "--root=" + root, "--mount-proc", "--setgid=65532", "--setuid=65532",
	}, argv...)...)
	cmd.Env = []string{path, "HOME=/tmp", "TENURE_STORE=" + store}
	return cmd
}

// The image has what the Containerfile says, and tenure works in its empty root. A
// registry serves it under its version.
func TestImage(t *testing.T) {
	root := pulled(t)
	want := "./etc/passwd ./etc/ssl/certs/ca-certificates.crt ./usr/local/bin/tenure ./usr/local/bin/tenured 1777"
	there := output(t, shell("cd "+root+"; grep -q :65532: etc/passwd; find . -type f | sort; stat --format=%a tmp"))
	if got := strings.Join(strings.Fields(there), " "); got != want {
		t.Errorf("in the image: %s; want %s", got, want)
	}
	const tenure = "/usr/local/bin/tenure"
	out := output(t, contained(root, "sqlite:/tmp/locks.db", tenure, "run", "x", "--", tenure, "--version"))
	if !strings.HasPrefix(out, "tenure "+version+" ") {
		t.Errorf("tenure run says %s", out)
	}
	output(t, contained(root, "memory:", "/usr/local/bin/tenured", "check", "--listen", "127.0.0.1:8368"))
	again := contained(root, "sqlite:/locks.db", tenure, "run", "x", "--", tenure, "--version")
	if out, err := again.CombinedOutput(); err == nil {
		t.Errorf("it writes into its root: %s", out)
	}
}
