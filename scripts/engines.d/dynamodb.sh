# shellcheck shell=bash
# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# Of scripts/engines: the emulators of DynamoDB.

dynoxide_version=1.2.1
dynalite_version=4.0.0

dynoxide_package() {
	case $(uname -s)-$(uname -m) in
	# The registry has no package of this version for other systems.
	Linux-x86_64) echo @dynoxide/linux-x64 ;;
	*)
		say "dynoxide is not to be had for $(uname -s) on $(uname -m)"
		return 1
		;;
	esac
}
dynoxide_install() {
	local package
	package=$(dynoxide_package) || return 1
	npm_install "dynoxide-$dynoxide_version" "$package@$dynoxide_version"
}
dynoxide_command() {
	command=("$programs/dynoxide-$dynoxide_version/node_modules/$(dynoxide_package)/dynoxide"
		serve --host 127.0.0.1 --port "$1")
}
dynoxide_ready() { dynamodb_ready "$1"; }
dynoxide_env() { echo "TENURE_TEST_DYNOXIDE=http://127.0.0.1:$1"; }

dynalite_install() { npm_install "dynalite-$dynalite_version" "dynalite@$dynalite_version"; }
dynalite_command() {
	# Without the last three a change of a table takes half a second.
	command=(node --require "$root/scripts/engines-dynalite.cjs"
		"$programs/dynalite-$dynalite_version/node_modules/dynalite/cli.js"
		--host 127.0.0.1 --port "$1" --createTableMs 0 --deleteTableMs 0 --updateTableMs 0)
}
dynalite_ready() { dynamodb_ready "$1"; }
dynalite_env() { echo "TENURE_TEST_DYNALITE=http://127.0.0.1:$1"; }

# dynamodb_ready PORT: it lists its tables. The signature is in form alone.
dynamodb_ready() {
	node -e '
		const request = require("http").request({
			host: "127.0.0.1", port: process.argv[1], method: "POST", timeout: 2000,
			headers: {
				"Content-Type": "application/x-amz-json-1.0",
				"X-Amz-Target": "DynamoDB_20120810.ListTables",
				"X-Amz-Date": "20260101T000000Z",
				"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/local/dynamodb/aws4_request, SignedHeaders=host, Signature=0",
			},
		}, (response) => {
			let body = "";
			response.on("data", (part) => body += part);
			response.on("end", () => process.exit(body.includes("TableNames") ? 0 : 1));
		});
		request.on("timeout", () => process.exit(1));
		request.on("error", () => process.exit(1));
		request.end("{}");' "$1"
}
