// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"time"
)

// Zone returns the time zone that TZ or CRON_TZ names: by a name of the time zone
// database, or by its rule in the form of POSIX, as in CET-1CEST,M3.5.0,M10.5.0/3. Package
// time knows that form only within its files, and uses UTC for such a TZ.
func Zone(name string) (*time.Location, error) {
	name = strings.TrimPrefix(name, ":")
	if zone, err := time.LoadLocation(name); err == nil && name != "" {
		return zone, nil
	}
	if zone, ok := posix(name); ok {
		return zone, nil
	}
	return nil, fmt.Errorf("%.40q is not known here: want a name such as Europe/Berlin or UTC, or a rule such as "+
		"CET-1CEST,M3.5.0,M10.5.0/3", name)
}

// posix has package time read the rule as what comes last in a file of a zone. The file
// has an offset of its own, which shows where the rule was not understood.
func posix(rule string) (*time.Location, bool) {
	const none = 99999 // seconds; more than a day is no offset
	if rule == "" || strings.ContainsAny(rule, "\n\x00") {
		return nil, false
	}
	block := func(version byte) []byte {
		b := append([]byte("TZif"), version)
		b = append(b, make([]byte, 15)...)
		for _, n := range []uint32{0, 0, 0, 0, 1, 2} { // one zone, and two bytes of names
			b = binary.BigEndian.AppendUint32(b, n)
		}
		return append(binary.BigEndian.AppendUint32(b, none), 0, 0, '-', 0)
	}
	file := fmt.Appendf(append(block('2'), block('2')...), "\n%s\n", rule)
	zone, err := time.LoadLocationFromTZData(rule, file)
	if err != nil {
		return nil, false
	}
	for month := range 12 {
		if _, offset := time.Date(2026, time.January+time.Month(month), 1, 0, 0, 0, 0, zone).Zone(); offset == none {
			return nil, false
		}
	}
	return zone, true
}

// SetLocal sets time.Local to what TZ names. It returns an error if TZ names no known zone;
// time.Local is UTC then, as in date(1).
func SetLocal() error {
	name, set := os.LookupEnv("TZ")
	name = strings.TrimPrefix(name, ":")
	if !set || name == "" || name == "UTC" || time.Local.String() != "UTC" {
		return nil // package time has understood it
	}
	zone, err := Zone(name)
	if err != nil {
		return fmt.Errorf("TZ=%w", err)
	}
	time.Local = zone
	return nil
}

// ZoneName returns the name of a zone for people, also for this host's zone.
func ZoneName(zone *time.Location) string {
	if zone.String() != "Local" {
		return zone.String()
	}
	if file, err := os.Readlink("/etc/localtime"); err == nil {
		if _, name, ok := strings.Cut(file, "zoneinfo/"); ok {
			return name
		}
	}
	return "the time of this host"
}
