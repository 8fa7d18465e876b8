// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The Containerfile says what the image made without an engine is made of.
func TestContainerfile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../..", Containerfile))
	if err != nil {
		t.Fatal(err)
	}
	got, err := readRecipe(string(text))
	if err != nil {
		t.Fatal(err)
	}
	copies := [][2]string{{"/out/root/", "/"}, {certificates, "/etc/ssl/certs/"}, {"/out/tenured", "/usr/local/bin/"}, {"/out/tenure", "/usr/local/bin/"}}
	if !slices.Equal(got.copies, copies) || len(got.run) != 1 || got.user != "65532:65532" ||
		!slices.Equal(got.ports, []string{"8368"}) || !slices.Equal(got.entrypoint, []string{"/usr/local/bin/tenured"}) {
		t.Errorf("%+v", got)
	}
}

// What is not understood is refused, and not left out.
func TestContainerfileRefused(t *testing.T) {
	const good = "FROM golang AS build\nRUN CGO_ENABLED=0 go build ./x\nRUN mkdir /out/root\nFROM scratch\nCOPY --from=build /out/x /bin/\nUSER 1:1\nENTRYPOINT [\"/bin/x\"]\n"
	if _, err := readRecipe(good); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{"FROM scratch", "FROM alpine"},
		{"USER 1:1\n", ""},
		{"USER 1:1\n", "USER 1:1\nRUN chmod 777 /\n"},
		{"USER 1:1\n", "USER 1:1\nENV A=B\n"},
		{"USER 1:1\n", "USER 1:1\nFROM scratch\n"},
		{"COPY --from=build /out/x /bin/", "COPY x /bin/"},
		{"COPY --from=build /out/x /bin/", "COPY --from=build /src/x /bin/"},
		{"COPY --from=build /out/x /bin/", "COPY --from=build /out/x /bin/y"},
		{`["/bin/x"]`, "/bin/x"},
		{"ENTRYPOINT [\"/bin/x\"]\n", ""},
	} {
		if got, err := readRecipe(strings.Replace(good, change[0], change[1], 1)); err == nil {
			t.Errorf("with %q for %q it is taken as %+v", change[1], change[0], got)
		}
	}
}

// One tree makes the same bytes, whoever made it and whenever.
func TestTarIsReproducible(t *testing.T) {
	write := func(mode os.FileMode, touched time.Time) []byte {
		dir := t.TempDir()
		file := filepath.Join(dir, "a")
		if err := os.WriteFile(file, []byte("text"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, touched, touched); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := writeTar(&b, []entry{{name: "x/", mode: 0o755}, {"x/a", 0o644, file}}, time.Unix(1e9, 0).UTC()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	a, b := write(0o600, time.Unix(5, 0)), write(0o644, time.Now())
	if !bytes.Equal(a, b) {
		t.Error("the bytes differ")
	}
	r := tar.NewReader(bytes.NewReader(a))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 1e9 {
			t.Errorf("%+v, %v", h, err)
		}
	}
}

// Each file of the image has its folders, once and before it.
func TestFolders(t *testing.T) {
	var names []string
	for _, e := range withFolders([]entry{{name: "usr/local/bin/b"}, {name: "usr/local/bin/a"}, {name: "tmp/", mode: 0o1777}, {name: "tmp/y"}, {name: "x"}}) {
		names = append(names, e.name)
	}
	if got := strings.Join(names, " "); got != "tmp/ tmp/y usr/ usr/local/ usr/local/bin/ usr/local/bin/a usr/local/bin/b x" {
		t.Errorf("%s", got)
	}
}

// The unit that packages install is the guide's, with their paths, and without the comment about
// how to install it.
func TestPackagedUnit(t *testing.T) {
	unit, err := os.ReadFile(filepath.Join("../..", unitFile))
	if err != nil {
		t.Fatal(err)
	}
	got := Packaged(string(unit))
	if strings.Contains(got, "/usr/local") || strings.Contains(got, "useradd") || !strings.HasPrefix(got, "# SPDX-") || !strings.Contains(got, "\nExecStart=/usr/bin/tenured ") {
		t.Errorf("the unit is\n%s", got)
	}
	if _, rest, _ := strings.Cut(string(unit), "\n[Service]\n"); !strings.HasSuffix(strings.ReplaceAll(got, "/usr/bin/", "/usr/local/bin/"), "\n[Service]\n"+rest) {
		t.Error("more than the paths has changed")
	}
}
