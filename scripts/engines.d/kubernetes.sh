# shellcheck shell=bash
# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# Of scripts/engines: an API server of Kubernetes with an etcd of its own, built from the
# module k8sstore/internal/apiserver. Nothing else of a cluster is there. Tests start
# servers of their own from the same program. The first build takes minutes.

kubernetes_version=1.36.2

kubernetes_install() {
	etcd_install || return 1
	[[ ! -x $programs/kubernetes-$kubernetes_version/kube-apiserver ]] || return 0
	locked "$programs/lock" kubernetes_install_locked
}
kubernetes_install_locked() {
	local module=$root/k8sstore/internal/apiserver folder=$programs/kubernetes-$kubernetes_version
	[[ ! -x $folder/kube-apiserver ]] || return 0
	grep -q "k8s.io/kubernetes v$kubernetes_version\$" "$module/go.mod" || {
		say "$module requires another version of Kubernetes than $kubernetes_version"
		return 1
	}
	say "building kube-apiserver $kubernetes_version, which takes minutes"
	mkdir -p "$folder"
	# The file appears when it is complete.
	(cd "$module" && GOWORK=off go build -trimpath -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=v$kubernetes_version" -o "$folder/kube-apiserver.new" .) >&2 &&
		mv "$folder/kube-apiserver.new" "$folder/kube-apiserver" || {
		say "cannot build kube-apiserver $kubernetes_version"
		return 1
	}
}
kubernetes_command() {
	local port=$1 etcd
	etcd=$(free_port) && etcd_command "$etcd" || return 1
	# etcd is the server's child, and outlives it: see kubernetes_gone.
	# shellcheck disable=SC2016 # it is for that shell
	command=(bash -c 'dir=$0 server=$1 port=$2 etcd=$3
		shift 3
		"$@" >"$dir/etcd" 2>&1 &
		echo $! >"$dir/etcd.pid"
		exec "$server" "$dir" "$port" "$etcd"' \
		"$dir" "$programs/kubernetes-$kubernetes_version/kube-apiserver" "$port" "http://127.0.0.1:$etcd" "${command[@]}")
}
kubernetes_ready() {
	node -e '
		const request = require("https").get({ host: "127.0.0.1", port: process.argv[1], path: "/readyz", timeout: 2000,
			rejectUnauthorized: false, headers: { Authorization: "Bearer admin" } }, (response) => process.exit(response.statusCode === 200 ? 0 : 1));
		request.on("timeout", () => process.exit(1));
		request.on("error", () => process.exit(1));' "$1"
}
kubernetes_env() { echo "TENURE_TEST_KUBERNETES=$state/kubernetes/kubeconfig"; }
kubernetes_gone() {
	local etcd
	read -r etcd 2>/dev/null <"$dir/etcd.pid" || return 0
	# Another process may have its number by now.
	if tr '\0' ' ' <"/proc/$etcd/cmdline" 2>/dev/null | grep -qF -- "--data-dir $dir/data"; then
		kill -s KILL "$etcd" 2>/dev/null || true
	fi
}
