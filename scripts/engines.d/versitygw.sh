# shellcheck shell=bash
# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# Of scripts/engines: a gateway that speaks S3's protocol and keeps objects as files. Tests
# start gateways of their own from the same program. The first build takes minutes.

versitygw_version=1.8.0

versitygw_install() {
	go_install "versitygw-$versitygw_version" versitygw "github.com/versity/versitygw/cmd/versitygw@v$versitygw_version"
}
versitygw_command() {
	mkdir -p "$dir/data/locks"
	command=("$programs/versitygw-$versitygw_version/versitygw" --port "127.0.0.1:$1" --access test --secret test
		--region us-east-1 --health /health --keep-alive --quiet posix "$dir/data")
}
versitygw_ready() {
	node -e '
		const request = require("http").get({ host: "127.0.0.1", port: process.argv[1], path: "/health", timeout: 2000 }, (response) => process.exit(response.statusCode === 200 ? 0 : 1));
		request.on("timeout", () => process.exit(1));
		request.on("error", () => process.exit(1));' "$1"
}
# Its bucket is "locks". The keys are those that tenure takes for an endpoint on this machine:
#   tenure status --store "s3://locks?endpoint=$TENURE_TEST_VERSITYGW&region=us-east-1&path_style=1"
versitygw_env() { echo "TENURE_TEST_VERSITYGW=http://127.0.0.1:$1"; }
