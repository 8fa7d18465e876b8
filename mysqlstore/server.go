// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

const (
	// The first versions that the store supports.
	leastMySQL, leastMariaDB = "8.0", "10.6"
	// leastPacket is more than the longest record needs, in bytes.
	leastPacket = 4 << 20
	// leastPatience is how long semi-synchronous replication must wait for a replica before it goes on without: for
	// longer than nobody has noticed. MySQL allows 49 days.
	leastPatience = 30 * 24 * time.Hour
)

// link is a connection that is not one of the pool's.
type link struct{ sqldriver.Conn }

// rows returns the rows of a query as texts; NULL is empty.
func (l link) rows(ctx context.Context, query string) (names []string, all [][]string, err error) {
	rows, err := l.Conn.(sqldriver.QueryerContext).QueryContext(ctx, query, nil)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close() //nolint:errcheck // it is read, or the connection is of no more use
	names = rows.Columns()
	for {
		values := make([]sqldriver.Value, len(names))
		if err := rows.Next(values); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return names, all, err
		}
		texts := make([]string, len(names))
		for i, v := range values {
			if b, is := v.([]byte); is {
				texts[i] = string(b)
			} else if v != nil {
				texts[i] = fmt.Sprint(v)
			}
		}
		all = append(all, texts)
	}
}

func (l link) exec(ctx context.Context, query string) error {
	_, err := l.Conn.(sqldriver.ExecerContext).ExecContext(ctx, query, nil)
	return err
}

// server is what a server says of itself.
type server struct {
	is       map[string]string // variables of the session and the server, and counters, by their names
	maria    bool
	stranger string // the name of a server that only speaks the protocol
	table    table

	source   string // where it replicates from, "" if it does not, or does not say
	replicas int    // connected ones and other readers of its binary log
	blind    bool   // the user may not see them
	grants   string
	never    bool // Options.NoPromotion
}

// Variables and counters. Servers know different ones, and leave the others out.
const (
	variables = "'version','version_comment','aurora_version','read_only','innodb_read_only','innodb_flush_log_at_trx_commit'," +
		"'innodb_flush_method','innodb_doublewrite','log_bin','sync_binlog','binlog_row_image','max_allowed_packet','max_connections'," +
		"'wsrep_on','wsrep_sync_wait','group_replication_group_name','group_replication_consistency'," +
		"'group_replication_single_primary_mode'," +
		"'rpl_semi_sync_master_enabled','rpl_semi_sync_master_timeout','rpl_semi_sync_master_wait_point'," +
		"'rpl_semi_sync_master_wait_no_slave','rpl_semi_sync_master_wait_for_slave_count'," +
		"'rpl_semi_sync_source_enabled','rpl_semi_sync_source_timeout','rpl_semi_sync_source_wait_point'," +
		"'rpl_semi_sync_source_wait_no_replica','rpl_semi_sync_source_wait_for_replica_count'"
	counters = "'ssl_cipher','threads_connected','slave_running','slaves_running','slaves_connected','wsrep_cluster_status'," +
		"'wsrep_ready','rpl_semi_sync_master_status','rpl_semi_sync_master_clients','rpl_semi_sync_master_no_tx'," +
		"'rpl_semi_sync_source_status','rpl_semi_sync_source_clients','rpl_semi_sync_source_no_tx'"
)

// examine asks a server. The user needs no rights for it but those on the table. With some more it says which
// replicas MySQL has.
func (s *Store) examine(ctx context.Context, l link) (*server, error) {
	d := &server{is: map[string]string{}, never: s.options.NoPromotion, table: table{place: s.place, types: map[string]string{}}}
	for _, query := range []string{
		"SHOW VARIABLES WHERE Variable_name IN (" + variables + ")", "SHOW STATUS WHERE Variable_name IN (" + counters + ")",
	} {
		_, all, err := l.rows(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, row := range all {
			d.is[strings.ToLower(row[0])] = row[1]
		}
	}
	d.maria = strings.Contains(d.is["version"], "MariaDB")
	for _, name := range []string{"TiDB", "OceanBase", "Vitess", "PlanetScale", "SingleStore", "Dolt", "StarRocks", "Doris"} {
		if strings.Contains(strings.ToLower(d.is["version"]+d.is["version_comment"]), strings.ToLower(name)) {
			d.stranger = name
		}
	}
	if err := d.describe(ctx, l); err != nil {
		return nil, err
	}
	return d, d.replication(ctx, l)
}

// describe asks for the table.
func (d *server) describe(ctx context.Context, l link) error {
	where := " WHERE table_schema = '" + strings.ReplaceAll(d.table.place.database, "'", "''") + "' AND table_name = '" + d.table.place.name + "'"
	_, all, err := l.rows(ctx, "SELECT engine FROM information_schema.tables"+where)
	if err != nil || len(all) == 0 {
		return err
	}
	d.table.engine = all[0][0]
	_, all, err = l.rows(ctx, "SELECT column_name, data_type, column_key FROM information_schema.columns"+where)
	var key []string
	for _, row := range all {
		d.table.types[row[0]] = row[1]
		if row[2] == "PRI" {
			key = append(key, row[0])
		}
	}
	d.table.key = strings.Join(key, ", ")
	return err
}

// replication asks for replicas, and for the server from which this one replicates.
func (d *server) replication(ctx context.Context, l link) error {
	if n, err := strconv.Atoi(d.is["slaves_connected"]); err == nil {
		d.replicas = n // on MariaDB anyone may see it
	} else if _, all, err := l.rows(ctx, "SELECT COUNT(*) FROM performance_schema.threads WHERE processlist_command LIKE 'Binlog Dump%'"); err == nil {
		d.replicas, _ = strconv.Atoi(all[0][0])
	} else if d.blind = true; !denied(err) {
		return err
	}
	if running, _ := strconv.Atoi(d.is["slaves_running"]); running > 0 || isOn(d.is["slave_running"]) {
		d.source = "another server"
	}
	statement := "SHOW REPLICA STATUS"
	if d.maria {
		statement = "SHOW ALL REPLICAS STATUS"
	}
	names, all, err := l.rows(ctx, statement)
	if err != nil && !denied(err) {
		return err
	}
	d.blind = d.blind || err != nil
	for _, row := range all {
		for i, name := range names {
			switch channel := slices.Index(names, "Channel_Name"); {
			case channel >= 0 && strings.HasPrefix(row[channel], "group_replication_"): // its own
			case (name == "Source_Host" || name == "Master_Host") && row[i] != "":
				d.source = row[i]
			}
		}
	}
	_, all, err = l.rows(ctx, "SHOW GRANTS")
	for _, row := range all {
		d.grants += strings.ToUpper(row[0]) + "\n"
	}
	return err
}

// denied reports whether the server refuses a question because of the user's rights.
func denied(err error) bool { return slices.Contains([]uint16{1142, 1143, 1227, 1044}, number(err)) }

func isOn(value string) bool {
	return strings.EqualFold(value, "ON") || value == "1" || strings.EqualFold(value, "YES")
}

// isOff says so of one or several values. MariaDB 12 has more values of read_only than two.
func isOff(values string) bool {
	return strings.Trim(strings.ReplaceAll(strings.ToUpper(values), "OFF", ""), "0") == ""
}

func (d *server) on(name string) bool { return isOn(d.is[name]) }

// semi returns a setting of semi-synchronous replication by the name that MariaDB has for it, or MySQL before 8.4.
func (d *server) semi(name string) string {
	if value, known := d.is["rpl_semi_sync_master_"+name]; known {
		return value
	}
	return d.is["rpl_semi_sync_source_"+strings.ReplaceAll(name, "slave", "replica")]
}

func (d *server) name() string {
	if d.maria {
		return "MariaDB"
	}
	return "MySQL"
}

// number is the version without what the distribution adds.
func (d *server) number() string {
	n, _, _ := strings.Cut(d.is["version"], "-")
	if n == "5.5.5" { // MariaDB 10 to clients that know no such number
		n, _, _ = strings.Cut(strings.TrimPrefix(d.is["version"], "5.5.5-"), "-")
	}
	return n
}

// before reports whether the version is lower than one of two numbers.
func (d *server) before(version string) bool {
	var major, minor, leastMajor, leastMinor int
	_, _ = fmt.Sscanf(d.number(), "%d.%d", &major, &minor)
	_, _ = fmt.Sscanf(version, "%d.%d", &leastMajor, &leastMinor)
	return major < leastMajor || major == leastMajor && minor < leastMinor
}

// refused returns why a store cannot be on the server, all reasons at once.
func (d *server) refused() error {
	var all []error
	refuse := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Errorf("mysql: "+format, args...))
		}
	}
	least := leastMySQL
	if d.maria {
		least = leastMariaDB
	}
	if d.stranger != "" {
		return driver.Permanent(fmt.Errorf("mysql: the server is %s, which only speaks the protocol of MySQL: the store is not tested "+
			"there; use MySQL, MariaDB or another store", d.stranger))
	}
	// A server that is no primary may become one. What else is wrong with it does not matter until then.
	refuse(!isOff(d.is["read_only"]+d.is["innodb_read_only"]), "%w", errReadOnly)
	refuse(d.source != "", "the server replicates from %s: name the primary; if this server was promoted, wait until it has "+
		"applied its relay log, then STOP REPLICA and RESET REPLICA ALL", d.source)
	if len(all) > 0 {
		return errors.Join(all...)
	}
	packet, _ := strconv.Atoi(d.is["max_allowed_packet"])
	refuse(d.before(least), "%s %s is too old: the store needs %s", d.name(), d.number(), least)
	refuse(packet < leastPacket, "max_allowed_packet is %d: a record may need %d; raise it", packet, leastPacket)
	for _, text := range d.losses() {
		refuse(true, "%s", text)
	}
	for _, text := range d.failovers() {
		refuse(true, "%s", text)
	}
	return driver.Permanent(errors.Join(all...))
}

// losses says how a crash of the server may lose a write that it has confirmed.
func (d *server) losses() (all []string) {
	if flush := d.is["innodb_flush_log_at_trx_commit"]; flush != "1" {
		all = append(all, fmt.Sprintf("innodb_flush_log_at_trx_commit is %s, so that a crash loses confirmed writes: set it to 1", flush))
	}
	if sync := d.is["sync_binlog"]; d.on("log_bin") && sync != "1" {
		all = append(all, fmt.Sprintf("sync_binlog is %s, so that a power failure loses the end of the binary log, and with it "+
			"confirmed writes: set it to 1", sync))
	}
	return all
}

// failovers says how a failover may lose a write that the server has confirmed.
func (d *server) failovers() (all []string) {
	wrong := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	asynchronous := d.replicas
	switch {
	case d.on("wsrep_on"):
		wait, _ := strconv.Atoi(d.is["wsrep_sync_wait"])
		wrong(wait&1 == 0, "wsrep_sync_wait is %d, so that a node of Galera answers reads before it has applied what another node "+
			"has confirmed: set it to 1", wait)
		wrong(d.is["wsrep_cluster_status"] != "Primary" || !d.on("wsrep_ready"), "the node of Galera is %s, ready %s: name one of the "+
			"majority", d.is["wsrep_cluster_status"], d.is["wsrep_ready"])
	case d.is["group_replication_group_name"] != "":
		wrong(!d.on("group_replication_single_primary_mode"), "the group has several primaries: set group_replication_single_primary_mode")
		wrong(d.is["group_replication_consistency"] == "EVENTUAL", "group_replication_consistency is EVENTUAL, so that a new primary "+
			"answers before it has applied what the former one has confirmed: set BEFORE_ON_PRIMARY_FAILOVER")
	case isOn(d.semi("enabled")):
		milliseconds, _ := strconv.ParseUint(d.semi("timeout"), 10, 63)
		count, err := strconv.Atoi(d.semi("wait_for_slave_count"))
		clients, _ := strconv.Atoi(d.semi("clients"))
		asynchronous -= clients
		wrong(milliseconds < uint64(leastPatience.Milliseconds()), "semi-synchronous replication confirms writes without a replica after "+
			"%v: set its timeout to 4294967295, 49 days", time.Duration(milliseconds)*time.Millisecond)
		wrong(!isOn(d.semi("wait_no_slave")), "semi-synchronous replication confirms writes without a replica while none is "+
			"connected: set its wait_no_slave, or wait_no_replica, to ON")
		wrong(err == nil && count < 1, "semi-synchronous replication waits for %d replicas: set 1 at least", count)
		wrong(!strings.EqualFold(d.semi("wait_point"), "AFTER_SYNC"), "semi-synchronous replication waits %s, so that others see what "+
			"a failover loses: set its wait_point to AFTER_SYNC", d.semi("wait_point"))
		wrong(!isOn(d.semi("status")), "semi-synchronous replication has given up waiting for a replica: writes are "+
			"asynchronous now; bring the replica back")
		wrong(d.overrides(), "the user may write in spite of read_only, so that a primary that was replaced would take its heartbeats: "+
			"name a user without SUPER, READ ONLY ADMIN and CONNECTION_ADMIN")
	}
	wrong(asynchronous > 0 && !d.never, "%s of its binary log may lack confirmed writes: make them semi-synchronous, or, if none of them "+
		"is ever promoted, set Options.NoPromotion, promotion=never in the URL", driver.Counted(asynchronous, "asynchronous reader"))
	return all
}

// overrides reports whether the user may write to a server that is read-only.
func (d *server) overrides() bool {
	for _, right := range []string{"SUPER", "READ ONLY ADMIN", "READ_ONLY ADMIN", "CONNECTION_ADMIN", "ALL PRIVILEGES ON *.*"} {
		if strings.Contains(d.grants, right) {
			return true
		}
	}
	return false
}
