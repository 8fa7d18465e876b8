// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// diagnosisPatience bounds the questions about a server.
const diagnosisPatience = 10 * time.Second

// Diagnose examines the server and the store. It implements [driver.Diagnoser].
func (s *Store) Diagnose(ctx context.Context, t driver.Timing) []driver.Finding {
	ctx, cancel := context.WithTimeout(ctx, diagnosisPatience)
	defer cancel()
	server, is, err := s.inspect(ctx)
	if err != nil {
		return nil // each call reports it
	}
	all := s.findings(server, is)
	if s.longest > 0 && t.Lease > s.longest {
		all = append(all, driver.Bad("lease", "a lease of %v is longer than %v, the longest of this store", t.Lease, s.longest).
			Advise("shorten --lease, or create a store with lease=%v in its URL", t.Lease))
	}
	return all
}

// findings assesses a server and the store on it. is is nil if the store does not exist.
func (s *Store) findings(d *server, is *state) (all []driver.Finding) {
	if s.own != nil {
		var hosts []string
		for _, address := range s.own.InitAddress {
			host, _, _ := net.SplitHostPort(address)
			hosts = append(hosts, host)
		}
		all = append(all, driver.Encrypted(s.own.TLSConfig != nil, "write rediss: in the URL", hosts...))
	}
	if err := d.refused(&s.settings); err != nil {
		all = append(all, driver.Bad("server", "the store refuses %s %s: %v", d.name, d.version, err).Advise("see docs/guides/redis.md"))
	} else {
		all = append(all, driver.OK("server", "%s %s", d.name, d.version))
	}
	switch {
	case !d.primary:
		return all
	case is == nil:
		return append(all, driver.Bad("store", "%q does not exist", s.prefix).Advise("create it with tenure table create"))
	case is.Settings != s.is:
		all = append(all, driver.Bad("store", "%q was created with %q, and this program expects %q", s.prefix, is.Settings, s.is).
			Advise("write the same parameters in all URLs"))
	default:
		all = append(all, driver.OK("store", "%q: %s", s.prefix, is.Settings))
	}
	if d.config == nil {
		all = append(all, driver.OK("configuration", "the user may not read it: whether a replica takes writes is not known").
			Advise("the store refuses a replica in each call; to have it examined, grant +config|get"))
	}
	return append(all, s.durability(d), s.replication(d), life(is, s.waits))
}

// durability says what a crash loses.
func (s *Store) durability(d *server) driver.Finding {
	const check = "durability"
	switch {
	case s.waits == 0:
		return driver.OK(check, "confirmed writes are on the disk")
	case !d.aof:
		return driver.Warn(check, "appendonly is no: a restart empties the server or sets it back, and ends every lease if the "+
			"store is gone").Advise("set appendonly yes")
	}
	return driver.OK(check, "a crash may lose the last writes: locks are granted again %v after a restart", s.waits)
}

// replication compares the replicas with those that the store counts on.
func (s *Store) replication(d *server) driver.Finding {
	const check = "replicas"
	least, _ := strconv.Atoi(s.least)
	most, _ := strconv.Atoi(s.most)
	connected := driver.Counted(d.replicas, "replica") + " connected"
	switch {
	case d.replicas < least:
		return driver.Bad(check, "%s, and writes need %d: all are refused", connected, least).Advise("start the others")
	case d.replicas > most:
		return driver.Bad(check, "%s, and the store counts on %d", connected, most).Advise("remove one, or create another store")
	case d.replicas == least && least < most:
		return driver.Warn(check, "%s of %d: if one more is lost, all writes are refused", connected, most).Advise("start the others")
	}
	return driver.OK(check, "%s, as the store counts on", connected)
}

// life says whether locks are granted.
func life(is *state, waits time.Duration) driver.Finding {
	if is.Open {
		return driver.OK("life", "the server is known: locks are granted")
	}
	return driver.Warn("life", "the server was started or promoted, and may have lost writes: no lock is granted until a process "+
		"has seen it for %v", waits).Advise("wait; leases that are held go on")
}
