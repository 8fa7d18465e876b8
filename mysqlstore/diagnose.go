// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/tenurelock/tenure/driver"
)

// connectionsLevel is the part of max_connections above which connections are warned of.
const connectionsLevel = 0.8

// Diagnose examines the server, the rights of the user, and the table. It implements [driver.Diagnoser].
func (s *Store) Diagnose(ctx context.Context, _ driver.Timing) (all []driver.Finding) {
	_ = s.inspect(ctx, func(_ context.Context, _ link, d *server) error { // each call reports the error
		all = s.findings(d)
		return nil
	})
	return all
}

// kind is how the server replicates.
func (d *server) kind() string {
	switch {
	case d.on("wsrep_on"):
		return "Galera"
	case d.is["group_replication_group_name"] != "":
		return "Group Replication"
	case isOn(d.semi("enabled")):
		return "semi-synchronous"
	case d.is["aurora_version"] != "":
		return "Aurora"
	case d.replicas > 0:
		return "asynchronous"
	}
	return "none"
}

// findings assesses a server and the table.
func (s *Store) findings(d *server) []driver.Finding {
	all := []driver.Finding{
		driver.Encrypted(d.is["ssl_cipher"] != "", "write tls=true in the URL", s.host()),
		driver.OK("server", "%s %s", d.name(), d.number()),
	}
	bad := func(check, advice string, texts ...string) {
		for _, text := range texts {
			all = append(all, driver.Bad(check, "%s", strings.TrimPrefix(text, "mysql: ")).Advise("%s", advice))
		}
	}
	const refused = "the store refuses the server until then: see docs/guides/mysql.md"
	losses, failovers := d.losses(), d.failovers()
	bad("durability", refused, losses...)
	switch method := d.is["innodb_flush_method"]; {
	case strings.EqualFold(method, "nosync"):
		bad("durability", "set O_DIRECT", "innodb_flush_method is nosync: a power failure loses or corrupts confirmed writes")
	case len(losses) == 0:
		all = append(all, driver.OK("durability", "confirmed writes are on the disk"))
	}
	bad("replication", refused, failovers...)
	if len(failovers) == 0 {
		all = append(all, d.replicated())
	}
	if err := d.refused(); err != nil {
		for text := range strings.Lines(err.Error()) {
			text = strings.TrimPrefix(strings.TrimSpace(text), "mysql: ")
			if !strings.Contains(strings.Join(append(losses, failovers...), "\n"), text) {
				bad("server", refused, text)
			}
		}
	}
	if err := d.table.refused(); err != nil {
		bad("table", "no lock can be taken until then", err.Error())
	} else {
		all = append(all, driver.OK("table", "%s is of InnoDB, and has its columns", s.place))
	}
	if d.blind {
		all = append(all, driver.OK("replicas", "the user may not see all of them: an asynchronous one would not be noticed").
			Advise("grant what the note of tenure table policy says"))
	}
	if d.overrides() && !isOn(d.semi("enabled")) {
		all = append(all, driver.Warn("user", "it may do everything, and may write to a server that is read-only").
			Advise("name another user, and grant it what tenure table policy prints"))
	}
	if d.on("log_bin") && strings.EqualFold(d.is["binlog_row_image"], "FULL") {
		all = append(all, driver.OK("binary log", "binlog_row_image is FULL: each heartbeat logs its record twice, with its data").
			Advise("if locks have long data, set MINIMAL"))
	}
	return append(all, d.connections())
}

// replicated says what a failover keeps, of a server that is not refused.
func (d *server) replicated() driver.Finding {
	const check = "replication"
	switch kind := d.kind(); {
	case d.never && d.replicas > 0:
		return driver.Warn(check, "%s, and this program says that none is ever promoted", driver.Counted(d.replicas, "reader")+
			" of the binary log").Advise("if one is promoted, treat it as a restored backup: see docs/guides/mysql.md")
	case kind == "none":
		return driver.OK(check, "no replica is connected").
			Advise("if the disk of this server is lost, so are the locks; before you restore a backup, see docs/guides/mysql.md")
	case kind == "semi-synchronous" && d.semi("no_tx") != "0":
		return driver.Warn(check, "semi-synchronous, but since its start the server has confirmed %s writes without a replica, "+
			"which a failover may lose", d.semi("no_tx")).
			Advise("KILL no connection that waits for a replica; FLUSH STATUS begins the count again")
	case kind == "semi-synchronous":
		return driver.OK(check, "semi-synchronous, and never without a replica; %s connected", d.semi("clients")).
			Advise("promote a replica only when it has applied its relay log")
	default:
		return driver.OK(check, "%s", kind)
	}
}

func (d *server) connections() driver.Finding {
	n, _ := strconv.Atoi(d.is["threads_connected"])
	most, _ := strconv.Atoi(d.is["max_connections"])
	if float64(n) > connectionsLevel*float64(most) {
		return driver.Warn("connections", "%d of %d are in use", n, most).
			Advise("a process that gets none cannot take or renew a lock: raise max_connections")
	}
	return driver.OK("connections", "%d of %d are in use", n, most)
}
