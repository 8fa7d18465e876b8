// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
)

// What an operator types. The lines are for a shell, in the folder in which tenured cluster
// was run.

// Etcdctl returns a line after which etcdctl reaches the cluster, as its operator.
func (f *Folder) Etcdctl() string {
	var urls []string
	for _, n := range f.plan.Nodes {
		if !n.Joining {
			urls = append(urls, f.plan.Settings.clientURL(n))
		}
	}
	return f.etcdctl(strings.Join(urls, ","))
}

func (f *Folder) etcdctl(urls string) string {
	file := func(name string) string { return quoted(filepath.ToSlash(filepath.Join(f.dir, adminDir, name))) }
	return fmt.Sprintf("export ETCDCTL_ENDPOINTS=%s ETCDCTL_CACERT=%s ETCDCTL_CERT=%s ETCDCTL_KEY=%s",
		urls, file("ca.crt"), file(adminUser+".crt"), file(adminUser+".key"))
}

// quoted returns a word of a shell.
func quoted(word string) string {
	if folderPattern.MatchString("/" + word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Roles returns the lines that have programs write below the prefix alone. Until then whoever
// has a certificate that the authority of clients has signed may do everything.
func (f *Folder) Roles() []string {
	return []string{
		f.Etcdctl(),
		"etcdctl user add " + adminUser + " --no-password",
		"etcdctl user grant-role " + adminUser + " root",
		"etcdctl role add " + programUser,
		fmt.Sprintf("etcdctl role grant-permission %s readwrite --prefix=true %s/", programUser, f.plan.Settings.Prefix),
		"etcdctl user add " + programUser + " --no-password",
		fmt.Sprintf("etcdctl user grant-role %s %[1]s", programUser),
		"etcdctl auth enable",
	}
}

// cure returns the steps after an alarm NOSPACE, in their order. Members are all, as they are
// seen now.
func (f *Folder) cure(members []member, revision int64) []string {
	leader := those(members, member.leads)
	steps := []string{
		f.Etcdctl(),
		fmt.Sprintf("etcdctl compact %d --physical", revision),
	}
	for _, m := range append(those(members, func(m member) bool { return !m.leads() }), leader...) {
		steps = append(steps, defrag(m))
	}
	return append(steps, "etcdctl alarm disarm", "tenured cluster check --dir "+quoted(f.dir))
}

// defrag is what defragments one member. Etcdctl refuses a flag beside its variable.
func defrag(m member) string {
	return "ETCDCTL_ENDPOINTS=" + m.url + " etcdctl defrag --command-timeout=2m"
}

// bumpedRevision is by how much a restore raises the revision: by more than there can have
// been writes since the snapshot.
const bumpedRevision = 1_000_000_000

// Restore returns what an operator does after a loss, in this order: of all members, or of
// most of them for good. It has a new token for the cluster.
func (f *Folder) Restore() []string {
	s, token := f.plan.Settings, newToken()
	var members []Node
	for _, n := range f.plan.Nodes {
		if !n.Joining {
			members = append(members, n)
		}
	}
	program := "etcdutl"
	if s.Etcd == "3.4" { // it came with 3.5
		program = "etcdctl"
	}
	lines := []string{
		"# Print this once for all nodes: the token of the cluster is a new one each time.",
		"",
		"# 1. On every node: stop etcd. From then on wait for the longest lease that any program",
		"#    uses: nobody believes in a lock any more. Stop the programs, if you can.",
		"systemctl stop etcd",
		"",
		"# 2. Take one snapshot to every node, as snapshot.db, and restore it there.",
	}
	for _, n := range members {
		lines = append(lines, "#    On "+n.Name+":",
			fmt.Sprintf("mv -T %s %[1]s.lost", s.DataDir),
			fmt.Sprintf("%s snapshot restore snapshot.db --data-dir %s --name %s --initial-cluster %s --initial-cluster-token %s --initial-advertise-peer-urls %s --bump-revision %d --mark-compacted",
				program, s.DataDir, n.Name, s.initialCluster(members), token, s.peerURL(n), bumpedRevision),
			"chown -R etcd: "+s.DataDir)
	}
	return append(lines, "",
		"# 3. Start every node for itself alone, in a terminal: no client of another machine is",
		"#    answered.",
		fmt.Sprintf("setpriv --reuid etcd --regid etcd --clear-groups etcd --config-file %s/%s", s.ConfigDir, restoreFile),
		"#    On one of them, with a copy of the folder "+adminDir+" there, raise the tokens, by more than",
		"#    any lock was given since the snapshot; --lease is the longest one.",
		fmt.Sprintf("TENURE_STORE='etcd://127.0.0.1:%d/%s?ca=%s/ca.crt&cert=%[3]s/%s.crt&key=%[3]s/%[4]s.key' tenure tokens raise --by 1000000 --lease 15s --yes", s.ClientPort, s.Prefix, adminDir, adminUser),
		"",
		"# 4. On one node after the other: end that etcd, and start it for all.",
		"systemctl start etcd",
		"tenured cluster check --dir "+quoted(f.dir))
}
