// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/yaml"

	"github.com/tenurelock/tenure/cmd/internal/doctor"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// nodesOf reads nodes as they stand on a command line.
func nodesOf(t *testing.T, words ...string) (nodes []Node) {
	t.Helper()
	for _, word := range words {
		n, err := ParseNode(word)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func mustInit(t *testing.T, s Settings, words ...string) *Folder {
	t.Helper()
	f, err := Init(filepath.Join(t.TempDir(), "cluster"), s, nodesOf(t, words...), now)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// settingsIn reads a file as etcd does.
func settingsIn(t *testing.T, f *Folder, path string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, path))
	if err != nil {
		t.Fatal(err)
	}
	var have map[string]any
	if err := yaml.UnmarshalStrict(text, &have); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return have
}

// Each kind of address stands where it must, in the form that is right there.
func TestAddresses(t *testing.T) {
	f := mustInit(t, Defaults(), "a=10.0.0.1", "b=FD00:0::2", "c.example.com")
	for _, tc := range []struct{ node, peers, clients, advertised string }{
		{"a", "https://10.0.0.1:2380", "https://10.0.0.1:2379,https://127.0.0.1:2379", "https://10.0.0.1:2379"},
		{"b", "https://[fd00::2]:2380", "https://[fd00::2]:2379,https://127.0.0.1:2379", "https://[fd00::2]:2379"},
		{"c.example.com", "https://0.0.0.0:2380", "https://0.0.0.0:2379", "https://c.example.com:2379"},
	} {
		have := settingsIn(t, f, tc.node+"/etcd.yaml")
		for key, want := range map[string]string{
			"name": tc.node, "listen-peer-urls": tc.peers, "listen-client-urls": tc.clients, "advertise-client-urls": tc.advertised,
			"initial-cluster": "a=https://10.0.0.1:2380,b=https://[fd00::2]:2380,c.example.com=https://c.example.com:2380", "initial-cluster-state": "new",
		} {
			if have[key] != want {
				t.Errorf("node %s: %s: %v, want %s", tc.node, key, have[key], want)
			}
		}
		quiet := settingsIn(t, f, tc.node+"/restore.yaml")
		for key, value := range have {
			own := key == "listen-client-urls" || key == "advertise-client-urls"
			if same := cmp.Equal(quiet[key], value); same == own || own && quiet[key] != "https://127.0.0.1:2379" {
				t.Errorf("node %s: %s is %v, and in restore.yaml %v", tc.node, key, value, quiet[key])
			}
		}
	}
	if want := "etcd://10.0.0.1:2379,[fd00::2]:2379,c.example.com:2379/tenure?ca="; !strings.HasPrefix(f.URL(), want) {
		t.Errorf("URL %s", f.URL())
	}
	if _, err := f.location(); err != nil {
		t.Error(err)
	}
}

// What etcd of a version does not know is not written for it.
func TestVersions(t *testing.T) {
	for version, want := range map[string][]string{
		"3.4": {"experimental-initial-corrupt-check"},
		"3.5": {"experimental-initial-corrupt-check", "experimental-compact-hash-check-enabled"},
		"3.6": {"feature-gates"},
		"3.7": {"feature-gates"},
	} {
		s := Defaults()
		s.Etcd, s.WAN = version, version == "3.7"
		have := settingsIn(t, mustInit(t, s, "a=10.0.0.1"), "a/etcd.yaml")
		var of []string
		for _, key := range []string{"experimental-initial-corrupt-check", "experimental-compact-hash-check-enabled", "feature-gates"} {
			if _, ok := have[key]; ok {
				of = append(of, key)
			}
		}
		if d := cmp.Diff(want, of); d != "" {
			t.Errorf("%s: %s", version, d)
		}
		if got := have["election-timeout"]; got != map[bool]float64{false: 1000, true: 3000}[s.WAN] {
			t.Errorf("WAN %v: election timeout %v", s.WAN, got)
		}
	}
}

// Keys are for their owner alone, and each line of etcd.yaml has a reason before it.
func TestFiles(t *testing.T) {
	f := mustInit(t, Defaults(), "a=10.0.0.1", "b=10.0.0.2", "c=10.0.0.3")
	keys := 0
	err := filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case d.IsDir() && info.Mode().Perm() != 0o700:
			t.Errorf("%s has mode %v", path, info.Mode())
		case strings.HasSuffix(path, ".key"):
			if keys++; info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
		}
		return nil
	})
	if err != nil || keys != 2+2+3*2 {
		t.Errorf("%d keys, %v", keys, err)
	}
	text, err := os.ReadFile(filepath.Join(f.dir, "a", "etcd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(text), "\n\n") {
		if !strings.HasPrefix(block, "# ") {
			t.Errorf("no reason for %q", block)
		}
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(f.dir), ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	again, err := Open(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(f.plan, again.plan); d != "" {
		t.Error(d)
	}
}

// A folder that cannot be written whole is not there.
func TestInitIsWholeOrNotAtAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	err := writeFolder(dir, map[string]file{"a/x": public(nil), "a": public(nil)})
	if err == nil {
		t.Fatal("a file was written in the place of a folder")
	}
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) > 0 {
		t.Errorf("%v is left behind after %v", left, err)
	}
}

// The file for Compose can be read, and gives each node the address that its certificate has.
func TestCompose(t *testing.T) {
	for _, tc := range []struct {
		words           []string
		subnet, gateway string
	}{
		{[]string{"a=10.0.0.1", "b=10.0.0.2", "c=10.0.0.3"}, "10.0.0.0/24", "10.0.0.4"},
		{[]string{"a=10.0.0.2", "b=10.0.1.2", "c=10.0.4.3"}, "10.0.0.0/21", "10.0.0.1"},
		{[]string{"a=fd00::1", "b=fd00::2", "c=fd00::3"}, "fd00::/64", "fd00::4"},
		{[]string{"a", "b", "c"}, "", ""},
	} {
		f := mustInit(t, Defaults(), tc.words...)
		text, err := os.ReadFile(filepath.Join(f.dir, composeFile))
		if err != nil {
			t.Fatal(err)
		}
		var have struct {
			Services map[string]struct{ Ports []string }
			Networks map[string]struct {
				IPAM struct {
					Config []struct{ Subnet, Gateway string }
				}
			}
		}
		if err := yaml.Unmarshal(text, &have); err != nil {
			t.Fatal(err)
		}
		if len(have.Services) != 3 || have.Services["b"].Ports[0] != "127.0.0.1:2389:2379" {
			t.Errorf("services %v", have.Services)
		}
		of := have.Networks["etcd"].IPAM.Config
		if tc.subnet == "" && len(of) > 0 || tc.subnet != "" && (len(of) != 1 || of[0].Subnet != tc.subnet || of[0].Gateway != tc.gateway) {
			t.Errorf("%v: network %v", tc.words, of)
		}
	}
}

// No certificate is good for what it is not for: also not with the right authority.
func TestCertificates(t *testing.T) {
	f := mustInit(t, Defaults(), "a=10.0.0.1")
	cert := func(path string) *x509.Certificate {
		c, err := readCertificate(filepath.Join(f.dir, path+".crt"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, ca := range []string{"ca/client-ca", "ca/peer-ca"} {
		roots := x509.NewCertPool()
		roots.AddCert(cert(ca))
		for _, tc := range []struct {
			leaf  string
			usage x509.ExtKeyUsage
			by    string // which authority, "" for none
		}{
			{"client/tenure", x509.ExtKeyUsageClientAuth, "ca/client-ca"},
			{"client/tenure", x509.ExtKeyUsageServerAuth, ""},
			{"admin/root", x509.ExtKeyUsageClientAuth, "ca/client-ca"},
			{"a/server", x509.ExtKeyUsageServerAuth, "ca/client-ca"},
			{"a/server", x509.ExtKeyUsageClientAuth, ""},
			{"a/peer", x509.ExtKeyUsageServerAuth, "ca/peer-ca"},
			{"a/peer", x509.ExtKeyUsageClientAuth, "ca/peer-ca"},
		} {
			_, err := cert(tc.leaf).Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now.AddDate(1, 11, 0), KeyUsages: []x509.ExtKeyUsage{tc.usage}})
			if (err == nil) != (tc.by == ca) {
				t.Errorf("%s for usage %v by %s: %v", tc.leaf, tc.usage, ca, err)
			}
		}
	}
	server := cert("a/server")
	for _, host := range []string{"a", "localhost", "10.0.0.1", "127.0.0.1", "::1"} {
		if err := server.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if years := server.NotAfter.Sub(now).Hours() / 24 / 365; years < 1.9 || years > 2.1 {
		t.Errorf("it is good for %.1f years", years)
	}
}

// A certificate does not outlive its authority, and an authority that has ended signs nothing.
func TestRenewalEndsWithTheAuthority(t *testing.T) {
	f := mustInit(t, Defaults(), "a=10.0.0.1")
	if _, err := f.Renew("", now.AddDate(9, 0, 0)); err != nil {
		t.Fatal(err)
	}
	all, err := f.Certificates()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if !c.End.Equal(now.AddDate(10, 0, 0)) {
			t.Errorf("%s ends on %v", c.File, c.End)
		}
	}
	if _, err := f.Renew("", now.AddDate(10, 0, 1)); err == nil || !strings.Contains(err.Error(), "has ended on 2036-03-01") {
		t.Errorf("an authority that has ended: %v", err)
	}
}

// What ends soon is told, and what has ended is bad.
func TestEnds(t *testing.T) {
	f := mustInit(t, Defaults(), "a=10.0.0.1")
	for _, tc := range []struct {
		at   time.Time
		want doctor.Level
		text string
	}{
		{now, doctor.OK, "the first of 6 to end is"},
		{now.AddDate(2, 0, -61), doctor.OK, "the first of 6 to end is"},
		{now.AddDate(2, 0, -59), doctor.Warn, "ends on 2028-03-01, in 59 days"},
		{now.AddDate(2, 0, 1), doctor.Bad, "has ended on 2028-03-01, and is refused"},
	} {
		var found []doctor.Finding
		x := &examination{f: f, now: tc.at, tell: func(f doctor.Finding) { found = append(found, f) }}
		x.certificates()
		if len(found) == 0 || found[0].Level != tc.want || !strings.Contains(found[0].Finding, tc.text) {
			t.Errorf("at %v: %v", tc.at, found)
		}
	}
}

// seen makes a member as it is seen: v a voter that is well, L one that leads, d one that is
// dead, l a learner.
func seen(kinds string) (all []member) {
	for i, kind := range kinds {
		m := member{Member: &etcdserverpb.Member{ID: uint64(i + 1), IsLearner: kind == 'l'}, node: fmt.Sprintf("%c%d", kind, i+1)}
		if kind != 'd' {
			m.status = &clientv3.StatusResponse{Leader: uint64(strings.IndexRune(kinds, 'L') + 1)}
		} else {
			m.err = os.ErrDeadlineExceeded
		}
		all = append(all, m)
	}
	return all
}

// Nobody is removed without whom there is no quorum.
func TestMayShrink(t *testing.T) {
	for kinds, want := range map[string]string{ // the first is to be removed
		"vLv":   "",
		"dLv":   "",
		"vLd":   "without v1 the cluster would be lost: 2 members would have to agree of 2 voting members, and 1 is well; repair or remove d3 first",
		"L":     "is the only member that votes",
		"vL":    "",
		"vLvd":  "",
		"vLdvd": "without v1 the cluster would be lost",
		"dLdvv": "",
		"Ll":    "is the only member that votes",
	} {
		all := seen(kinds)
		err := mayShrink(all[1:], all[0])
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", kinds, err, want)
		}
	}
}

// Nobody is added beside one who is dead, or who is being added.
func TestMayGrow(t *testing.T) {
	for kinds, want := range map[string]string{
		"Lvv": "", "Lvd": "d3 does not answer", "Lvvl": "l4 is being added, and one at a time is", "L": "",
		"vvv": "is not well", // there is no leader
	} {
		err := mayGrow(seen(kinds), Node{Name: "new"})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", kinds, err, want)
		}
	}
}

// TestChangeIsAskedForAgain: a member that is removed may stop before it has said so, and
// members that have just met each other change nothing.
func TestChangeIsAskedForAgain(t *testing.T) {
	gone := status.Error(codes.Unavailable, "connection refused")
	denied := errors.New("permission denied")
	for _, tc := range []struct {
		answers []error // the last one again and again
		calls   int
		want    error
	}{
		{[]error{nil}, 1, nil},
		{[]error{denied}, 1, denied},
		{[]error{rpctypes.ErrMemberNotFound}, 1, nil},
		{[]error{rpctypes.ErrStopped, rpctypes.ErrMemberNotFound}, 2, nil},
		{[]error{rpctypes.ErrUnhealthy, gone, nil}, 3, nil},
		{[]error{rpctypes.ErrUnhealthy, denied}, 2, denied},
		{[]error{gone}, int(settled/pause) + 2, gone},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			err := change(t.Context(), rpctypes.ErrMemberNotFound, func(context.Context) error {
				calls++
				return tc.answers[min(calls, len(tc.answers))-1]
			})
			if !errors.Is(err, tc.want) || calls != tc.calls {
				t.Errorf("%v: %v after %d calls, want %v after %d", tc.answers, err, calls, tc.want, tc.calls)
			}
		})
	}
}

// The cure of a full quota compacts, then has each member defragmented, the leader last, and
// only then takes the alarm away.
func TestCure(t *testing.T) {
	f := mustInit(t, Defaults(), "a=10.0.0.1", "b=10.0.0.2", "c=10.0.0.3")
	all := seen("vLv")
	for i := range all {
		all[i].url = fmt.Sprint("https://", i)
	}
	want := []string{
		f.Etcdctl(), "etcdctl compact 7 --physical",
		"ETCDCTL_ENDPOINTS=https://0 etcdctl defrag --command-timeout=2m", "ETCDCTL_ENDPOINTS=https://2 etcdctl defrag --command-timeout=2m",
		"ETCDCTL_ENDPOINTS=https://1 etcdctl defrag --command-timeout=2m", "etcdctl alarm disarm", "tenured cluster check --dir " + f.dir,
	}
	if d := cmp.Diff(want, f.cure(all, 7)); d != "" {
		t.Error(d)
	}
}

func TestQuantile(t *testing.T) {
	const histogram = "# HELP x\nx_bucket{le=\"0.001\"} 90\nx_bucket{le=\"0.008\"} 99\nx_bucket{le=\"+Inf\"} 100\nx_sum 3\n"
	for part, want := range map[float64]time.Duration{0.9: time.Millisecond, 0.99: 8 * time.Millisecond, 1: math.MaxInt64} {
		if took, n, err := quantile(strings.NewReader(histogram), "x_bucket", part); took != want || n != 100 || err != nil {
			t.Errorf("%v: %v of %d, %v", part, took, n, err)
		}
	}
	for _, text := range []string{"", "x_bucket{le=\"0.001\"} 0\n", "x_bucket{le=\"y\"} 1\n"} {
		if took, n, err := quantile(strings.NewReader(text), "x_bucket", 0.5); err == nil {
			t.Errorf("%q: %v of %d", text, took, n)
		}
	}
}

// examined returns what an examination of members finds, without what is well.
func examined(t *testing.T, all []member, examine func(*examination)) (found []string) {
	t.Helper()
	f := mustInit(t, Defaults(), "a=10.0.0.1")
	f.plan.Nodes = nil
	for _, m := range all {
		f.plan.Nodes = append(f.plan.Nodes, Node{Name: m.node, Address: m.node})
	}
	examine(&examination{f: f, members: all, now: now, tell: func(d doctor.Finding) {
		if d.Level != doctor.OK {
			found = append(found, d.String())
		}
	}})
	return found
}

// What a cluster can still lose, who does not vote, and who is not known, is told.
func TestMembership(t *testing.T) {
	for kinds, want := range map[string][]string{
		"vLv": nil,
		"vLd": {"warn  members: 3 voting members, of which 2 are well; L2 leads: one more loss ends all leases", "warn  members: d3 does not answer"},
		"Ldd": {"bad   members: 3 voting members, of which 1 is well", "warn  members: d2 does not answer", "warn  members: d3 does not answer"},
		"vLl": {"warn  members: 2 voting members, of which 2 are well; L2 leads: one more loss ends all leases", "warn  members: l3 is a learner, and has no vote"},
		"vvv": {"bad   members: 3 voting members, of which 0 are well"},
	} {
		found := examined(t, seen(kinds), (*examination).membership)
		if len(found) != len(want) {
			t.Errorf("%s: %q", kinds, found)
			continue
		}
		for i, begin := range want {
			if !strings.HasPrefix(found[i], begin) {
				t.Errorf("%s: %q, want %q", kinds, found[i], begin)
			}
		}
	}
	strange := examined(t, seen("vLv"), func(x *examination) {
		x.f.plan.Nodes[2].Name = "gone"
		x.membership()
	})
	if len(strange) != 2 || !strings.Contains(strange[0], "v3 is a member, and not in this folder") || !strings.Contains(strange[1], "gone is in this folder, and no member") {
		t.Errorf("%q", strange)
	}
}

// Different minor versions are an upgrade that is under way; different patches are nothing.
func TestVersionsOfMembers(t *testing.T) {
	for versions, want := range map[string]string{
		"3.7.3 3.7.3": "", "3.7.3 3.7.2": "", "3.6.9 3.7.0": "end the upgrade: one minor version at a time", "3.5.1 3.5.1": "the files were written for 3.7",
	} {
		all := seen("vL")
		for i, version := range strings.Fields(versions) {
			all[i].status.Version = version
		}
		found := strings.Join(examined(t, all, (*examination).versions), "\n")
		if (found == "") != (want == "") || !strings.Contains(found, want) {
			t.Errorf("%s: %q, want %q", versions, found, want)
		}
	}
}

// A file is to be defragmented if it is above half of the quota, and half of it is free.
func TestPages(t *testing.T) {
	for _, tc := range []struct {
		size, used, quota int64
		told              bool
	}{{600, 200, 1000, true}, {400, 100, 1000, false}, {600, 400, 1000, false}, {0, 0, 1000, false}} {
		all := seen("L")
		all[0].url = "https://x"
		all[0].status.DbSize, all[0].status.DbSizeInUse, all[0].status.DbSizeQuota = tc.size, tc.used, tc.quota
		found := examined(t, all, (*examination).pages)
		if (len(found) == 1 && strings.Contains(found[0], "ETCDCTL_ENDPOINTS=https://x etcdctl defrag")) != tc.told {
			t.Errorf("%+v: %q", tc, found)
		}
	}
}
