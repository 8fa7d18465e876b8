// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	files "github.com/tenurelock/tenure/release/dist"
	"github.com/tenurelock/tenure/release/modules"
)

// The list of contents has each module that is in the program, and the licences are theirs.
func TestContents(t *testing.T) {
	needs(t, "tar")
	here := commandHere(t)
	licences, err := os.ReadFile(here + "/THIRD-PARTY-LICENSES")
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"tenure", "tenured"} {
		info, err := buildinfo.ReadFile(filepath.Join(here, program))
		if err != nil {
			t.Fatal(err)
		}
		if info.Main.Path != modules.Root+"/cmd" || info.Main.Version != version {
			t.Errorf("%s is of %s %s", program, info.Main.Path, info.Main.Version)
		}
		text, err := os.ReadFile(filepath.Join(dist(t), program+"_"+strings.TrimPrefix(version, "v")+"_linux_amd64.cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			BOMFormat string `json:"bomFormat"`
			Metadata  struct {
				Component struct{ Name, Version string }
			}
			Components []struct{ Name, Version string }
		}
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		if c := list.Metadata.Component; list.BOMFormat != "CycloneDX" || c.Name != info.Main.Path || c.Version != version {
			t.Errorf("%s: the list, in the form %q, is of %+v", program, list.BOMFormat, c)
		}
		var names []string
		for _, c := range list.Components {
			names = append(names, c.Name+" "+c.Version)
		}
		if len(info.Deps) < 20 {
			t.Errorf("%s has only %d modules", program, len(info.Deps))
		}
		for _, d := range info.Deps {
			if !slices.Contains(names, d.Path+" "+d.Version) {
				t.Errorf("%s: the list lacks %s %s", program, d.Path, d.Version)
			}
			if !strings.HasPrefix(d.Path, modules.Root) && !strings.Contains(string(licences), "\n"+d.Path+"@"+d.Version+", ") {
				t.Errorf("%s: there is no licence of %s", program, d.Path)
			}
		}
	}
}

// Anyone who installs the program with the same Go gets the bytes that are released: here
// with another home, and another cache of modules.
func TestSameBytes(t *testing.T) {
	needs(t, "tar")
	clone, err := released()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("", "tenure-somebody-") //nolint:usetesting // the go command makes what is in it read-only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+w", home).Run(); _ = os.RemoveAll(home) }) //nolint:noctx // after the test
	proxy := filepath.Join(home, "proxy")
	if err := modules.Repository(clone).Proxy(t.Context(), "refs/tags/"+version, version, proxy); err != nil {
		t.Fatal(err)
	}
	env, err := files.Environment(t.Context(), home, proxy)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(installing)
	if err != nil {
		t.Fatal(err)
	}
	line := "CGO_ENABLED=0 go install -trimpath -ldflags=-s github.com/tenurelock/tenure/cmd/tenure@" + version
	if !strings.Contains(string(page), "    "+line+"\n") {
		t.Errorf("the guide does not say %q", line)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir, cmd.Env = home, env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	built, err := os.ReadFile(filepath.Join(home, "go", "bin", "tenure"))
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := os.ReadFile(filepath.Join(commandHere(t), "tenure"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(built, shipped) {
		t.Errorf("the program that was built has %d bytes, and differs from the one that is released, of %d", len(built), len(shipped))
	}
}
