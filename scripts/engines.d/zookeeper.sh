# shellcheck shell=bash
# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# Of scripts/engines: one server of ZooKeeper, from its Maven artifacts. Tests start
# ensembles of their own from the same.

zookeeper_version=3.9.5

# What was added last says that an older checkout has not installed it.
zookeeper_there() { compgen -G "$programs/zookeeper-$zookeeper_version/netty-transport-classes-epoll-*.jar" >/dev/null; }
zookeeper_install() {
	! zookeeper_there || return 0
	locked "$programs/lock" zookeeper_install_locked
}
zookeeper_install_locked() {
	local tmp
	! zookeeper_there || return 0
	say "installing zookeeper $zookeeper_version"
	rm -rf "$programs"/tmp.* # left by one that was killed: no other holds the lock
	tmp=$(mktemp -d "$programs/tmp.XXXXXX")
	if mvn -q -B -f "$root/scripts/engines.d/zookeeper/pom.xml" dependency:copy "-DoutputDirectory=$tmp" >&2; then
		rm -rf "$programs/zookeeper-$zookeeper_version"
		mv "$tmp" "$programs/zookeeper-$zookeeper_version"
	else
		rm -rf "$tmp"
		say "cannot install zookeeper $zookeeper_version"
		return 1
	fi
}
zookeeper_command() {
	mkdir -p "$dir/data"
	cat >"$dir/zoo.cfg" <<-END
		tickTime=500
		dataDir=$dir/data
		clientPort=$1
		clientPortAddress=127.0.0.1
		admin.enableServer=false
		maxClientCnxns=0
		4lw.commands.whitelist=srvr
	END
	command=(java -Xmx256m -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dzookeeper.forceSync=no
		-cp "$programs/zookeeper-$zookeeper_version/*" org.apache.zookeeper.server.ZooKeeperServerMain "$dir/zoo.cfg")
}
zookeeper_ready() {
	node -e '
		const socket = require("net").connect(process.argv[1], "127.0.0.1", () => socket.write("srvr"));
		let body = "";
		socket.setTimeout(2000, () => process.exit(1));
		socket.on("data", (part) => body += part);
		socket.on("end", () => process.exit(body.includes("Mode:") ? 0 : 1));
		socket.on("error", () => process.exit(1));' "$1"
}
zookeeper_env() { echo "TENURE_TEST_ZOOKEEPER=127.0.0.1:$1"; }
