# shellcheck shell=bash
# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# Of scripts/engines: fake-gcs-server, which speaks Google Cloud Storage's protocol and keeps
# objects in memory. Tests start servers of their own from the same program. The first build
# takes minutes.

fakegcs_version=1.56.1

fakegcs_install() {
	go_install "fakegcs-$fakegcs_version" fake-gcs-server "github.com/fsouza/fake-gcs-server@v$fakegcs_version"
}
fakegcs_command() {
	mkdir -p "$dir/data/locks"
	command=("$programs/fakegcs-$fakegcs_version/fake-gcs-server" -scheme http -host 127.0.0.1 -port "$1" -public-host 127.0.0.1
		-backend memory -data "$dir/data" -log-level error)
}
fakegcs_ready() {
	node -e '
		const request = require("http").get({ host: "127.0.0.1", port: process.argv[1], path: "/_internal/healthcheck", timeout: 2000 }, (response) => process.exit(response.statusCode === 200 ? 0 : 1));
		request.on("timeout", () => process.exit(1));
		request.on("error", () => process.exit(1));' "$1"
}
# Its bucket is "locks".
fakegcs_env() { echo "TENURE_TEST_FAKEGCS=http://127.0.0.1:$1"; }
