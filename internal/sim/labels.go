// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/tenurelock/tenure/driver"

// Labels of processes, where a lock is handed over to a label. The last one is that of
// nobody.
var versions = [...]string{"", "v1", "v2", "v3"}

// labelOf returns the label of a process or a client: where there are labels, one of
// three has none.
func (w *World) labelOf(name string) string {
	if !w.cfg.Labels {
		return ""
	}
	return versions[int(name[len(name)-1])%(len(versions)-1)]
}

// owner returns in whose name a machine acts: a replica acquires for a client.
func (m *machine) owner() string {
	if m.conn != nil {
		return m.conn.v.c.name
	}
	return m.p.name
}

func (m *machine) label() string { return m.p.w.labelOf(m.owner()) }

// someLabel is a label to hand over to, that of nobody too.
func someLabel(src Source) string { return versions[1+src.Intn(len(versions)-1)] }

// heirOf says whether a record is reserved for whom a machine acts: by the name or, if the
// record has no name, by a label that is one.
func (m *machine) heirOf(rec driver.Record) bool {
	switch {
	case rec.State != driver.Reserved:
		return false
	case rec.Owner != "":
		return rec.Owner == m.owner()
	case rec.Label == "":
		return false
	}
	return rec.Label == m.label()
}

// heirTo says whether a request would hand over to the holder itself.
func (l *lock) heirTo(q driver.Request, owner string) bool {
	if q.ToLabel == "" {
		return owner == q.To
	}
	return l.labelOf(owner) == q.ToLabel
}

// inherited counts what became of a reservation for a label.
func (l *lock) inherited(m *machine, was driver.Record) {
	if was.Owner != "" || was.Label == "" {
		return
	}
	l.tally.Kept++
	if m.heirOf(was) && l.now-l.first[was.Beat] < was.Lease {
		l.tally.Came++
	}
}
