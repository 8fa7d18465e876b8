# shellcheck shell=bash
# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# Of scripts/engines: one member of etcd, built from the module that evidence/faults
# requires. Tests start clusters of their own from the same program, and have etcdctl and
# etcdutl beside it.

etcd_version=3.7.3

etcd_install() {
	etcd_installed || locked "$programs/lock" etcd_install_locked
}
etcd_installed() {
	local of=$programs/etcd-$etcd_version
	[[ -x $of/etcd && -x $of/etcdctl && -x $of/etcdutl ]]
}
etcd_install_locked() {
	! etcd_installed || return 0
	say "building etcd $etcd_version"
	local of=$programs/etcd-$etcd_version name
	mkdir -p "$of"
	# A file appears when it is complete.
	for name in server etcdctl etcdutl; do
		(cd "$root/evidence/faults" && go build -o "$of/$name.new" "go.etcd.io/etcd/$name/v3") >&2 &&
			mv "$of/$name.new" "$of/${name/server/etcd}" || {
			say "cannot build etcd $etcd_version"
			return 1
		}
	done
}
etcd_command() {
	local peer
	peer=$(free_port) || return 1
	# Nothing outlives a power loss here. A test that wants that has its own.
	command=("$programs/etcd-$etcd_version/etcd" --name one --data-dir "$dir/data" --log-level error
		--listen-client-urls "http://127.0.0.1:$1" --advertise-client-urls "http://127.0.0.1:$1"
		--listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer"
		--initial-cluster "one=http://127.0.0.1:$peer" --unsafe-no-fsync)
}
etcd_ready() {
	node -e '
		const request = require("http").get({ host: "127.0.0.1", port: process.argv[1], path: "/health", timeout: 2000 }, (response) => {
			let body = "";
			response.on("data", (part) => body += part);
			response.on("end", () => process.exit(body.includes("true") ? 0 : 1));
		});
		request.on("timeout", () => process.exit(1));
		request.on("error", () => process.exit(1));' "$1"
}
etcd_env() { echo "TENURE_TEST_ETCD=http://127.0.0.1:$1"; }
