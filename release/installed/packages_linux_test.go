// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// installing is the guide whose commands the tests run.
const installing = "../../docs/guides/installing.md"

// part returns the blocks of a language below a heading of a page.
func part(t *testing.T, page, heading, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	below, _, _ = strings.Cut(below, "\n"+strings.Repeat("#", strings.Count(heading, "#"))+" ")
	var blocks []string
	for _, p := range strings.Split(below, "```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(p, "```")
		blocks = append(blocks, block)
	}
	if len(blocks) == 0 {
		t.Fatalf("%s shows no %s below %q", page, language, heading)
	}
	return blocks
}

// page serves the release's files in the lan, and returns what stands in for the address of
// the release page in the guide.
func (l *lan) page() *strings.Replacer {
	l.serve(8000, "python3", "-m", "http.server", "8000", "--bind", gateway, "--directory", dist(l.t))
	return strings.NewReplacer("https://github.com/tenurelock/tenure/releases/download/v$version", "http://"+gateway+":8000")
}

// The package for Debian is installed as the guide says, the lock service that it brings is
// started by systemd and holds a lock, and the package goes again.
func TestDebianPackage(t *testing.T) {
	needs(t, "debootstrap", "nsenter", "python3")
	l := newLAN(t)
	page := l.page()
	m := l.boot("deb")
	steps := part(t, installing, "## A package", "sh")
	m.must(page.Replace(steps[0]))
	if out := m.must("command -v tenure; tenure --version; getent passwd tenured"); !strings.Contains(out, "/usr/bin/tenure\ntenure "+version+" ") {
		t.Errorf("installed is %s", out)
	}
	m.must("tenure run --store sqlite:/run/locks.db x -- true")
	if out, _ := m.try("systemctl is-active tenured"); out != "inactive\n" {
		t.Errorf("it is %q before there are tokens", out)
	}
	out, err := m.try(steps[1])
	if err != nil {
		log, _ := m.try("journalctl --no-pager --unit=tenured")
		t.Fatalf("%v: %s\n%s", err, out, log)
	}
	token, _, _ := strings.Cut(out, "\n")
	eventually(t, time.Minute, "the service is active", func() bool { _, err := m.try("systemctl is-active tenured"); return err == nil })
	acquire := `curl -fsS --unix-socket /run/tenured/tenured.sock -H "Authorization: Bearer ` + token + `" -H 'Content-Type: application/json' http://localhost/v1/acquire -d '{"name": "report", "owner": "me"}'`
	if out := m.must(acquire); !strings.Contains(out, `"token":1`) {
		t.Errorf("the service says %s", out)
	}
	// An update starts a service that runs again: the lock is in its store.
	m.must("systemctl show --property=MainPID tenured >before; dpkg --install tenure_*.deb; systemctl show --property=MainPID tenured >after; ! cmp -s before after; systemctl is-active tenured")
	m.must("dpkg --remove tenure; ! command -v tenure; test -d /etc/tenured; test -e /var/lib/tenured/locks.db")
	if out, _ := m.try("systemctl is-active tenured"); out != "inactive\n" {
		t.Errorf("the service is %q after the package has gone", out)
	}
}

// The package for Red Hat is installed into an empty root, by rpm; its scripts, which are those
// of the other package, need a system.
func TestRPM(t *testing.T) {
	needs(t, "rpm", "chroot")
	file := only(t, ".rpm")
	if out := output(t, "/", "rpm", "--checksig", "--verbose", file); strings.Contains(strings.ToLower(out), "bad") {
		t.Errorf("rpm says %s", out)
	}
	root := t.TempDir()
	output(t, "/", "rpm", "--root", root, "--install", "--nodeps", "--noscripts", file)
	out, err := exec.CommandContext(t.Context(), "chroot", root, "/usr/bin/tenure", "--version").Output()
	if err != nil || !strings.HasPrefix(string(out), "tenure "+version+" ") {
		t.Errorf("installed is %q, %v", out, err)
	}
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/tenured.service"))
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/usr/bin/tenured ") || strings.Contains(string(unit), "/usr/local") {
		t.Errorf("the unit is %s, %v", unit, err)
	}
	output(t, "/", "rpm", "--root", root, "--erase", "--noscripts", "tenure")
	if _, err := os.Stat(root + "/usr/bin/tenure"); err == nil {
		t.Error("it stays")
	}
}

// From the release page to a lock that two machines contend for: what the guide says, as it
// stands, but for the page's address and the database's.
func TestTwoMachines(t *testing.T) {
	needs(t, "debootstrap", "nsenter", "python3")
	l := newLAN(t)
	page, store := l.page(), l.postgres()
	a, b := l.boot("a"), l.boot("b")
	begin := time.Now()
	steps := part(t, installing, "## A lock on two machines", "sh")
	name := strings.Replace(steps[0], "postgres://tenure@db-1/locks?sslmode=verify-full", store, 1)
	if name == steps[0] {
		t.Fatalf("another store is named: %s", name)
	}
	a.must(page.Replace(part(t, installing, "## An archive", "sh")[0]))
	b.must(page.Replace(part(t, installing, "## An archive", "sh")[0]))
	a.must(name)
	export, _, _ := strings.Cut(name, "\n")
	a.must("systemd-run --unit=first --setenv=TENURE_STORE='" + store + "' " + steps[1])
	eventually(t, time.Minute, "the first machine holds the lock", func() bool {
		_, err := a.try(export + "; tenure status nightly -q --exit-code")
		return err == nil
	})
	out, err := b.try(export + "\n" + steps[2])
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 75 || !strings.Contains(out, `held by "`+a.name) { //nolint:errorlint // as it is
		t.Errorf("the second machine ends with %v, and says %s", err, out)
	}
	a.must("systemctl stop first")
	if out := b.must(export + "\n" + steps[2]); !strings.HasSuffix(out, "mine\n") {
		t.Errorf("when the first one has stopped, the second one says %s", out)
	}
	if took := time.Since(begin); took > 10*time.Minute {
		t.Errorf("it takes %s", took)
	} else {
		t.Logf("it took %s", took.Round(time.Second))
	}
}
