// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Node is a machine of the cluster.
type Node struct {
	Name string `json:"name"`
	// Address is an IP address, without brackets, or a name of DNS.
	Address string `json:"address"`
	// Joining says that it was added, and is not known to vote yet.
	Joining bool `json:"joining,omitempty"`
}

// Settings are what the files of all nodes have in common. [Defaults] has values for all
// but the Token.
type Settings struct {
	// Etcd is the version of etcd that the files are for, such as "3.7": its names for
	// some settings have changed.
	Etcd string `json:"etcd"`
	// ConfigDir and DataDir are folders of each node: of what is written for it, and of
	// what etcd keeps.
	ConfigDir string `json:"config_dir"`
	DataDir   string `json:"data_dir"`

	ClientPort  int `json:"client_port"`
	PeerPort    int `json:"peer_port"`
	MetricsPort int `json:"metrics_port"`

	// WAN has the members wait longer for each other.
	WAN bool `json:"wan,omitempty"`
	// Quota is how large the database may become, in bytes.
	Quota int64 `json:"quota_bytes"`
	// Retention is for how long old revisions are kept, in seconds as a number of JSON.
	Retention Seconds `json:"retention_seconds"`
	// Prefix is where the locks are, without the slash at its end.
	Prefix string `json:"prefix"`
	// Token tells this cluster from others. [Init] makes it.
	Token string `json:"token"`
}

// Seconds is a duration that is written as whole seconds.
type Seconds int64

// Duration returns it as one.
func (s Seconds) Duration() time.Duration { return time.Duration(s) * time.Second }

// Versions are those of etcd for which files can be written, the newest one last.
var versions = []string{"3.4", "3.5", "3.6", "3.7"}

// The bounds of a quota: below the least a cluster cannot start, and above the most etcd
// itself warns, since a restart reads all of it.
const (
	leastQuota = 8 << 20
	mostQuota  = 8 << 30
)

// leastRetention is that of etcd, which compacts in steps of a tenth of it.
const leastRetention = time.Minute

// Defaults returns the settings of a cluster about which nothing is said.
func Defaults() Settings {
	return Settings{
		Etcd: versions[len(versions)-1], ConfigDir: "/etc/tenure-etcd", DataDir: "/var/lib/tenure-etcd",
		ClientPort: 2379, PeerPort: 2380, MetricsPort: 2381, Quota: 2 << 30, Retention: 3600, Prefix: "tenure",
	}
}

// The times of etcd's elections. A member that hears nothing of the leader for an election
// timeout calls an election.
func (s Settings) heartbeat() time.Duration {
	if s.WAN {
		return 300 * time.Millisecond
	}
	return 100 * time.Millisecond
}

func (s Settings) election() time.Duration { return 10 * s.heartbeat() }

var (
	prefixPattern = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)
	folderPattern = regexp.MustCompile(`^/[A-Za-z0-9._/-]*[A-Za-z0-9._-]$`)
)

// check returns what is wrong with the settings.
func (s Settings) check() error {
	ports := map[string]int{"--client-port": s.ClientPort, "--peer-port": s.PeerPort, "--metrics-port": s.MetricsPort}
	for _, flag := range []string{"--client-port", "--peer-port", "--metrics-port"} {
		if p := ports[flag]; p < 1 || p > 65535 {
			return fmt.Errorf("%s %d is no port: write a number from 1 to 65535", flag, p)
		}
	}
	for _, dir := range []struct{ flag, path string }{{"--config-dir", s.ConfigDir}, {"--data-dir", s.DataDir}} {
		if !folderPattern.MatchString(dir.path) || strings.Contains(dir.path+"/", "/../") {
			return fmt.Errorf("%s %.60q is no folder of a node: write a path from /, of letters, digits and . _ -, such as /var/lib/tenure-etcd", dir.flag, dir.path)
		}
	}
	switch {
	case !slices.Contains(versions, s.Etcd):
		return fmt.Errorf("--etcd %.20q is not known: write one of %s, which are the versions that files can be written for", s.Etcd, strings.Join(versions, ", "))
	case s.ClientPort == s.PeerPort || s.ClientPort == s.MetricsPort || s.PeerPort == s.MetricsPort:
		return fmt.Errorf("the ports %d, %d and %d of clients, peers and metrics must differ", s.ClientPort, s.PeerPort, s.MetricsPort)
	case s.ConfigDir == s.DataDir:
		return fmt.Errorf("--config-dir and --data-dir are both %s: etcd wants a folder for its data alone", s.DataDir)
	case s.Quota < leastQuota || s.Quota > mostQuota:
		return fmt.Errorf("--quota %d MB is out of range: write 8MB to 8GB; a restart reads all of it, and a restore writes it", s.Quota>>20)
	case s.Retention.Duration() < leastRetention:
		return fmt.Errorf("--retention %v is too short: write %v or more, so that watches that were interrupted can go on", s.Retention.Duration(), leastRetention)
	case !prefixPattern.MatchString(s.Prefix) || strings.HasPrefix(s.Prefix, "/") || strings.HasSuffix(s.Prefix, "/"):
		return fmt.Errorf("--prefix %.60q cannot be used: write letters, digits and . _ - /, with no / at its ends, such as tenure", s.Prefix)
	}
	return nil
}

// ParseQuota reads a number of MB or GB, such as 512MB.
func ParseQuota(text string) (int64, error) {
	digits, shift := "", 0
	for unit, by := range map[string]int{"MB": 20, "GB": 30} {
		if d, ok := strings.CutSuffix(text, unit); ok {
			digits, shift = d, by
		}
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("--quota %.20q cannot be read: write a whole number with MB or GB, such as 2GB", text)
	}
	return int64(n) << shift, nil
}

var (
	namePattern  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
	labelPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	digitPattern = regexp.MustCompile(`^[0-9]+$`)
)

// rooms are names in the folder that no node may have.
var rooms = []string{caDir, clientDir, adminDir, planFile, composeFile}

// ParseNode reads NAME=ADDRESS, or the name of a host that is both.
func ParseNode(word string) (Node, error) {
	name, address, both := strings.Cut(word, "=")
	if !both {
		address = name
		if _, err := netip.ParseAddr(address); err == nil {
			return Node{}, fmt.Errorf("%.60q is an address without a name: write NAME=%[1]s, such as a=%[1]s", word)
		}
	}
	if !namePattern.MatchString(name) {
		return Node{}, fmt.Errorf("%.60q is no name for a node: write 1 to 63 small letters, digits, dots and hyphens, such as a or etcd-1", name)
	}
	if slices.Contains(rooms, name) {
		return Node{}, fmt.Errorf("a node cannot be called %q: that is a file or folder beside those of the nodes", name)
	}
	address, err := checkAddress(address)
	if err != nil {
		return Node{}, fmt.Errorf("node %s: %w", name, err)
	}
	return Node{Name: name, Address: address}, nil
}

// checkAddress returns an address in the form in which it is written everywhere.
func checkAddress(address string) (string, error) {
	const write = "write an IPv4 address, an IPv6 address, or a name of DNS"
	bare := address
	if strings.HasPrefix(address, "[") && strings.HasSuffix(address, "]") {
		bare = address[1 : len(address)-1]
	}
	if ip, err := netip.ParseAddr(bare); err == nil {
		switch {
		case ip.Zone() != "":
			return "", fmt.Errorf("address %.60q has a zone, and holds on one machine alone: %s", address, write)
		case ip.IsUnspecified(), ip.IsMulticast():
			return "", fmt.Errorf("address %.60q is no machine's: %s", address, write)
		}
		return ip.Unmap().String(), nil
	}
	if _, _, err := net.SplitHostPort(address); err == nil {
		return "", fmt.Errorf("address %.60q has a port: leave it out; --client-port and --peer-port are those of all nodes", address)
	}
	labels := strings.Split(address, ".")
	good := len(address) <= 253 && !digitPattern.MatchString(labels[len(labels)-1])
	for _, label := range labels {
		good = good && labelPattern.MatchString(label)
	}
	if !good {
		return "", fmt.Errorf("address %.60q cannot be read: %s", address, write)
	}
	return strings.ToLower(address), nil
}

// CheckNodes returns what is wrong with the nodes of a new cluster, and a warning of what
// follows from them, "" if there is none.
func CheckNodes(nodes []Node) (warning string, err error) {
	for i, n := range nodes {
		if err := n.besides(nodes[:i]); err != nil {
			return "", err
		}
		if ip, err := netip.ParseAddr(n.Address); len(nodes) > 1 && (err == nil && ip.IsLoopback() || n.Address == "localhost") {
			return "", fmt.Errorf("node %s: the others cannot reach it at %s: write its address in their network", n.Name, n.Address)
		}
	}
	switch n := len(nodes); {
	case n == 0:
		return "", errors.New("no nodes are named: write NAME=ADDRESS for each, such as a=10.0.0.1 b=10.0.0.2 c=10.0.0.3")
	case n == 1:
		return "one node: nobody takes its place when it fails, and if its disk is lost so are the locks and their tokens; for a fail-over take three", nil
	case n == 2:
		return "", errors.New("two nodes fail when either does: take one, or three; a third may be small, but needs a disk of its own")
	case n > 7:
		return "", fmt.Errorf("%d nodes: each write waits for more than half of them, and seven stand three losses: take 3, 5 or 7", n)
	case n%2 == 0:
		return "", fmt.Errorf("%d nodes stand no more losses than %d, and each write waits for one more: take %d or %d", n, n-1, n-1, n+1)
	}
	return "", nil
}

// besides returns why a node cannot stand beside others.
func (n Node) besides(others []Node) error {
	for _, o := range others {
		switch {
		case o.Name == n.Name:
			return fmt.Errorf("two nodes are called %s: each needs a name of its own", n.Name)
		case o.Address == n.Address:
			return fmt.Errorf("nodes %s and %s have one address, %s: each member needs a machine of its own, or both are lost together", o.Name, n.Name, n.Address)
		}
	}
	return nil
}

// ip returns the address as one of IP; ok is false for a name of DNS.
func (n Node) ip() (ip netip.Addr, ok bool) {
	ip, err := netip.ParseAddr(n.Address)
	return ip, err == nil
}

// at returns HOST:PORT.
func at(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func (s Settings) clientURL(n Node) string { return "https://" + at(n.Address, s.ClientPort) }
func (s Settings) peerURL(n Node) string   { return "https://" + at(n.Address, s.PeerPort) }
