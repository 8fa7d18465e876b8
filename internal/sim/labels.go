// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/tenurelock/tenure/driver"

// Labels of processes, where a lock is handed over to a label. The last one is that of
// nobody.
var versions = [...]string{"", "v1", "v2", "v3"}

// versions is the label of a process: one of three has none.
func (p *process) versions() string {
	return versions[int(p.name[len(p.name)-1])%(len(versions)-1)]
}

// someLabel is a label to hand over to, that of nobody too.
func someLabel(src Source) string { return versions[1+src.Intn(len(versions)-1)] }

// heirOf says whether a record is reserved for a process: by its name or, if the record
// has no name, by a label that is one.
func (p *process) heirOf(rec driver.Record) bool {
	switch {
	case rec.State != driver.Reserved:
		return false
	case rec.Owner != "":
		return rec.Owner == p.name
	case rec.Label == "":
		return false
	}
	return rec.Label == p.label()
}

// heirTo says whether a request would hand over to the holder itself.
func (l *lock) heirTo(q driver.Request, owner string) bool {
	if q.ToLabel == "" {
		return owner == q.To
	}
	for _, p := range l.procs {
		if p.name == owner {
			return p.label() == q.ToLabel
		}
	}
	return false
}

// inherited counts what became of a reservation for a label.
func (l *lock) inherited(m *machine, was driver.Record) {
	if was.Owner != "" || was.Label == "" {
		return
	}
	l.tally.Kept++
	if m.p.heirOf(was) && l.now-l.first[was.Beat] < was.Lease {
		l.tally.Came++
	}
}
