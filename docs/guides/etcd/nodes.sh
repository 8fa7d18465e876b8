#!/bin/sh
# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# Writes a folder for each member of an etcd, with its certificates, its addresses and the
# settings; and the certificates of programs (client) and of operators (admin). It needs
# OpenSSL 3. A member is NAME=ADDRESS, or NAME alone if the others reach it by that name:
#
#   sh nodes.sh a=10.0.0.1 b=10.0.0.2 c=10.0.0.3
#
# The first run makes the authorities, and the members that it names are the cluster. A later
# run, in the same folder, writes a member that is added, or renews certificates.
set -eu
umask 077
here=$(dirname "$0")

for member; do
	case ${member%%=*} in
	'' | ca | client | admin | *[!A-Za-z0-9.-]*)
		echo "nodes.sh: $member: write NAME=ADDRESS; a NAME has letters, digits, dots and hyphens, and is not ca, client or admin" >&2
		exit 64
		;;
	esac
done

# certificate AUTHORITY FILE NAME EXTENSION... makes a key, and a certificate for two years.
certificate() {
	authority=ca/$1 file=$2 name=$3
	shift 3
	printf '%s\n' '[req]' 'distinguished_name = name' '[name]' '[of]' "$@" >ca/config
	if [ "$file" = "$authority" ]; then
		set -- -days 3650
	else
		set -- -days 730 -CA "$authority.crt" -CAkey "$authority.key"
	fi
	openssl req -x509 -config ca/config -extensions of -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc \
		-subj "/CN=$name" -keyout "$file.key" -out "$file.crt" "$@"
	rm ca/config
}

# Two authorities: no certificate of a client lets its owner join the cluster as a member.
mkdir -p ca
for name in ca peer-ca; do
	[ -e "ca/$name.crt" ] || certificate "$name" "ca/$name" "$name of etcd for locks" \
		'basicConstraints = critical, CA:TRUE, pathlen:0' 'keyUsage = critical, keyCertSign, cRLSign'
done

cluster=
if [ ! -e admin/root.crt ]; then # nothing has come to its end here
	[ $# -gt 0 ] || {
		echo "nodes.sh: no members are named: write NAME=ADDRESS for each" >&2
		exit 64
	}
	for member; do
		cluster=$cluster,${member%%=*}=https://${member#*=}:2380
	done
	token=$(openssl rand -hex 8)
fi

for member; do
	name=${member%%=*} address=${member#*=}
	case $address in
	\[*\]) address6=${address#\[} identity=IP:${address6%\]} listen=$address ;;
	*[!0-9.]*) identity=DNS:$address listen=0.0.0.0 ;; # etcd listens at addresses alone
	*) identity=IP:$address listen=$address ;;
	esac
	mkdir -p "$name"
	identities="subjectAltName = DNS:$name, DNS:localhost, IP:127.0.0.1, $identity"
	certificate ca "$name/server" "$name" 'keyUsage = digitalSignature' 'extendedKeyUsage = serverAuth' "$identities"
	certificate peer-ca "$name/peer" "$name" 'keyUsage = digitalSignature' 'extendedKeyUsage = serverAuth, clientAuth' "$identities"
	cp ca/ca.crt ca/peer-ca.crt "$here/etcd.env" "$name"
	clients=https://$listen:2379
	[ "$listen" = 0.0.0.0 ] || clients=$clients,https://127.0.0.1:2379
	{
		echo "ETCD_NAME=$name"
		echo "ETCD_LISTEN_PEER_URLS=https://$listen:2380"
		echo "ETCD_INITIAL_ADVERTISE_PEER_URLS=https://$address:2380"
		echo "ETCD_LISTEN_CLIENT_URLS=$clients"
		echo "ETCD_ADVERTISE_CLIENT_URLS=https://$address:2379"
		if [ -n "$cluster" ]; then
			echo "ETCD_INITIAL_CLUSTER=${cluster#,}"
			echo "ETCD_INITIAL_CLUSTER_TOKEN=$token"
		else
			# It must not begin a cluster of its own: without what "etcdctl member add" prints
			# it does not start.
			echo ETCD_INITIAL_CLUSTER_STATE=existing
		fi
	} >"$name/node.env"
done

for user in client/locks admin/root; do
	mkdir -p "${user%/*}"
	cp ca/ca.crt "${user%/*}"
	certificate ca "$user" "${user#*/}" 'keyUsage = digitalSignature' 'extendedKeyUsage = clientAuth'
done
