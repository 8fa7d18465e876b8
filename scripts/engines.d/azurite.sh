# shellcheck shell=bash
# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# Of scripts/engines: the emulator of Azure Blob Storage, in memory. Tests start one of their
# own from the same program. It asks for Node.js 22, and works on 20. It does not know the
# newest versions of the protocol, hence --skipApiVersionCheck.

azurite_version=3.37.0

azurite_install() { npm_install "azurite-$azurite_version" "azurite@$azurite_version"; }
azurite_command() {
	command=(node "$programs/azurite-$azurite_version/node_modules/azurite/dist/src/blob/main.js"
		--blobHost 127.0.0.1 --blobPort "$1" --inMemoryPersistence --skipApiVersionCheck --disableTelemetry --silent)
}
azurite_ready() {
	# It answers, if only that this is no way to ask.
	node -e '
		const request = require("http").get({ host: "127.0.0.1", port: process.argv[1], path: "/", timeout: 2000 }, () => process.exit(0));
		request.on("timeout", () => process.exit(1));
		request.on("error", () => process.exit(1));' "$1"
}
# Its account is the one that all emulators have; it has no container at first.
azurite_env() { echo "TENURE_TEST_AZURITE=http://127.0.0.1:$1/devstoreaccount1"; }
