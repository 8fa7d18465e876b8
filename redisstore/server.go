// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/tenurelock/tenure/driver"
)

// server is what a server says of itself.
type server struct {
	name, version string // "Redis", "Valkey"; "": another one
	about         string // the name that another one has
	primary       bool
	replicas      int // connected ones, be they online or not
	eviction      string
	aof           bool // appendonly yes

	// config has appendfsync, no-appendfsync-on-rewrite and replica-read-only; nil if the user may not read it.
	config map[string]string
	denied error // why not
}

// leastVersion is the first version of Redis that the store supports: the oldest that is tested.
const leastVersion = 7

var errStranger = errors.New("this is neither Redis nor Valkey: its INFO names no replication, by which the store knows " +
	"that writes may be lost")

// look asks a server, in two requests.
func (s *Store) look(ctx context.Context, client rueidis.Client) (*server, error) {
	// A command without a key would go to any node of a cluster. The script goes to the node with the records.
	out, err := client.Do(ctx, client.B().Eval().Script("return redis.call('INFO')").Numkeys(1).Key(s.key("life")).Build()).ToString()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, found := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); found {
			info[name] = value
		}
	}
	d := &server{
		primary: info["role"] == "master", eviction: info["maxmemory_policy"], aof: info["aof_enabled"] == "1",
		version: info["redis_version"], name: "Redis",
	}
	d.replicas, _ = strconv.Atoi(info["connected_slaves"])
	switch {
	case info["server_name"] == "valkey":
		d.name, d.version = "Valkey", info["valkey_version"]
	case info["master_replid"] == "" || info["redis_version"] == "":
		d.name = ""
	case strings.Contains(info["executable"], "keydb"):
		d.name, d.about = "", "KeyDB"
	}
	for name := range info {
		switch name {
		case "dragonfly_version":
			d.name, d.about = "", "Dragonfly"
		case "keydb_version", "mvcc_depth":
			d.name, d.about = "", "KeyDB"
		}
	}
	// A script cannot ask this. In a cluster it is another node's, and all nodes should have the same.
	d.config, d.denied = client.Do(ctx, client.B().ConfigGet().Parameter(
		"appendfsync", "no-appendfsync-on-rewrite", "replica-read-only").Build()).AsStrMap()
	if e, is := rueidis.IsRedisErr(d.denied); d.denied != nil && (!is || e.IsLoading()) {
		return nil, d.denied
	}
	return d, nil
}

// refused returns why a store cannot be on the server, all reasons at once.
func (d *server) refused(set *settings) error {
	var all []error
	refuse := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	major, _, _ := strings.Cut(d.version, ".")
	n, _ := strconv.Atoi(major)
	switch {
	case d.about != "":
		refuse("the server is %s, whose replication is not known to change its name when writes may be lost: use Redis or Valkey", d.about)
	case d.name == "":
		return driver.Permanent(errStranger)
	case n < leastVersion:
		refuse("%s %s is too old: the store needs %d.0", d.name, d.version, leastVersion)
	}
	if !d.primary {
		return errors.Join(append(all, errors.New("the server is a replica: name the primary, or the Sentinels"))...)
	}
	if most, _ := strconv.Atoi(set.most); d.replicas > most {
		refuse("%s connected, and the store counts on %d: one of them might stay with a primary that was cut off, while "+
			"another is promoted; remove it, or create the store with Options.Replicas, replicas=%d in the URL",
			driver.Counted(d.replicas, "replica"), most, d.replicas)
	}
	if strings.HasPrefix(d.eviction, "allkeys-") {
		refuse("maxmemory-policy is %s, which may remove a lock: set noeviction, or volatile-lru, which spares keys without an expiry",
			d.eviction)
	}
	if d.config["replica-read-only"] == "no" {
		refuse("replica-read-only is no, so that a replica takes writes: set it to yes on all servers")
	}
	if set.waits == 0 {
		all = append(all, d.durable()...)
	}
	return driver.Permanent(errors.Join(all...))
}

// durable returns why a server may lose a write that it has answered.
func (d *server) durable() (all []error) {
	const instead = ", or leave out Options.Single, mode=single in the URL"
	switch {
	case !d.aof:
		all = append(all, errors.New("appendonly is no, so that a crash loses writes: set it to yes"+instead))
	case d.config == nil:
		all = append(all, fmt.Errorf("the user may not read the configuration, so that it is not known whether a crash loses "+
			"writes: grant +config|get%s: %w", instead, d.denied))
	case d.config["appendfsync"] != "always":
		all = append(all, fmt.Errorf("appendfsync is %s, so that a crash loses writes: set it to always%s", d.config["appendfsync"], instead))
	case d.config["no-appendfsync-on-rewrite"] == "yes":
		all = append(all, errors.New("no-appendfsync-on-rewrite is yes, so that a crash during a rewrite loses writes: set it to no"+instead))
	}
	return all
}
