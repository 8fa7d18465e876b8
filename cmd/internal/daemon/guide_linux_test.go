// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// theGuide is the page about the service.
const theGuide = "../../../docs/guides/service.md"

// part returns what stands below a heading of a page.
func part(t *testing.T, path, heading string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", path, heading)
	}
	below, _, _ = strings.Cut(below, "\n"+strings.Repeat("#", strings.Count(heading, "#"))+" ")
	return below
}

// blocks returns the code of a language in a text.
func blocks(text, language string) (found []string) {
	for _, p := range strings.Split(text, "```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(p, "```")
		found = append(found, block)
	}
	return found
}

// What the guide has a reader type for a lock with curl runs as it stands, but for the port,
// and is answered as the guide says.
func TestGuideRuns(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl: apt-get install curl")
	}
	below := part(t, theGuide, "## A lock with curl")
	at := fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t))
	script := strings.ReplaceAll(strings.Join(blocks(below, "sh"), "\necho\n"), "127.0.0.1:8368", at)
	script = strings.Replace(script, "tenured --store", "tenured --drain 0s --listen "+at+" --store", 1)
	// By its process: bash may know nothing more of a job that has ended.
	run := exec.CommandContext(t.Context(), "bash", "-euc", script+"\nkill $!\nwait $!\n")
	run.Dir = t.TempDir()
	run.Env = append(os.Environ(), "HOME="+run.Dir, "XDG_STATE_HOME=")
	var out, said bytes.Buffer
	run.Stdout, run.Stderr = &out, &said
	if err := run.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, &out, &said)
	}
	shape := func(lines string) []string {
		lines = regexp.MustCompile(`"[A-Z0-9]{13}-[A-Z0-9]{13}"`).ReplaceAllString(lines, `"BEAT"`)
		lines = regexp.MustCompile(`"free_in_ms":\d+`).ReplaceAllString(lines, `"free_in_ms":N`)
		lines = regexp.MustCompile(`free in [0-9ms.]+`).ReplaceAllString(lines, "free in N")
		lines = regexp.MustCompile(`(?m)^\s*\n`).ReplaceAllString(lines, "")
		return strings.Split(strings.TrimSpace(lines), "\n")
	}
	got, want := shape(out.String()), shape(strings.Join(blocks(below, "json"), "\n"))
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("the answers are\n%s\nand the guide says\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
