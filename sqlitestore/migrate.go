// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import "fmt"

// Version 3 added session, and version 2 priority, requests, asked, prev_asked
// and stamp.
//
// A lock under a session is held, and its beat stands still. A program of an
// older version that has the file open would watch it for its lease and take it
// over, from a holder who is at work. So the state of such a row is none that it
// knows: what is not held, reserved or released it neither claims nor takes over,
// and it shows the row as one of a later version. The same goes for the sessions'
// own rows. And session counts in such a row alone: where an older program has
// written since, as an operator's release does by force, the state is another one.
//
// Programs of version 1 that have the file open do not notice the migration:
// they go on to read and write the columns that they know, by name, and leave
// the others as they are. Left alone, that would leave in the row of a new
// holder what is another's: a request to the former one, the request that ended
// the tenure before. Hence stamp. Each write of ours sets it to the version
// that it writes; a write of theirs changes the version alone; and where the
// two differ the columns of version 2 do not count. In the row of a lock that
// such a program holds a request of ours makes its next heartbeat conflict, and
// it takes the lock for lost: nobody who works without the lock comes of that.
// A reserved lock, whose state they do not know, they neither claim nor take
// over.
//
// They cannot open the file again once it is migrated: its version is told to be
// newer than theirs, and to upgrade the program is what there is to do. A table in
// another application's database bears no version, so that programs of version 2
// open it, and are kept off what they do not know by the states.

const addSession = "ALTER TABLE tenure_records ADD COLUMN session TEXT"

// migration returns the statements that lead from a version to ours, to be run
// in one transaction. Version 0 is an empty database.
func migration(version int64) []string {
	stamped := fmt.Sprintf("PRAGMA user_version = %d", schemaVersion)
	switch version {
	case 0:
		return []string{schema, fmt.Sprintf("PRAGMA application_id = %d", applicationID), stamped}
	case 1:
		return []string{
			"ALTER TABLE tenure_records ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",
			"ALTER TABLE tenure_records ADD COLUMN requests TEXT",
			"ALTER TABLE tenure_records ADD COLUMN asked TEXT",
			"ALTER TABLE tenure_records ADD COLUMN prev_asked TEXT",
			"ALTER TABLE tenure_records ADD COLUMN stamp TEXT",
			addSession,
			stamped,
		}
	case 2:
		return []string{addSession, stamped}
	default:
		return nil // another process was first
	}
}
