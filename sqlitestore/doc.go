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
//   - If a process is killed during a write, the write is applied as a whole or
//     not at all.
//   - Goroutines of one store never lock each other out: their writes are queued,
//     and waiting writes share one transaction, and one sync of the disk. While
//     another process writes, a write waits for it, for at most 0.1 seconds. After
//     that its error matches [driver.ErrNotApplied].
//   - A file that is not a database, belongs to another application, is
//     corrupt, or was created by a newer version is refused and left as it is.
//   - A store whose files are moved, replaced or deleted while it is open
//     refuses to go on, for good, with an error that matches [driver.ErrReplaced].
//     Otherwise it would hold the same locks as programs that open the new files. On
//     Linux inotify reports it within milliseconds, and package tenure then ends all
//     leases. Elsewhere, without an inotify instance, and if a folder above was moved,
//     something was mounted, or a symbolic link in the name that was given to [Open] was
//     changed, the next heartbeat finds out; until then there may be two holders. [New]
//     gets a database, and does not know of such links.
//   - A file with a visible second name is refused when it is opened: hard links,
//     and a file that is a mount itself. See "What is not guaranteed" for
//     invisible ones.
//
// # Fencing in the same file
//
// A holder that is paused does not notice that its lease has ended; a check
// before each write only makes that rare. If what the holder writes is in an
// SQLite database, too, put the locks into the same one: [New] keeps them in a
// table beside the program's own, and [Guard], called in the program's own
// transaction, returns an error if another has taken the lock, and keeps others
// from taking it until the transaction ends.
//
// # What is not guaranteed
//
//   - Locks between hosts. SQLite's write-ahead log needs memory that all users
//     of the file share, and the locks of NFS and SMB are not reliable: see
//     https://www.sqlite.org/wal.html and https://www.sqlite.org/howtocorrupt.html.
//     On Linux, Open refuses network file systems that it knows; see
//     [Options.AllowNetworkFS]. FUSE and a folder shared with a virtual machine
//     look like local ones: keep the file off them.
//   - Anything if the files are opened in the same process other than through
//     SQLite, even to copy them: closing a file drops the locks that SQLite has
//     on it in that process. The same goes for a second copy of SQLite in the
//     process. To copy a database use VACUUM INTO or .backup of the sqlite3 shell.
//   - One holder, if programs use the file by two names. Each name has a log and an
//     index of its own, so both grant the same lock under the same token. Give
//     containers the folder, never the file: "docker run -v /srv/locks:/srv/locks",
//     not "-v /srv/locks.db:/locks.db". Open cannot see a hard link that is created
//     while the file is open, the original of a mount that was made elsewhere, and
//     two overlays over one lower file, such as a database in a container's image:
//     two containers have two databases.
//   - Anything against users that may write the folder, or the files: all of them
//     must be trusted. They can take any lock, and replace the files. By replacing
//     FILE-notify they cannot make a program write to another file, or hang.
//   - Fast returns of Open and Close. Open waits up to five seconds for others;
//     Close waits for the disk.
//   - A short log, while any process keeps a read transaction open: it grows
//     until that ends.
//
// # Files
//
// Beside FILE are FILE-wal and FILE-shm, SQLite's own, while any process has it
// open, and on Linux FILE-notify, through which processes notify each other of
// releases, reservations and requests. FILE-notify holds nothing that matters and
// may be deleted.
//
// Files that Open creates are for its user alone, mode 0600, or [Options.Mode]: a user
// that may only read FILE-shm can put a lock on it that keeps all others from writing,
// and so ends every lease. SQLite gives its own files the permissions of FILE.
// Permissions of existing files are never changed.
//
// The table is meant to be read by people:
//
//	sqlite3 -readonly FILE "SELECT name, state, owner, token, session, since, requests FROM tenure_records_view"
//
// The view has the JSON of the column record in columns, without the secret address for
// notifications. Writes leave columns that you add alone. If you change a row of the table by
// hand, give it a new version, or a holder will not notice.
//
// The row of a lock that is held under a session is resting, and names it in the column
// session; the beat is in the row tenure/session/ID. Sessions are alive or closed.
//
// A file of another version of this package is refused, with an error that says
// what to do, if that version's table differs: nothing in it is guessed or
// changed.
package sqlitestore
