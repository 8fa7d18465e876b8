// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/internal/remote"
)

const (
	// actPatience is how long a visitor waits for the result of an act; the act continues.
	actPatience = 5 * time.Second
	// actLeases bounds an act in leases, and leastAct from below: to watch a holder takes one lease, and the
	// work of a holder may take another one to end.
	actLeases = 4
	leastAct  = time.Minute
)

// act is what a visitor can ask of a holder.
type act struct {
	Kind    string // in forms and audit lines
	request tenure.RequestKind
	right   access.Right
	command []string // of the command that does the same, the name in the place of "NAME"
	Title   string
	Hint    string // ends before the lease if it waits for that
	waits   bool
	To      bool // it has a target
	Danger  bool
}

var acts = []act{
	{
		Kind: "step-down", request: tenure.RequestStepDown, right: access.Ask,
		command: []string{"step-down", "NAME"},
		Title:   "Step down", Hint: "The holder ends its work cleanly and releases the lock.",
	},
	{
		Kind: "hand-over", request: tenure.RequestHandOver, right: access.Ask, To: true,
		command: []string{"step-down", "NAME"},
		Title:   "Hand over",
		Hint:    "The holder ends its work, and the lock is reserved for a waiting process: an owner, or a label.",
	},
	{
		Kind: "release-dead", request: tenure.RequestReleaseDead, right: access.Ask, waits: true,
		command: []string{"release", "NAME"},
		Title:   "Release",
		Hint: "For a dead holder whose lock no process waits for: the lock is released when there was no sign of " +
			"life for its lease,",
	},
	{
		Kind: "revoke", request: tenure.RequestRevoke, right: access.Revoke, waits: true, Danger: true,
		command: []string{"release", "NAME", "--force"},
		Title:   "Revoke",
		Hint: "For a holder that is alive but does not react: it cannot renew from now on, and the lock is free when " +
			"its lease has run out, after",
	},
}

// commandFor returns the words of the command that does the same, as a person would type them into a shell,
// or no words if the name cannot be written there: it begins with a dash, or is not printable.
func (a act) commandFor(name string) []string {
	if strings.HasPrefix(name, "-") || printable(name) != name {
		return nil
	}
	words := append([]string{"tenure"}, a.command...)
	words[2] = quoted(name)
	return words
}

// refused says why the act is of no use now; "" if it may be.
func (a act) refused(l *lock) string {
	switch {
	case l.State == unreadable:
		return "The record cannot be read."
	case l.State == free:
		return "The lock has no holder."
	case a.request == tenure.RequestReleaseDead:
		return ""
	case l.State == reserved:
		return "The lock has no holder: it is reserved."
	case a.request == tenure.RequestRevoke && l.Session != "":
		return "It is held under a session, with other locks: ask the holder to step down, or end its process."
	case a.request == tenure.RequestRevoke:
		return ""
	case !l.alive():
		return "The holder shows no sign of life, so it would not answer."
	case l.Request != nil:
		return "It was already asked, and a lock carries one request at a time."
	}
	return ""
}

// actForm is the form of one act.
type actForm struct {
	act
	Name           string
	Token          uint64
	Owners, Labels []string // that have had the lock, as suggestions
	Not            string   // why it cannot be done now
	Command        []string // without what the visitor types; empty if there is no command
	MaxReason      int
	Confirm        bool // it asks for the token of the visitor
}

// acts adds the forms that a visitor may use. A form that cannot be used now is shown with the reason: the
// state may change while the visitor types.
func (v *lockView) acts(who visitor) {
	l := v.Lock
	if !who.form {
		v.NoActs = "To ask the holder, sign in with a browser, or use /v1/requests."
		return
	}
	for _, a := range acts {
		if !who.May(a.right, v.Name) {
			continue
		}
		if a.waits {
			a.Hint += " " + chosen(l.Lease) + "."
		}
		f := actForm{
			act: a, Name: v.Name, Token: l.Token, Not: a.refused(l), Command: a.commandFor(v.Name),
			MaxReason: driver.MaxReasonLen, Confirm: who.shares,
		}
		for _, t := range v.Terms {
			f.Owners = suggested(f.Owners, t.Owner, l.Owner, "unknown")
			f.Labels = suggested(f.Labels, t.Label, l.Label)
		}
		v.Acts = append(v.Acts, f)
	}
	if len(v.Acts) == 0 {
		v.NoActs = who.Name() + " may not send requests to the holder. " + who.rights()
	}
}

// suggested adds a text once, unless it is empty or one of some others.
func suggested(all []string, text string, but ...string) []string {
	if text == "" || slices.Contains(but, text) || slices.Contains(all, text) {
		return all
	}
	return append(all, text)
}

// actFrom reads the form of an act. The name is in the address, where it stays unchanged: in a form, a
// browser rewrites line ends.
func actFrom(query, form url.Values) (a act, token uint64, q remote.Request, p *problem) {
	bad := func(format string, args ...any) *problem {
		return refuse(http.StatusBadRequest, "This cannot be asked", format, args...)
	}
	kind := form.Get("kind")
	i := slices.IndexFunc(acts, func(a act) bool { return a.Kind == kind })
	if i < 0 {
		return a, 0, q, bad("kind %.40q: unknown request: use step-down, hand-over, release-dead or revoke", kind)
	}
	a = acts[i]
	q.Name, q.Kind, q.Reason = query.Get("name"), a.request, strings.TrimSpace(form.Get("reason"))
	if a.To {
		q.To, q.ToLabel = form.Get("to"), form.Get("to-label")
	}
	token, err := strconv.ParseUint(form.Get("token"), 10, 64)
	switch {
	case q.Name == "":
		p = bad("no lock name was sent: start at the page of the lock")
	case err != nil:
		p = bad("token %.40q is not a number: start at the page of the lock, which sends the token that it shows",
			form.Get("token"))
	case q.Reason == "":
		p = bad("the reason is empty: write why; the history shows it")
	case a.To && q.To == "" && q.ToLabel == "":
		p = bad("a hand-over needs a target: name an owner, or a label")
	case a.To && q.To != "" && q.ToLabel != "":
		p = bad("a hand-over is to an owner or to a label, not to both: leave one of them empty")
	}
	return a, token, q, p
}

// act writes a request to the holder of a lock.
func (d *Dashboard) act(w http.ResponseWriter, r *http.Request) *problem {
	who, p := d.acting(w, r)
	if p != nil {
		return p
	}
	a, token, q, p := actFrom(r.URL.Query(), r.PostForm)
	if p != nil {
		return p
	}
	q.By = who.Name()
	line := access.Act{
		Principal: q.By, Action: a.Kind, Lock: q.Name, To: q.To, ToLabel: q.ToLabel, Reason: q.Reason,
	}
	if !who.May(a.right, q.Name) {
		line.Outcome = "forbidden"
		d.audit(r.Context(), line)
		return notAllowed(who, askedText(&q.Request)+" the holder of this lock")
	}
	came, err := d.carryOut(r.Context(), token, q, line)
	if came.status != 0 {
		return d.refused(w, r, who, q.Name, came, err)
	}
	return seeOther(w, lockLink(q.Name)+"&flash="+came.word)
}

// carryOut carries out an act. It continues after the visitor has stopped waiting, and then writes the audit
// line with the result.
func (d *Dashboard) carryOut(
	ctx context.Context, token uint64, q remote.Request, line access.Act,
) (flash, error) {
	audited := func(ctx context.Context, f flash, err error) (flash, error) {
		line.Outcome = f.word
		if err != nil {
			line.Detail = err.Error()
		}
		d.audit(ctx, line)
		return f, err
	}
	st, err := d.client.Status(ctx, q.Name)
	switch {
	case err != nil:
		return audited(ctx, flashOf(err), err)
	case st.Token != token:
		return audited(ctx, changed, nil)
	case st.Held && (q.To != "" && q.To == st.Owner || q.ToLabel != "" && q.ToLabel == st.Label):
		return audited(ctx, itself, nil)
	}
	results := make(chan error, 1)
	started := d.cache.run(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, max(leastAct, actLeases*st.Lease))
		defer cancel()
		err := remote.New(d.client).Ask(ctx, q)
		_, _ = audited(ctx, flashOf(err), err)
		d.cache.stale()
		results <- err
	})
	if !started {
		return audited(ctx, busy, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, actPatience)
	defer cancel()
	select {
	case err := <-results:
		return flashOf(err), err
	case <-ctx.Done():
	}
	d.cache.stale()
	if q.Kind == tenure.RequestReleaseDead {
		return watching, nil
	}
	return underWay, nil
}

// refused shows the page of the lock again, with what was wrong above it.
func (d *Dashboard) refused(
	w http.ResponseWriter, r *http.Request, who visitor, name string, came flash, err error,
) *problem {
	if !who.May(access.Read, name) {
		return refuse(came.status, "Not done", "%s", came.Text)
	}
	query := url.Values{"name": {name}}
	p, problem := d.lock(r.Context(), who, query)
	if problem != nil {
		return problem
	}
	switch {
	case err == nil:
	case slices.Contains([]string{"bad-request", "already-asked", "unanswered"}, came.word):
		came.Text += " " + err.Error() // it is about the request
	default:
		came.Text += " " + d.storeError(who, err)
	}
	p.Flash, p.Status = &came, came.status
	d.show(w, r, who, p, query)
	return nil
}

// quoted returns s as one word of a POSIX shell.
func quoted(s string) string {
	if s != "" && strings.Trim(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-./:@%+,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// flash is a line above the content of a page, such as what came of an act.
type flash struct {
	word   string // for addresses, which cannot make a page say anything else, and for audit lines
	status int    // of the answer to an act that was not done; 0 if it was
	cause  error  // that the text describes
	Text   string
}

// Class is the class in the style sheet.
func (f flash) Class() string {
	if f.status == 0 {
		return "good"
	}
	return "bad"
}

// Results of an act, in addition to errors.
var (
	done     = flash{"done", 0, nil, "Done."}
	measured = flash{"measured", 0, nil, "Measured."}
	underWay = flash{"under-way", 0, nil, "The request was sent. This page shows the result."}
	watching = flash{"watching", 0, nil, "The holder is being watched. The lock is released if there is no sign of life for " +
		"its lease; this page shows the result."}
	changed = flash{"changed", http.StatusConflict, nil, "Not done: another term has begun since you opened the " +
		"page. Check the holder, and send the request again."}
	itself = flash{"already-held", http.StatusConflict, nil, "Not done: this owner already has the lock."}
	busy   = flash{"limited", http.StatusTooManyRequests, nil, "Not done: too many requests are in progress. Try again in a " +
		"minute."}
	away = flash{"unavailable", http.StatusServiceUnavailable, nil, "Not done: the store cannot be used."}
)

// refusals are what errors say.
var refusals = []flash{
	{"unanswered", http.StatusGatewayTimeout, tenure.ErrUnanswered, "The holder was asked, but has not answered. The " +
		"request stays in the record."},
	{"not-held", http.StatusConflict, tenure.ErrNotHeld, "Not done: the lock has no holder."},
	{"already-asked", http.StatusConflict, tenure.ErrRequested, "Not done: the holder was already asked, and carries " +
		"one request at a time."},
	{"alive", http.StatusConflict, tenure.ErrAlive, "Not done: the holder is alive."},
	{"foreign", http.StatusConflict, tenure.ErrForeign, "Not done: the holder is a client that does not understand " +
		"requests."},
	{"bad-request", http.StatusBadRequest, tenure.ErrInvalid, "Not done."},
	{"unknown", http.StatusServiceUnavailable, tenure.ErrUncertain, "The store did not answer, so it is not known " +
		"whether this was done. Check the state below."},
	{"unknown", http.StatusServiceUnavailable, context.DeadlineExceeded, "The store did not answer, so it is not known " +
		"whether this was done. Check the state below."},
}

// flashOf says what the error of an act means.
func flashOf(err error) flash {
	if err == nil {
		return done
	}
	for _, f := range refusals {
		if errors.Is(err, f.cause) {
			return f
		}
	}
	return away
}

// flashNamed returns the flash that an address names: one of what was done.
func flashNamed(word string) *flash {
	for _, f := range []flash{done, measured, underWay, watching} {
		if f.word == word {
			return &f
		}
	}
	return nil
}
