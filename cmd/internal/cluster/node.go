// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// maxRequest is the largest request that etcd takes. A record with 256 KiB of data fits.
const maxRequest = 1572864

// setting is a line of etcd.yaml, or several, with the reason for it.
type setting struct{ why, line string }

// config returns etcd.yaml of a node. Members are all of the cluster, it included; state is
// "new", or "existing" for one that joins.
func (s Settings) config(n Node, members []Node, state string) string {
	return s.yaml(n, members, state, setting{"Clients of other machines, and of this one.", "listen-client-urls: " + s.listen(n)}, s.clientURL(n))
}

// restoreConfig returns the configuration of a node that answers nobody but its own machine.
func (s Settings) restoreConfig(n Node, members []Node) string {
	const why = "Clients of this machine alone: for the time between a restore and `tenure tokens raise`.\n" +
		"Nobody may take a lock from then on until its token has been raised."
	here := "https://" + at("127.0.0.1", s.ClientPort)
	return s.yaml(n, members, "new", setting{why, "listen-client-urls: " + here}, here)
}

// listen returns the URLs at which a node listens to clients.
func (s Settings) listen(n Node) string {
	ip, ok := n.ip()
	switch {
	case !ok: // a name of DNS: etcd wants an address
		return "https://" + at("0.0.0.0", s.ClientPort)
	case ip == netip.AddrFrom4([4]byte{127, 0, 0, 1}):
		return s.clientURL(n)
	}
	return s.clientURL(n) + ",https://" + at("127.0.0.1", s.ClientPort)
}

func (s Settings) yaml(n Node, members []Node, state string, clients setting, advertised string) string {
	listenPeers := s.peerURL(n)
	if _, ok := n.ip(); !ok {
		listenPeers = "https://" + at("0.0.0.0", s.PeerPort)
	}
	file := func(name string) string { return s.ConfigDir + "/" + name }
	security := func(name, ca string) string {
		return fmt.Sprintf("%s-transport-security:\n  cert-file: %s\n  key-file: %s\n  trusted-ca-file: %s\n  client-cert-auth: true",
			map[string]string{"server": "client", "peer": "peer"}[name], file(name+".crt"), file(name+".key"), file(ca+".crt"))
	}
	far := "The default of etcd: for members in one site, some milliseconds apart."
	if s.WAN {
		far = "For members up to 100 ms apart. The election timeout is ten heartbeats."
	}
	settings := []setting{
		{"What the member is called in the cluster.", "name: " + n.Name},
		{"On a disk of its own if there is one: each heartbeat of a lock waits for it.", "data-dir: " + s.DataDir},
		{"The other members.", "listen-peer-urls: " + listenPeers},
		{"Where the others find this one: written into the cluster when it begins.", "initial-advertise-peer-urls: " + s.peerURL(n)},
		clients,
		{"Where clients are told that this member is.", "advertise-client-urls: " + advertised},
		{"Metrics and health without a certificate, for this machine alone. Clients with a\ncertificate find them at the client port, too.", "listen-metrics-urls: http://" + at("127.0.0.1", s.MetricsPort)},
		{"All members, as they were when this file was written. Read once, before there are data.", "initial-cluster: " + s.initialCluster(members)},
		{"Two clusters never take each other's members for theirs.", "initial-cluster-token: " + s.Token},
		{"Read once, too: from then on etcd goes by its data.", "initial-cluster-state: " + state},
		{"Clients show a certificate that the authority of clients has signed.", security("server", clientCA)},
		{"Members show each other one of another authority: no client can join.", security("peer", peerCA)},
		{"No older one.", "tls-min-version: TLS1.2"},
		{"HTTP and JSON on the client port. Nobody here needs it, and it would want a\ncertificate as a client of its own.", "enable-grpc-gateway: false"},
		{"etcd keeps every write until it is compacted, and by default nothing compacts it:\neach heartbeat of each lock would stay until the quota is full.", fmt.Sprintf("auto-compaction-mode: periodic\nauto-compaction-retention: %q", s.Retention.Duration().String())},
		{"When the database is as large, all writes are refused, and every lease ends. A restart\nreads all of it, and a defragmentation writes it: some 10 s for a GB.", fmt.Sprintf("quota-backend-bytes: %d", s.Quota)},
		{far + " A fail-over takes one to\nthree election timeouts: leases should be three of them and a heartbeat period long.", fmt.Sprintf("heartbeat-interval: %d\nelection-timeout: %d", s.heartbeat().Milliseconds(), s.election().Milliseconds())},
		{"Also a lock with 256 KiB of data fits into a request.", fmt.Sprintf("max-request-bytes: %d", maxRequest)},
		{"The default: a change of members that would cost the quorum is refused.", "strict-reconfig-check: true"},
		{"The default: a member that was cut off does not depose the leader when it is back.", "pre-vote: true"},
		s.corruption(),
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# etcd of node %s, for the locks of Tenure: %s\n# Written by tenured cluster, for etcd %s. To be in %s, and readable for\n# the user of etcd alone.\n", n.Name, page, s.Etcd, s.ConfigDir)
	for _, x := range settings {
		fmt.Fprintf(&b, "\n# %s\n%s\n", strings.ReplaceAll(x.why, "\n", "\n# "), x.line)
	}
	return b.String()
}

// page is the guide.
const page = "https://github.com/tenurelock/tenure/blob/main/docs/guides/etcd-cluster.md"

// corruption has a member compare its data with those of the others.
func (s Settings) corruption() setting {
	const why = "A member compares its data with the others' before it serves, and after each compaction:\nwhat a broken disk has changed is found before a lock is granted by it."
	switch s.Etcd {
	case "3.4":
		return setting{"A member compares its data with the others' before it serves.", "experimental-initial-corrupt-check: true"}
	case "3.5":
		return setting{why, "experimental-initial-corrupt-check: true\nexperimental-compact-hash-check-enabled: true"}
	}
	return setting{why, "feature-gates: InitialCorruptCheck=true,CompactHashCheck=true"}
}

func (s Settings) initialCluster(members []Node) string {
	var all []string
	for _, m := range members {
		all = append(all, m.Name+"="+s.peerURL(m))
	}
	return strings.Join(all, ",")
}

// unit returns the unit of systemd, which is that of all nodes.
func (s Settings) unit() string {
	data := "ReadWritePaths=" + s.DataDir
	if name, ok := strings.CutPrefix(s.DataDir, "/var/lib/"); ok {
		data = "StateDirectory=" + name + "\nStateDirectoryMode=0700"
	}
	return fmt.Sprintf(`# etcd of this node, for the locks of Tenure: %[1]s
# It takes the place of the unit that a package of etcd may bring. Install it with:
#
#   id etcd || useradd --system --home-dir %[3]s --shell /usr/sbin/nologin etcd
#   install -d -m 0700 %[2]s && cp * %[2]s && chown -R etcd: %[2]s
#   cp etcd.service /etc/systemd/system/ && systemctl daemon-reload
#   systemctl enable --now etcd

[Unit]
Description=etcd for Tenure
Documentation=https://etcd.io/docs/
Wants=network-online.target
After=network-online.target
# It is started again for ever: a member that is away helps nobody.
StartLimitIntervalSec=0

[Service]
# Not Type=notify: the first member says that it is ready when most of the others are there.
Type=exec
User=etcd
Group=etcd
ExecStart=etcd --config-file %[2]s/etcd.yaml
Restart=always
RestartSec=2
# It hands its leadership over, and closes its database.
TimeoutStopSec=30
LimitNOFILE=65536
# Leases end if it is starved: others are to be killed first.
OOMScoreAdjust=-800
%[4]s
UMask=0077

NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
`, page, s.ConfigDir, s.DataDir, data)
}

// compose returns a file that runs all nodes on one machine, to try them.
func (f *Folder) compose() string {
	s := f.plan.Settings
	var b strings.Builder
	ports := make([]string, len(f.plan.Nodes))
	for i := range ports {
		ports[i] = at("127.0.0.1", s.ClientPort+10*i)
	}
	fmt.Fprintf(&b, `# All nodes of the cluster on one machine, to try it at home: they are lost together.
# ETCD_IMAGE is an image of etcd %s; its release page names it. Then:
#
#   ETCD_IMAGE=... docker compose up
#   TENURE_STORE='%s'
`, s.Etcd, f.urlAt(strings.Join(ports, ","), clientDir, programUser))
	b.WriteString("services:\n")
	subnet, gateway, fixed := network(f.plan.Nodes)
	for i, n := range f.plan.Nodes {
		fmt.Fprintf(&b, "  %q:\n    image: ${ETCD_IMAGE:?write the image of etcd}\n    command: [etcd, --config-file, %s/etcd.yaml]\n", n.Name, s.ConfigDir)
		fmt.Fprintf(&b, "    volumes: [\"./%s:%s:ro\", \"data%d:%s\"]\n", n.Name, s.ConfigDir, i+1, s.DataDir)
		fmt.Fprintf(&b, "    ports: [\"%s:%d\"]\n    restart: unless-stopped\n    networks:\n      etcd:\n", ports[i], s.ClientPort)
		ip, isIP := n.ip()
		switch {
		case !isIP:
			fmt.Fprintf(&b, "        aliases: [%q]\n", n.Address)
		case ip.Is6():
			fmt.Fprintf(&b, "        ipv6_address: %q\n", n.Address)
		default:
			fmt.Fprintf(&b, "        ipv4_address: %q\n", n.Address)
		}
	}
	b.WriteString("networks:\n  etcd:\n")
	if fixed {
		if subnet.Addr().Is6() {
			b.WriteString("    enable_ipv6: true\n")
		}
		fmt.Fprintf(&b, "    ipam:\n      config:\n        - subnet: %q\n          gateway: %q\n", subnet, gateway)
	} else {
		b.WriteString("    driver: bridge\n")
	}
	b.WriteString("volumes:\n")
	for i := range f.plan.Nodes {
		fmt.Fprintf(&b, "  data%d:\n", i+1)
	}
	return b.String()
}

// network returns a subnet with all addresses of the nodes, and an address in it that none of
// them has. It is not ok if they have names of DNS alone.
func network(nodes []Node) (subnet netip.Prefix, gateway netip.Addr, ok bool) {
	var ips []netip.Addr
	for _, n := range nodes {
		if ip, isIP := n.ip(); isIP {
			ips = append(ips, ip)
		}
	}
	if len(ips) == 0 {
		return subnet, gateway, false
	}
	bits := 24
	if ips[0].Is6() {
		bits = 64
	}
	for ; bits > 0; bits-- {
		subnet = netip.PrefixFrom(ips[0], bits).Masked()
		if !slices.ContainsFunc(ips, func(ip netip.Addr) bool { return !subnet.Contains(ip) }) {
			break
		}
	}
	for gateway = subnet.Addr().Next(); slices.Contains(ips, gateway); {
		gateway = gateway.Next()
	}
	return subnet, gateway, true
}
