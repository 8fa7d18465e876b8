// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package sqlitestore keeps Tenure's records in an SQLite file, for any number
// of processes on one host. It needs no server and no cgo.
//
//	store, err := sqlitestore.Open("/var/lib/app/locks.db", nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//
// # Guarantees
//
//   - Claim, Swap and Delete are decided inside one transaction of the engine,
//     and every read sees all writes that were answered before it.
//   - Tokens, data and history that were answered survive a power loss: the
//     disk has synced them. The last heartbeats, releases, reservations and
//     requests before a power loss may be lost, which at worst means that a lock
//     is free one lease later, or that a request must be made again. A crash of a
//     process loses nothing.
//   - A process that is killed in the midst of a write leaves the write made as
//     a whole or not at all.
//   - Goroutines of one store never keep each other out: their writes line up,
//     and those that wait share one transaction, and one sync of the disk.
//     While another process writes, a write waits for it, for at most 0.1 seconds.
//     After that its error matches [driver.ErrNotApplied].
//   - A file that is no database, another application's, corrupt, or made by a
//     newer version is refused and left as it is.
//   - A store whose files are moved, replaced or deleted while it is open
//     refuses to go on, for good, with an error that matches [driver.ErrReplaced].
//     Otherwise it would hold locks beside the programs that open what is there then. On
//     Linux it knows within milliseconds, by inotify, and package tenure ends all
//     leases then. Elsewhere, without an inotify instance, and if a folder above
//     was moved, something was mounted, or a symbolic link in the name that was
//     given to [Open] was turned, the next heartbeat finds out; until then there
//     may be two holders. [New] is given a database, and knows of no such links.
//   - A file that can be seen to have a second name is refused when it is opened:
//     hard links, and a file that is a mount by itself. See "What is not
//     guaranteed" for those that cannot be seen.
//
// # Fencing in the same file
//
// A holder that is paused does not notice that its lease has ended; a check
// before each write only makes that rare. If what the holder writes is in an
// SQLite database, too, put the locks into the same one: [New] keeps them in a
// table beside the program's own, and [Guard], called in the program's own
// transaction, refuses it if the lock is another's by now, and keeps others from
// taking it until the transaction ends.
//
// # What is not guaranteed
//
//   - Locks between hosts. SQLite's write-ahead log needs memory that all users
//     of the file share, and the locks of NFS and SMB are not to be trusted: see
//     https://www.sqlite.org/wal.html and https://www.sqlite.org/howtocorrupt.html.
//     On Linux, Open refuses network file systems that it knows; see
//     [Options.AllowNetworkFS]. FUSE and a folder shared with a virtual machine
//     look like local ones: keep the file off them.
//   - Anything if the files are opened in the same process other than through
//     SQLite, even to copy them: closing a file drops the locks that SQLite has
//     on it in that process. The same goes for a second copy of SQLite in the
//     process. To copy a database use VACUUM INTO or .backup of the sqlite3 shell.
//   - One holder, if programs come to the file by two names. Log and index are
//     beside the name, so that each name has its own, and both grant the same lock
//     under the same token. Give containers the folder, never the file:
//     "docker run -v /srv/locks:/srv/locks", not "-v /srv/locks.db:/locks.db". What
//     Open cannot see is a hard link that is made while the file is open, the
//     original of a mount that was made elsewhere, and two overlays over one lower
//     file, which is what a database in a container's image is: two containers have
//     two databases.
//   - Anything against users that may write the folder, or the files: the folder
//     must be trusted, and so must all of them. They can take any lock, and replace
//     the files. By what they put in the place of FILE-notify they cannot make a
//     program write to another file, or hang it.
//   - That Open and Close return soon. Open waits up to five seconds for others;
//     Close waits for the disk.
//   - A short log, while somebody keeps a read transaction open: it grows until
//     that ends.
//
// # Files
//
// Beside FILE are FILE-wal and FILE-shm, SQLite's own, while somebody has it
// open, and on Linux FILE-notify, through which processes tell each other of
// releases, reservations and requests. FILE-notify holds nothing that matters and
// may be deleted.
//
// What Open makes is for its user alone, mode 0600, or what [Options.Mode] says:
// a user that may only read FILE-shm can put a lock on it that keeps everybody from
// writing, and so takes every lease away. SQLite gives its own files the permissions of
// FILE. Permissions of files that are there are never changed.
//
// The table is meant to be read by people:
//
//	sqlite3 -readonly FILE "SELECT key, state, owner, token, session, since, requests FROM tenure_records"
//
// All writes leave columns of your own alone. If you change a row by hand, give it
// a new version, or a holder will not notice.
//
// In the row of a lock that is held under a session, session says which; its
// beat is that of the row tenure/session/ID. Sessions are alive or closed.
//
// A file that another version of this package made is refused, with an error
// that says what to do, if that version's table is another one: nothing in it is
// guessed, and none of it changed.
package sqlitestore
