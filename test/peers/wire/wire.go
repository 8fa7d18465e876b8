// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire is the protocol of the processes of lock clients: one JSON object per
// line, requests on the peer's standard input, answers on its standard output. The
// peers in other languages mirror these types by hand.
//
// Each request carries an id that its answer repeats. Requests overlap: an
// acquire that waits does not hold up a release or a get. A peer whose input
// ends exits at once and releases nothing, as if it had crashed.
package wire

import "fmt"

// The commands of a [Request].
const (
	Open      = "open"      // makes the client: once per process, or again after close
	Acquire   = "acquire"   // asks for a lock and keeps its handle under the lock's name
	Release   = "release"   // gives the handle's lock back
	Get       = "get"       // what the client says of a lock
	List      = "list"      // all locks of the table (Java only)
	Heartbeat = "heartbeat" // one heartbeat by hand, for the handle
	Holds     = "holds"     // whether the handle says that it is not expired; sends nothing
	Work      = "work"      // acquires, holds and releases in a loop, and keeps a log
	Ping      = "ping"      // answers
	Close     = "close"     // closes the client, which releases what it holds
	Measure   = "measure"   // what the process itself uses (in Go only); sends nothing
)

// Orders to a process while it works.
const (
	End   = "end"   // closes the client while its work needs DrainMs more
	Hurry = "hurry" // has work check without a pause, and answers: the process is about to be stopped
)

// The kinds of a refusal, in [Answer.Kind].
const (
	Held        = "held"        // another process has the lock, and the request does not wait
	Timeout     = "timeout"     // waited as long as the client waits
	Lost        = "lost"        // the row is not this handle's any more
	Unsupported = "unsupported" // this peer has no such thing
	Other       = "other"       // anything else: see Class and Message
)

// Request is one command. Fields that a command does not name are ignored.
// Where a pointer is nil the client's own default is in force.
type Request struct {
	ID      int64  `json:"id"`
	Command string `json:"cmd"`

	// Of open.
	Endpoint    string `json:"endpoint,omitempty"`
	Table       string `json:"table,omitempty"`
	Owner       string `json:"owner,omitempty"`
	LeaseMs     *int64 `json:"leaseMs,omitempty"`
	HeartbeatMs *int64 `json:"heartbeatMs,omitempty"` // 0: no heartbeats in the background
	Session     bool   `json:"session,omitempty"`     // Tenure only: one session for all locks
	Notify      bool   `json:"notify,omitempty"`      // Tenure only: on the loopback
	Wide        bool   `json:"wide,omitempty"`        // Go only: no connection to DynamoDB is closed when it is idle

	// The lock, in acquire, release, get, heartbeat, holds and work.
	Name string `json:"name,omitempty"`

	// Of acquire, and of work where it says so.
	Data            *[]byte           `json:"dataBase64,omitempty"`      // also of release and heartbeat
	WaitMs          *int64            `json:"waitMs,omitempty"`          // on top of the lease that is met; also of work
	RefreshMs       *int64            `json:"refreshMs,omitempty"`       // between two looks at a held lock; also of work
	TryOnly         bool              `json:"tryOnly,omitempty"`         // does not wait for a held lock
	ReplaceData     *bool             `json:"replaceData,omitempty"`     // by default true in Java, false in dynamolock
	DeleteOnRelease *bool             `json:"deleteOnRelease,omitempty"` // the same; also of work
	Attributes      map[string]string `json:"attributes,omitempty"`      // written as strings (S)
	UpdateExisting  bool              `json:"updateExisting,omitempty"`  // Java only: updateExistingLockRecord

	// Of measure: garbage is collected before.
	Collect bool `json:"collect,omitempty"`

	// Of release: whether to delete the row. Nil: as the handle was acquired.
	Delete *bool `json:"delete,omitempty"`

	// Of work.
	DurationMs int64  `json:"durationMs,omitempty"`
	HoldMs     int64  `json:"holdMs,omitempty"`
	PauseMs    int64  `json:"pauseMs,omitempty"` // between a release and the next acquire
	Log        string `json:"log,omitempty"`     // the file that lines are appended to

	// Of open, and of Tenure alone: the client whose table it shares, and how long a
	// call of the store may take.
	Shared        string `json:"shared,omitempty"` // dynamolock or java; empty: it has the table for itself
	CallTimeoutMs *int64 `json:"callTimeoutMs,omitempty"`

	// What only the table of faults asks for. Of open: whether the client is to tell
	// by itself that a lock is lost, where it must be asked to (dynamolock's session
	// monitor); client-go's time-out for requests as NewFromKubeconfig sets it; its
	// option ReleaseOnCancel. Of end: how long the work goes on.
	Notice          bool  `json:"notice,omitempty"`
	RequestTimeout  bool  `json:"requestTimeout,omitempty"`
	ReleaseOnCancel bool  `json:"releaseOnCancel,omitempty"`
	DrainMs         int64 `json:"drainMs,omitempty"`

	// Of the clients of the lock service. Of open: the token that they show. Of work: what it
	// acquires, and a resource that the holder writes to, each EffectMs at most, HesitateMs
	// after the check that allowed it.
	Secret     string `json:"secret,omitempty"`
	Mode       Mode   `json:"mode,omitempty"`
	Slots      int    `json:"slots,omitempty"`
	Resource   string `json:"resource,omitempty"`
	EffectMs   int64  `json:"effectMs,omitempty"`
	HesitateMs int64  `json:"hesitateMs,omitempty"`
}

// Mode is what work acquires under its name: a lock if it is empty.
type Mode string

// The others.
const (
	Read  Mode = "read"  // the right to read, beside other readers
	Write Mode = "write" // the right to write, without any
	Slot  Mode = "slot"  // one of so many Slots
)

// Answer is a peer's answer to one request. The first one, which has no id, is to none: the peer is
// ready.
type Answer struct {
	ID int64 `json:"id,omitempty"`

	OK      bool   `json:"ok"`
	Kind    string `json:"kind,omitempty"`    // of a refusal
	Class   string `json:"class,omitempty"`   // the error's type in the peer's language
	Message string `json:"message,omitempty"` // the error's text

	// SentNs and GotNs are [Monotonic] before and after the call into the client.
	SentNs int64 `json:"sentNs,omitempty"`
	GotNs  int64 `json:"gotNs,omitempty"`

	// Of ready.
	Version string `json:"version,omitempty"`
	Runtime string `json:"runtime,omitempty"`

	Lock          // of acquire and get
	Token *uint64 `json:"token,omitempty"` // of acquire, if the client has one
	Locks []Lock  `json:"locks,omitempty"` // of list

	Holds  *bool   `json:"holds,omitempty"`  // of holds
	Counts *Counts `json:"counts,omitempty"` // of work
	Usage  *Usage  `json:"usage,omitempty"`  // of measure
}

// Usage is what a process uses.
type Usage struct {
	CPU        float64 `json:"cpuSeconds"` // ever
	Heap       int64   `json:"heapBytes"`
	Goroutines int     `json:"goroutines"`
}

// Lock is what a client's handle says of a lock. What a client does not expose
// is absent.
type Lock struct {
	Name       string            `json:"name,omitempty"`
	Present    *bool             `json:"present,omitempty"` // of get: there is a row, or a handle of its own
	Owner      string            `json:"owner,omitempty"`
	Data       *[]byte           `json:"dataBase64,omitempty"`
	Released   *bool             `json:"released,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"` // the strings among the additional attributes
}

// Counts says what came of the rounds of a work command.
type Counts struct {
	Released  int64  `json:"released"`  // releases that the client confirmed
	Errors    int64  `json:"errors"`    // of acquire and release, refusals not included
	LastError string `json:"lastError"` // the last of these
}

// A work command appends two lines for each lock it gets, each in one write; with
// the token for the resource, if the client has one, and under which name that is compared:
//
//	begin <owner> <ns> [<token> <name>]
//	end <owner> <ns>
//
// The first instant is taken after acquire returned, the second is the last one
// that preceded a check that said "not expired". Between the two the peer's own
// handle always claimed the lock. A holder that was killed leaves no end. Of work that was
// told to end, the second is when it had ended: the lock may have been lost before.
//
// With Notice there are two more, when a check said "expired", and when the client said
// by itself that the lock is lost. The first may be later than the end: a check may hang.
const (
	LogBegin  = "begin"
	LogEnd    = "end"
	LogNo     = "no"
	LogNotice = "notice"
)

// LogLine is such a line.
type LogLine struct {
	What, Owner string
	At          int64
	Token       uint64 // 0: no token
	Name        string // "": no token
}

func (l LogLine) String() string {
	line := fmt.Sprintf("%s %s %d", l.What, l.Owner, l.At)
	if l.Token > 0 {
		line += fmt.Sprintf(" %d %s", l.Token, l.Name)
	}
	return line
}

// ParseLog reads a line.
func ParseLog(line string) (l LogLine, err error) {
	if n, _ := fmt.Sscan(line, &l.What, &l.Owner, &l.At, &l.Token, &l.Name); n < 3 {
		err = fmt.Errorf("line %q of a log of work", line)
	}
	return l, err
}
