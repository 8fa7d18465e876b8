// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
)

const (
	// openPatience is how long Open waits for others that have the file.
	openPatience = 5 * time.Second
	// readerCount is the number of connections that read.
	readerCount = 2
	// walLimit is the length, in bytes, to which the write-ahead log is cut
	// after a burst.
	walLimit = 16 << 20

	defaultPollPeriod = 200 * time.Millisecond
	leastPollPeriod   = 10 * time.Millisecond

	defaultMode fs.FileMode = 0o600
)

// Options configure a [Store]. The zero value and nil mean the defaults.
type Options struct {
	// PollPeriod is how often a watch checks for changes where the kernel
	// does not report them: off Linux, or when no inotify instance is
	// available. If zero, 200 ms; at least 10 ms. A check costs some
	// microseconds.
	PollPeriod time.Duration

	// AllowNetworkFS has Open accept a file on a network file system. SQLite's
	// write-ahead log does not work between hosts there, and locks over NFS
	// and SMB are not reliable. Set it only if a single host ever opens the
	// file, and its locks are known to work.
	AllowNetworkFS bool

	// Mode is the permissions of the files that Open creates, regardless of the
	// umask: the database, and with it SQLite's own files and the notify file
	// beside it. If zero, 0600. A user that may only read them can keep all others
	// from writing, and so end every lease, by locks on SQLite's index. So use
	// more only for several users who share a database: 0660, in a folder with
	// their group and the setgid bit. Open never changes the permissions of
	// existing files, New creates none, and Mode has no effect on Windows. It
	// includes at least 0600, and no bits beyond 0666.
	Mode fs.FileMode
}

// Store keeps records in a table of an SQLite file. It implements
// [driver.Store], [driver.Watcher], [driver.Raiser] and [driver.ReplacedNotifier].
// All methods may be called concurrently.
type Store struct {
	file     string // absolute, without symbolic links
	files    identity
	fate     fate
	pageSize int
	watches  watches

	writes chan *write
	sync   string             // how the writer's connection syncs; the writer's alone
	yield  func(try int) bool // pause, but in tests

	writer    *conn
	readers   chan *conn // the idle ones
	closing   chan struct{}
	closeOnce sync.Once
	running   sync.WaitGroup // the writer and the watches
}

var (
	_ driver.Store            = (*Store)(nil)
	_ driver.Watcher          = (*Store)(nil)
	_ driver.Raiser           = (*Store)(nil)
	_ driver.ReplacedNotifier = (*Store)(nil)
)

// Open opens the SQLite file at path, and creates it if it is missing or
// empty; its folder must exist. Any number of processes may open a file at
// the same time. While others have it locked, Open tries again for at most
// five seconds, and a write for at most 0.1 seconds.
//
// An error that matches [driver.ErrPermanent] needs a person: the file is not
// a database, is corrupt, belongs to another application, was created by a
// newer version of this package, or is not writable. It is left as it was.
//
// There is no ":memory:"; package memstore keeps records in memory.
func Open(path string, o *Options) (*Store, error) {
	return open(path, o, openPatience)
}

func open(path string, o *Options, patience time.Duration) (*Store, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	file, missing, err := locate(path)
	if err != nil {
		return nil, driver.Permanent(err)
	}
	given, err := filepath.Abs(path)
	if err != nil {
		return nil, driver.Permanent(err)
	}
	if !opts.AllowNetworkFS {
		if err := refuseNetworkFS(file, fileSystem(filepath.Dir(file))); err != nil {
			return nil, driver.Permanent(err)
		}
	}
	if missing {
		if err := makeFile(file, opts.Mode, nil); err != nil && !errors.Is(err, os.ErrExist) {
			err = fmt.Errorf("sqlite file %q: cannot be created: %w", file, err)
			if noFiles() != nil {
				return nil, err
			}
			return nil, driver.Permanent(err)
		}
	}
	return origin{
		file:     file,
		given:    given,
		readers:  readerCount,
		connect:  func(mode string) (*conn, error) { return dial(file, mode) },
		prepare:  func(c *conn) error { return prepareFile(c, file) },
		walLimit: walLimit,
	}.open(opts, patience)
}

func (o *Options) withDefaults() (opts Options, err error) {
	if o != nil {
		opts = *o
	}
	switch {
	case opts.PollPeriod == 0:
		opts.PollPeriod = defaultPollPeriod
	case opts.PollPeriod < leastPollPeriod:
		err = fmt.Errorf("poll period %v: it must be 0 or at least %v", opts.PollPeriod, leastPollPeriod)
	}
	switch mode := opts.Mode; {
	case mode == 0:
		opts.Mode = defaultMode
	case mode&defaultMode != defaultMode, mode&^0o666 != 0:
		err = errors.Join(err, fmt.Errorf("mode %#o: it must include 0600, and nothing beyond 0666", uint32(mode)))
	}
	return opts, err
}

// locate returns the file that path names, absolute and with symbolic links
// resolved, as SQLite does it: the log and its index are beside that file, and
// a process that uses another name must find the same. missing says that there
// is no file yet.
func locate(path string) (file string, missing bool, err error) {
	switch {
	case path == "":
		return "", false, errors.New("sqlite file: the path is empty; name a file, or use memstore for records in memory")
	case path == ":memory:":
		return "", false, errors.New("sqlite file \":memory:\": records in memory exclude no other process; use memstore")
	case strings.HasPrefix(path, "file:"):
		return "", false, fmt.Errorf("sqlite file %q: give a path, not a URI (./%s for a file of that name)", path, path)
	case strings.ContainsRune(path, 0):
		return "", false, fmt.Errorf("sqlite file %q: the path contains a zero byte", path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", false, fmt.Errorf("sqlite file %q: %w", path, err)
	}
	info, err := os.Stat(abs)
	switch {
	case err == nil && info.IsDir():
		return "", false, fmt.Errorf("sqlite file %q: it is a folder; name a file in it", abs)
	case err == nil && !info.Mode().IsRegular():
		return "", false, fmt.Errorf("sqlite file %q: it is not a regular file (%v)", abs, info.Mode().Type())
	case err == nil:
		file, err = filepath.EvalSymlinks(abs)
		if err != nil {
			return "", false, fmt.Errorf("sqlite file %q: %w", abs, err)
		}
		return file, false, writable(file, file, filepath.Dir(file))
	case !errors.Is(err, os.ErrNotExist):
		return "", false, fmt.Errorf("sqlite file %q: %w", abs, unnamed(abs, err))
	}
	if info, err := os.Lstat(abs); err == nil && info.Mode()&os.ModeSymlink != 0 {
		return "", false, fmt.Errorf("sqlite file %q: it is a symbolic link to a file that is missing", abs)
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", false, fmt.Errorf("sqlite file %q: its folder is missing; create it first: %w", abs, err)
	}
	file = filepath.Join(folder, filepath.Base(abs))
	return file, true, writable(file, folder)
}

// writable returns an error unless this user may write all names. SQLite would
// open a read-only file, and leave a log beside it that no process can use.
func writable(file string, names ...string) error {
	for _, name := range names {
		if err := access(name); err != nil {
			what := "it"
			if name != file {
				what = fmt.Sprintf("its folder %q", name)
			}
			return fmt.Errorf("sqlite file %q: %s is not writable by this user; file and folder must be: %w", file, what, err)
		}
	}
	return nil
}

// Close waits for the write under way, ends all watches and closes the file.
// The last process to close it folds the log into it. A hint must not call
// Close.
func (s *Store) Close() (err error) {
	s.closeOnce.Do(func() {
		close(s.closing)
		s.watches.close()
		errs := make([]error, 0, cap(s.readers))
		for range cap(s.readers) {
			c := <-s.readers
			errs = append(errs, c.close())
		}
		s.running.Wait()
		// One after the other: of two that closed at once neither would be the
		// last, and the log would stay.
		err = fault(s.file, errors.Join(append(errs, s.writer.close())...))
	})
	return err
}

// String names the store in messages.
func (s *Store) String() string { return "sqlite:" + s.file }

func (s *Store) ready(ctx context.Context) error {
	select {
	case <-s.closing:
		return driver.ErrClosed
	default:
		return ctx.Err()
	}
}
