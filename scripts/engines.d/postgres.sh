# shellcheck shell=bash
# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# Of scripts/engines: one server of PostgreSQL, from the system's package. Its user is
# tenure, without a password. Tests start servers of their own from the same programs.

# SIGTERM would have it wait for its clients.
postgres_stop=INT

# postgres_programs prints the folder with the newest programs.
postgres_programs() {
	local initdb
	initdb=$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)
	[[ -x $initdb ]] || initdb=$(command -v initdb) || return 1
	dirname "$initdb"
}

# postgres_as PROGRAM... in $data; it refuses to be root, and to be in a folder that its
# user cannot enter.
postgres_as() {
	if ((EUID == 0)); then
		set -- env --chdir="$data" setpriv --reuid=postgres --regid=postgres --clear-groups "$@"
	fi
	command=("$@")
}

postgres_install() {
	postgres_programs >/dev/null || {
		say "PostgreSQL is missing: run scripts/setup, or install it"
		return 1
	}
}
postgres_command() {
	local data programs
	programs=$(postgres_programs) || return 1
	# Where the server's user can enter: $dir may be for root alone.
	data=$(mktemp -d "${TMPDIR:-/tmp}/tenure-postgres.XXXXXX") || return 1
	ln -s "$data" "$dir/data"
	if ((EUID == 0)); then
		chown postgres:postgres "$data"
		if ! setpriv --reuid=postgres --regid=postgres --clear-groups test -w "$data"; then
			say "user postgres cannot enter ${TMPDIR:-/tmp}"
			return 1
		fi
	fi
	postgres_as "$programs/initdb" -D "$data" -A trust -U tenure --no-locale -E UTF8 --no-sync
	"${command[@]}" >"$dir/initdb" 2>&1 8>&- 9>&- || {
		say "initdb does not work; the end of what it says:"
		tail -n 10 "$dir/initdb" >&2
		return 1
	}
	# Nothing outlives a power loss here. A test that wants that has its own.
	postgres_as "$programs/postgres" -D "$data" -p "$1" -c listen_addresses=127.0.0.1 \
		-c unix_socket_directories= -c max_connections=400 -c fsync=off -c full_page_writes=off
}
postgres_ready() { "$(postgres_programs)/pg_isready" -q -h 127.0.0.1 -p "$1"; }
postgres_env() { echo "TENURE_TEST_POSTGRES=postgres://tenure@127.0.0.1:$1/postgres?sslmode=disable"; }

# postgres_left prints the processes of the server whose data are in the folder. Each has
# a process group of its own. They end by themselves when the first one does, but when
# they are stopped.
postgres_left() {
	local cwd
	for cwd in /proc/[0-9]*/cwd; do
		if [[ $(readlink "$cwd" 2>/dev/null) == "$1" ]]; then
			cwd=${cwd#/proc/}
			echo "${cwd%/cwd}"
		fi
	done
}
postgres_gone() {
	local data left end
	data=$(readlink "$dir/data") || return 0
	left=$(postgres_left "$data")
	if [[ -n $left ]]; then
		# shellcheck disable=SC2086 # a list of words
		kill -s KILL $left 2>/dev/null || true
		end=$((SECONDS + stop_seconds))
		while [[ -n $(postgres_left "$data") ]] && ((SECONDS < end)); do sleep 0.02; done
	fi
	rm -rf "${data:?}"
}
