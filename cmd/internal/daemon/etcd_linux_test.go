// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// etcdPage is the page about etcd, and etcdFiles the folder of its files.
const (
	etcdPage  = "../../../docs/guides/etcd.md"
	etcdFiles = "../../../docs/guides/etcd"
)

// etcdGuide is the etcd of the guide, on this machine. What is typed, and what the members are
// started with, is what the page and its files say, but for addresses and folders.
type etcdGuide struct {
	t       *testing.T
	dir     string // a copy of the guide's folder
	bin     string // has etcd, etcdctl and etcdutl
	members map[string]*guidedMember
}

// guidedMember is a member. Other machines would find it at client and peer, programs of its
// own machine at local.
type guidedMember struct {
	*enginetest.Engine
	name, dir                    string
	client, peer, local, metrics string
}

func newEtcdGuide(t *testing.T, names ...string) *etcdGuide {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a minute, and three etcd: make nightly-kills")
	}
	for _, program := range []string{"bash", "curl", "jq", "openssl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s: apt-get install %[1]s", program)
		}
	}
	bin := filepath.Dir(enginetest.Program(t, "etcd", "etcd"))
	g := &etcdGuide{t: t, dir: t.TempDir(), bin: bin, members: map[string]*guidedMember{}}
	if err := os.CopyFS(g.dir, os.DirFS(etcdFiles)); err != nil {
		t.Fatal(err)
	}
	port := func() string { return fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t)) }
	for _, name := range names {
		g.members[name] = &guidedMember{
			name: name, dir: t.TempDir(), client: port(), peer: port(), local: port(), metrics: port(),
		}
	}
	return g
}

// here puts what this machine has in the place of addresses and folders that a text names. It
// is one for a machine of a member, or for no machine in particular.
func (g *etcdGuide) here(m *guidedMember) *strings.Replacer {
	var pairs []string
	if m != nil {
		pairs = []string{
			"0.0.0.0:2379", m.local, "0.0.0.0:2380", m.peer, "127.0.0.1:2379", m.local, "127.0.0.1:2381", m.metrics,
			"etcd://127.0.0.1/", "etcd://" + m.local + "/", "/etc/etcd", m.dir + "/etc", "/var/lib/etcd", m.dir,
		}
	}
	for i, name := range slices.Sorted(maps.Keys(g.members)) {
		other, address := g.members[name], fmt.Sprintf("10.0.0.%d", i+1)
		pairs = append(pairs,
			address+":2379", other.client, address+":2380", other.peer,
			address+",", other.client+",", address+"/", other.client+"/",
			"//"+name+":2379", "//"+other.client, "//"+name+":2380", "//"+other.peer)
	}
	return strings.NewReplacer(pairs...)
}

// block returns a block of the page: the first below a heading that begins so.
func (g *etcdGuide) block(heading, begins string) string {
	g.t.Helper()
	for _, b := range blocks(part(g.t, etcdPage, heading), "sh") {
		if strings.HasPrefix(strings.TrimSpace(b), begins) {
			return b
		}
	}
	g.t.Fatalf("nothing below %q begins with %q", heading, begins)
	return ""
}

// try types a script, as an operator or, with a member, on its machine. What names systemd or
// users does nothing: the test has other processes, of one user.
func (g *etcdGuide) try(m *guidedMember, script string) (string, error) {
	ctl := ""
	if m == nil {
		ctl = g.here(nil).Replace(g.block("## Three members", "export ETCDCTL"))
	} else {
		script = "chown() { :; }\n" + script
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", ctl+script)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "PATH="+g.bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must types a script that has to end well, and returns what it prints.
func (g *etcdGuide) must(m *guidedMember, script string) string {
	g.t.Helper()
	out, err := g.try(m, script)
	if err != nil {
		g.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// typed has a block typed.
func (g *etcdGuide) typed(m *guidedMember, heading, begins string) string {
	g.t.Helper()
	return g.must(m, g.here(m).Replace(g.block(heading, begins)))
}

// install takes the folder of a member to its machine.
func (g *etcdGuide) install(m *guidedMember) {
	g.t.Helper()
	there := filepath.Join(m.dir, "etc")
	if err := os.CopyFS(there, os.DirFS(filepath.Join(g.dir, m.name))); err != nil {
		g.t.Fatal(err)
	}
	for _, file := range []string{"etcd.env", "node.env"} {
		text, err := os.ReadFile(filepath.Join(there, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(there, file), []byte(g.here(m).Replace(string(text))), 0o600)
		}
		if err != nil {
			g.t.Fatal(err)
		}
	}
}

// start starts a member by the names of its files of variables, below /etc/etcd, and what its
// command is.
func (g *etcdGuide) start(m *guidedMember, command []string, files []string) {
	g.t.Helper()
	if filepath.Base(command[0]) != "etcd" {
		g.t.Fatalf("%q does not start etcd", command)
	}
	var env []string
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(m.dir, "etc", file))
		if err != nil {
			g.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
				env = append(env, name+"="+strings.Trim(value, `"`))
			}
		}
	}
	args := append([]string{filepath.Join(g.bin, "etcd")}, command[1:]...)
	m.Engine = enginetest.NewEngine(g.t, args, env, func() error {
		_, err := g.try(m, "curl --silent --show-error --max-time 2 http://"+m.metrics+"/health | grep true")
		return err
	})
	m.Start()
}

// startUnit starts a member as the unit of systemd does.
func (g *etcdGuide) startUnit(m *guidedMember) {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, "etcd.service"))
	if err != nil {
		g.t.Fatal(err)
	}
	var command, files []string
	for line := range strings.Lines(string(text)) {
		if file, ok := strings.CutPrefix(strings.TrimSpace(line), "EnvironmentFile=/etc/etcd/"); ok {
			files = append(files, file)
		} else if words, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
			command = strings.Fields(words)
		}
	}
	g.start(m, command, files)
}

// await waits until all members that run answer.
func (g *etcdGuide) await() {
	g.t.Helper()
	for _, m := range g.members {
		if m.Engine != nil && m.Running() {
			m.Await()
		}
	}
}

// store is the URL of a block that exports TENURE_STORE, by which this test reaches it.
func (g *etcdGuide) store(m *guidedMember, heading string) string {
	g.t.Helper()
	_, url, _ := strings.Cut(g.here(m).Replace(g.block(heading, "export TENURE_STORE=")), "'")
	url, _, _ = strings.Cut(url, "'")
	return strings.ReplaceAll(url, "=client/", "="+g.dir+"/client/")
}

// client returns a client of the store, until the test ends.
func (g *etcdGuide) client(url, owner string) *tenure.Client {
	g.t.Helper()
	at, err := storeurl.Parse(url)
	if err != nil {
		g.t.Fatal(err)
	}
	var store driver.Store
	if store, err = at.Open(); err != nil {
		g.t.Fatal(err)
	}
	client, err := tenure.New(store, &tenure.Options{Owner: owner})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(g.t.Context()), 100*time.Millisecond)
		defer cancel()
		_, _ = client.Close(ctx), store.Close() // the engine may be gone
	})
	return client
}

// TestEtcdGuide takes the etcd of the guide through its life: written, installed, the first
// lock, who is refused, a member that is lost, a restore. Package test/chaos has the faults of etcd.
func TestEtcdGuide(t *testing.T) {
	t.Parallel()
	g := newEtcdGuide(t, "a", "b", "c", "d")
	begun := time.Now()
	mark := func(what string) { t.Logf("%8v  %s", time.Since(begun).Round(time.Millisecond), what) }
	g.must(nil, g.block("## Three members", "sh nodes.sh")) // with its addresses
	for _, name := range []string{"a", "b", "c"} {
		g.install(g.members[name])
		g.startUnit(g.members[name])
	}
	g.await()
	mark("started")
	g.strangers()
	g.typed(nil, "## Three members", "etcdctl user add root")
	if out := g.typed(nil, "## Three members", "export TENURE_STORE"); !strings.HasSuffix(out, "mine\n") {
		t.Fatalf("the first lock: %s", out)
	} else {
		t.Log(out)
	}
	out, err := g.try(nil, "export ETCDCTL_CERT=client/locks.crt ETCDCTL_KEY=client/locks.key; etcdctl put elsewhere x")
	if err == nil || !strings.Contains(out, "permission denied") {
		t.Fatalf("a program wrote beside its prefix: %v: %s", err, out)
	}
	mark("the first lock")
	g.replace()
	mark("replaced c")
	g.restore()
	mark("restored")
}

// strangers shows who is refused: a client with the certificate of a peer, and a peer with that
// of a client. Each is let in where it belongs.
func (g *etcdGuide) strangers() {
	g.t.Helper()
	a := g.members["a"]
	for _, tc := range []struct {
		at, ca, cert string
		in           bool
	}{
		{a.client, "ca", "client/locks", true},
		{a.client, "ca", "b/peer", false},
		{a.peer, "peer-ca", "b/peer", true},
		{a.peer, "peer-ca", "client/locks", false},
		{a.peer, "peer-ca", "b/server", false},
	} {
		out, err := g.try(nil, fmt.Sprintf("curl --http1.1 --silent --show-error --fail --max-time 20 --cacert "+
			"ca/%s.crt --cert %s.crt --key %[2]s.key https://%s/version", tc.ca, tc.cert, tc.at))
		if (err == nil) != tc.in {
			g.t.Fatalf("%s at %s: %v: %s", tc.cert, tc.at, err, out)
		}
	}
}

// replace has c lose its disk, and d take its place.
func (g *etcdGuide) replace() {
	g.t.Helper()
	c, d := g.members["c"], g.members["d"]
	c.Kill()
	// Without the lines that etcdctl prints d does not begin a cluster of its own.
	g.must(nil, "sh nodes.sh d=10.0.0.4")
	g.install(d)
	if out, err := g.try(d, "set -a; cd "+d.dir+"/etc; . ./etcd.env; . ./node.env; timeout 30 etcd"); err == nil ||
		!strings.Contains(out, "could not retrieve cluster information") {
		g.t.Errorf("a member that nobody has added: %v: %s", err, out)
	}
	g.must(nil, "rm -r "+d.dir+"/etc "+d.dir+"/data")
	g.typed(nil, "### Replace a member", "etcdctl member remove")
	g.install(d)
	g.startUnit(d)
	d.Await()
	g.typed(nil, "### Replace a member", "until etcdctl member promote")
	if out := g.must(nil, "etcdctl member list"); strings.Count(out, "started") != 3 || strings.Contains(out, " c,") {
		g.t.Errorf("the members are\n%s", out)
	}
}

// restore goes back to a snapshot. The token of the lock that others have had since is given
// again if the tokens are not raised, and a higher one if they are.
func (g *etcdGuide) restore() {
	t, highest := g.t, uint64(0)
	t.Helper()
	url := g.store(nil, "## Three members")
	g.typed(nil, "## Backup and restore", "ETCDCTL_ENDPOINTS")
	taken := func(owner, url string) uint64 {
		t.Helper()
		lease, err := g.client(url, owner).Acquire(t.Context(), "contended", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		return lease.Token()
	}
	gate := fence.NewGate(nil)
	for range 3 {
		if token := taken("before", url); token <= highest {
			t.Fatalf("token %d after %d", token, highest)
		} else {
			highest = token
		}
	}
	if err := gate.Admit(t.Context(), "contended", highest); err != nil {
		t.Fatal(err)
	}
	// The page names three machines, a, b and c: c is back, with an empty disk, for d.
	for _, m := range g.members {
		m.End(syscall.SIGTERM)
	}
	back := []*guidedMember{g.members["a"], g.members["b"], g.members["c"]}
	for _, m := range back {
		g.typed(m, "## Backup and restore", "mv /var/lib/etcd/data")
		g.startUnit(m)
	}
	for _, m := range back {
		m.Await()
		if c, err := net.DialTimeout("tcp", m.client, 2*time.Second); err == nil {
			_ = c.Close()
			t.Errorf("%s answers other machines before the tokens are raised", m.name)
		}
	}
	// The harm, that the raise is for.
	if token := taken("early", g.store(back[0], "## Backup and restore")); token > highest {
		t.Errorf("token %d was given after %d: the harm is gone, and with it the point of raising", token, highest)
	} else if err := gate.Admit(t.Context(), "contended", token); err == nil {
		t.Errorf("a fence that has seen %d lets %d in", highest, token)
	}
	t.Log(g.typed(back[0], "## Backup and restore", "export TENURE_STORE"))
	for _, m := range back {
		m.End(syscall.SIGTERM)
		g.must(m, "sed -i '$d' "+m.dir+"/etc/node.env")
		g.startUnit(m)
		m.Await()
	}
	if token := taken("after", url); token <= highest {
		t.Errorf("token %d was given after %d", token, highest)
	} else if err := gate.Admit(t.Context(), "contended", token); err != nil {
		t.Error(err)
	}
}

// TestEtcdCompose starts the members as the guide's file for Compose does, fills their quota,
// and cures that as the guide says.
func TestEtcdCompose(t *testing.T) {
	t.Parallel()
	g := newEtcdGuide(t, "a", "b", "c")
	g.must(nil, "sh nodes.sh a b c")
	g.must(nil, "sed -i 's/^ETCD_QUOTA_BACKEND_BYTES=.*/ETCD_QUOTA_BACKEND_BYTES=8388608/' */etcd.env")
	text, err := os.ReadFile(filepath.Join(g.dir, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Command, Volumes, Ports []string
			EnvFile                 []string `json:"env_file"`
		}
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	var urls, ports []string
	for _, name := range slices.Sorted(maps.Keys(compose.Services)) {
		s, m := compose.Services[name], g.members[name]
		if m == nil || !slices.Equal(s.Volumes, []string{"./" + name + ":/etc/etcd:ro", name + ":/var/lib/etcd"}) {
			t.Fatalf("%s has the volumes %q", name, s.Volumes)
		}
		g.install(m)
		var files []string
		for _, file := range s.EnvFile {
			files = append(files, strings.TrimPrefix(file, name+"/"))
		}
		g.start(m, s.Command, files)
		urls, ports = append(urls, m.local), append(ports, strings.TrimSuffix(strings.Join(s.Ports, " "), ":2379"))
	}
	said := "`" + strings.ReplaceAll(strings.Join(ports, "`, `"), ", `127.0.0.1", ", `") + "`"
	said = said[:strings.LastIndex(said, ", ")] + " and" + said[strings.LastIndex(said, ", ")+1:]
	if !strings.Contains(part(t, etcdPage, "## Three members"), said) {
		t.Errorf("the page does not say that the members are at %s", said)
	}
	g.await()
	g.settings(g.members["a"])
	url := "etcd://" + strings.Join(urls, ",") + "/tenure?ca=client/ca.crt&cert=client/locks.crt&key=client/locks.key"
	g.must(nil, "tenure run --store '"+url+"' first -- true")
	g.members["a"].Kill()
	eventually(t, "another leader, and the lock", func() bool {
		_, err := g.try(nil, "tenure run --store '"+url+"' first -- true")
		return err == nil
	})
	g.members["a"].Start()
	g.await()

	ctl := "export ETCDCTL_ENDPOINTS=https://" + strings.Join(urls, ",https://") + "\n"
	const fill = "head --bytes=500000 /dev/zero | tr '\\0' x >large; " +
		"for i in $(seq 100); do etcdctl put tenure/large <large; done"
	if out, err := g.try(nil, ctl+fill); err == nil || !strings.Contains(out, "space exceeded") {
		t.Fatalf("the quota is not full: %v: %s", err, out)
	}
	if out, err := g.try(nil, "tenure run --store '"+url+"' --wait 0 first -- true"); err == nil ||
		!strings.Contains(out, "quota is full") {
		t.Errorf("a lock with a full quota: %v: %s", err, out)
	}
	g.must(nil, ctl+g.block("### When the quota is full", "etcdctl compact"))
	g.must(nil, "tenure run --store '"+url+"' first -- true")
}

// settings sees that a member has taken the settings. Of a variable that it does not know etcd
// only warns.
func (g *etcdGuide) settings(m *guidedMember) {
	g.t.Helper()
	metrics := g.must(m, "curl --silent --fail http://"+m.metrics+"/metrics")
	for _, want := range []string{
		`(?m)^etcd_server_feature_enabled\{name="InitialCorruptCheck",.*\} 1$`,
		`(?m)^etcd_server_feature_enabled\{name="CompactHashCheck",.*\} 1$`,
		`(?m)^etcd_server_quota_backend_bytes 8\.388608e\+06$`,
	} {
		if !regexp.MustCompile(want).MatchString(metrics) {
			g.t.Errorf("no metric %s", want)
		}
	}
	text, err := os.ReadFile(filepath.Join(m.dir, "etc", "etcd.env"))
	if err != nil {
		g.t.Fatal(err)
	}
	help := g.must(nil, "etcd --help 2>&1")
	for _, found := range regexp.MustCompile(`(?m)^ETCD_(\w+)=`).FindAllStringSubmatch(string(text), -1) {
		flag := "--" + strings.ToLower(strings.ReplaceAll(found[1], "_", "-"))
		if !regexp.MustCompile(`(?m)^\s*` + flag + `\b`).MatchString(help) {
			g.t.Errorf("etcd has no flag %s", flag)
		}
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); pause(t.Context(), 20*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not come: %s", what)
		}
	}
}
