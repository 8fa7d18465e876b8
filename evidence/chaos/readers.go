// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/chaos/replica"
	"github.com/tenurelock/tenure/evidence/chaos/trial"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/rwlock"
)

// halves is the workload of readers and writers, while processes are killed and stopped.
// Writers write a register in two steps, a half and the whole, and readers look at it. No
// reader whose lease is good sees it change, or a half, unless it was told that the last
// writer had not ended well. The register has a fence, so no write of a writer that was
// stopped changes what they read.
type halves struct {
	engine           string
	readers, writers int
	lease, length    time.Duration
	open             bool // the fence, to show that a run finds it
}

// reader is what one of its processes is told, in its environment.
type reader struct {
	Name, Store, Resource string
	Write                 bool
	Lease                 time.Duration

	holds int
}

const (
	readerRole     = "reader"
	readerVariable = "TENURE_CHAOS_READER"
	// stopping is what a writer says that stops itself between its check and its write: it
	// wants to be continued when its lease has run out.
	stopping = "stopping"
	// torn begins what a reader says that sees what it must not.
	torn = "torn"
)

// said is a line of a process: its hold as it is now, or what became of one.
type said struct {
	Hold *trial.Hold `json:"hold,omitempty"`
	What string      `json:"what,omitempty"`
}

func runReaders(ctx context.Context, args []string, out, _ io.Writer) error {
	h := halves{}
	flags := flag.NewFlagSet("chaos -workload readers", flag.ContinueOnError)
	engines := flags.String("engines", "sqlite,postgres,dynoxide", "`engines` to run on, all at once")
	flags.DurationVar(&h.length, "duration", 2*time.Minute, "how long processes are killed and stopped")
	flags.DurationVar(&h.lease, "lease", 2*time.Second, "lease duration")
	flags.IntVar(&h.readers, "readers", 3, "processes that read")
	flags.IntVar(&h.writers, "writers", 2, "processes that write")
	wrong := flags.String("wrong", "", "a `mistake` to make on purpose: open-fence")
	if err := flags.Parse(args); err != nil {
		return err
	}
	h.open = *wrong == "open-fence"
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case *wrong != "" && !h.open:
		return fmt.Errorf("-wrong %s is not known", *wrong)
	case h.readers < 1 || h.writers < 1:
		return fmt.Errorf("-readers %d, -writers %d: want 1 of each at least", h.readers, h.writers)
	}
	names := strings.Split(*engines, ",")
	return wait.AtOnce(ctx, len(names), len(names), func(ctx context.Context, i int) error {
		h := h
		h.engine = names[i]
		seen, wrong, err := h.play(ctx)
		fmt.Fprintf(out, "%s: %v\n", h.engine, seen)
		if len(wrong) > 0 {
			err = errors.Join(err, errors.New(strings.Join(wrong, "\n")))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", h.engine, err)
		}
		return nil
	})
}

// play has the processes read and write, and returns what they came to, how often, and what
// was wrong.
func (h halves) play(ctx context.Context) (seen map[string]int, wrong []string, err error) {
	dir, err := os.MkdirTemp("", "tenure-chaos-readers-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	n := h.readers + h.writers
	engine, err := plan{Engine: h.engine, Replicas: n}.open(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, engine.close()) }()
	resource := trial.OpenResource(proc.Monotonic, h.open)
	defer resource.Close()

	var mu sync.Mutex // guards what the processes say
	seen = map[string]int{}
	holds := map[string]trial.Hold{}
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return seen["whole"] > 0 && seen["written"] > 0
	}
	var lives trial.Counter
	start := func(i int) (*proc.Process, error) {
		lives.Add("", 1)
		c := reader{
			Name: fmt.Sprintf("p%d.%d", i+1, lives.All()[""]), Store: engine.store(i), Resource: resource.URL(),
			Write: i < h.writers, Lease: h.lease,
		}
		text, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		p := &proc.Process{}
		return p, p.Start(proc.Command{
			Role: readerRole, Env: []string{readerVariable + "=" + string(text)}, Stderr: os.Stderr,
			Line: func(line []byte) {
				var s said
				if err := json.Unmarshal(line, &s); err != nil {
					return // a kill has cut it off
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case s.Hold != nil:
					holds[s.Hold.Owner] = *s.Hold
				case strings.HasPrefix(s.What, torn):
					wrong = append(wrong, s.What)
				default:
					seen[s.What]++
				}
				if s.What == stopping {
					time.AfterFunc(h.lease+rand.N(h.lease), func() { _ = p.Continue() }) // it may be dead
				}
			},
		})
	}
	over, end := context.WithTimeout(ctx, h.length)
	defer end()
	err = wait.AtOnce(ctx, n, n, func(ctx context.Context, i int) error {
		late := time.Now().Add(h.length + 2*time.Minute)
		for ctx.Err() == nil && (over.Err() == nil || !enough() && time.Now().Before(late)) {
			p, err := start(i)
			if err != nil {
				return err
			}
			h.torment(ctx, p)
		}
		return nil
	})
	if !enough() {
		wrong = append(wrong, fmt.Sprintf("too little has happened: %v", seen))
	}
	l := &trial.Log{}
	var bad []string
	l.Effects, bad = resource.Seen()
	for _, hold := range holds {
		hold.Killed = true // before it could say so
		l.Holds = append(l.Holds, hold)
	}
	l.EndKilled()
	for _, f := range l.Judge() {
		wrong = append(wrong, fmt.Sprintf("%s: %s", f.Sin, f.Text))
	}
	return seen, append(wrong, bad...), err
}

// torment stops a process now and then, and kills it.
func (h halves) torment(ctx context.Context, p *proc.Process) {
	defer p.Kill()
	for range 3 {
		wait.Rest(ctx, rand.N(h.lease))
		if rand.N(3) == 0 {
			_ = p.Signal(syscall.SIGSTOP) // it may have ended
			wait.Rest(ctx, rand.N(2*h.lease))
			_ = p.Continue()
		}
	}
	wait.Rest(ctx, rand.N(3*h.lease))
}

// serveReader reads, or writes, again and again.
func serveReader(_ io.Reader, out io.Writer) error {
	r := &reader{}
	if err := json.Unmarshal([]byte(os.Getenv(readerVariable)), r); err != nil {
		return err
	}
	store, err := replica.OpenStore(r.Store)
	if err != nil {
		return err
	}
	client, err := tenure.New(store,
		&tenure.Options{LeaseDuration: r.Lease, RefreshPeriod: r.Lease / 20, Owner: r.Name})
	if err != nil {
		return err
	}
	lock, err := rwlock.New(client, "file", nil)
	if err != nil {
		return err
	}
	lines := proc.NewLines(out)
	say := func(s said) { _ = lines.Say(s) } // nobody is there to be told
	for ctx := context.Background(); ; {
		if r.Write {
			err = lock.RunWrite(ctx, nil,
				func(ctx context.Context, l *rwlock.Lease) error { return r.rewrite(ctx, l, say) })
		} else {
			err = lock.RunRead(ctx, nil,
				func(ctx context.Context, l *rwlock.Lease) error { return r.compare(ctx, l, say) })
		}
		var stale *fence.StaleError
		switch {
		case errors.As(err, &stale):
			say(said{What: "refused"})
		case errors.Is(err, tenure.ErrLost), errors.Is(err, context.Canceled):
			say(said{What: "lost"})
		case errors.Is(err, tenure.ErrUnreadable), errors.Is(err, tenure.ErrPermanent):
			return err
		case err != nil:
			say(said{What: "no store"}) // somebody was stopped who has the database
		}
		wait.Rest(ctx, rand.N(r.Lease/20))
	}
}

// held is a lease, with its hold as it is known.
type held struct {
	*reader
	*rwlock.Lease
	hold trial.Hold
	say  func(said)
}

func (r *reader) begin(l *rwlock.Lease, say func(said)) (*held, error) {
	r.holds++ // readers take turns with one token
	h := &held{r, l, trial.Hold{
		Lock: "file", Owner: fmt.Sprint(r.Name, ".", r.holds), Token: l.Token(),
		Shared: !r.Write,
	}, say}
	err := h.check()
	h.hold.Begin = proc.Monotonic()
	return h, err
}

// check asks the lease, and says so if it is good.
func (h *held) check() error {
	at := proc.Monotonic()
	if err := h.Check(); err != nil {
		return err
	}
	h.hold.Last = at
	return nil
}

// do reads or writes the register.
func (h *held) do(ctx context.Context, value string) (string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Resource+"/effect", strings.NewReader(value))
	if err != nil {
		return "", err
	}
	fence.SetHeader(q.Header, fence.Fixed(h.hold.Lock, h.hold.Token))
	q.Header.Set(trial.OwnerHeader, h.hold.Owner)
	q.Header.Set(trial.CheckedHeader, strconv.FormatInt(h.hold.Last, 10))
	if value == "" {
		q.Header.Set(trial.DoHeader, "read")
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	if err := fence.Refusal(answer); err != nil {
		return "", err
	}
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

func (r *reader) rewrite(ctx context.Context, l *rwlock.Lease, say func(said)) error {
	h, err := r.begin(l, say)
	if err != nil {
		return err
	}
	for _, what := range []string{"half", "whole"} {
		if err := h.check(); err != nil {
			return err
		}
		say(said{Hold: &h.hold})
		if what == "whole" && rand.N(3) == 0 {
			say(said{What: stopping})
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // between its check and its write
		}
		// A write that is on its way cannot be called back.
		if _, err := h.do(context.WithoutCancel(ctx), fmt.Sprint(what, " ", l.Token())); err != nil {
			return err
		}
	}
	say(said{What: "written"})
	return ctx.Err()
}

func (r *reader) compare(ctx context.Context, l *rwlock.Lease, say func(said)) error {
	last, ok := l.LastWriter()
	if !ok {
		return nil
	}
	h, err := r.begin(l, say)
	if err != nil {
		return err
	}
	well := last.End == tenure.EndReleased
	var first string
	for i := range 4 {
		if err := h.check(); err != nil {
			return err
		}
		say(said{Hold: &h.hold})
		value, err := h.do(ctx, "")
		if err == nil {
			wait.Rest(ctx, rand.N(r.Lease/5))
			err = h.Check()
		}
		if err != nil {
			return err
		}
		if i == 0 {
			first = value
		}
		if value != first || well && value != fmt.Sprint("whole ", l.Token()-1) {
			say(said{What: fmt.Sprintf("%s: %q, and before %q, for a reader with %d after one that has %s", torn,
				value, first, l.Token(), last.End)})
			return nil
		}
	}
	if well {
		say(said{What: "whole"})
	} else {
		say(said{What: "told"}) // it may be half, but does not change
	}
	return nil
}
