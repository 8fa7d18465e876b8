# shellcheck shell=bash
# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# Of scripts/engines: one member of etcd, built from the module that evidence/faults
# requires. Tests start clusters of their own from the same program.

etcd_version=3.7.3

etcd_install() {
	[[ ! -x $programs/etcd-$etcd_version/etcd ]] || return 0
	locked "$programs/lock" etcd_install_locked
}
etcd_install_locked() {
	[[ ! -x $programs/etcd-$etcd_version/etcd ]] || return 0
	say "building etcd $etcd_version"
	mkdir -p "$programs/etcd-$etcd_version"
	# The file appears when it is complete.
	(cd "$root/evidence/faults" && go build -o "$programs/etcd-$etcd_version/etcd.new" go.etcd.io/etcd/server/v3) >&2 &&
		mv "$programs/etcd-$etcd_version/etcd.new" "$programs/etcd-$etcd_version/etcd" || {
		say "cannot build etcd $etcd_version"
		return 1
	}
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
