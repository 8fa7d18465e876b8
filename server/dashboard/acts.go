// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server/access"
)

const (
	// actPatience is how long a visitor waits for what comes of an act; it goes on.
	actPatience = 5 * time.Second
	// actLeases bounds an act in leases, and leastAct from below: to watch a holder takes
	// one lease, and the work of a holder may take another one to end.
	actLeases = 4
	leastAct  = time.Minute
)

// actForm is the form of one act.
type actForm struct {
	Kind, Title, Hint string
	Name, Token       string
	Danger            bool
	Heir              bool     // it asks for whom
	Owners, Labels    []string // that have had the lock, as suggestions
	Not               string   // why it cannot be done now
	Command           []string // as far as it stands without what is typed; empty if there is none
	Sample            []string // what may follow
	MaxReason         int
	Confirm           bool // it asks for the token of the visitor
}

// acts adds the forms that a visitor may use. One that is of no use now stays, and says why:
// the state may change while somebody types.
func (m *lockModel) acts(l *lock, who visitor) {
	if !who.form {
		m.NoActs = "Sign in with a browser, or use /v1/requests, to ask the holder."
		return
	}
	for _, a := range []actForm{
		{Kind: "step-down", Title: "Step down", Hint: "The holder ends its work in order, and releases the lock."},
		{Kind: "hand-over", Title: "Hand over", Hint: "The holder ends its work, and the lock is kept for one who waits for it: an owner, or a label.", Heir: true},
		{
			Kind: "release-dead", Title: "Release",
			Hint: fmt.Sprintf("For a dead holder that nobody waits to follow: the lock is released when there has been no sign of life for its lease, %s.", term(l.Lease)),
		},
		{
			Kind: "revoke", Title: "Revoke", Danger: true,
			Hint: fmt.Sprintf("For a holder that lives and does not answer: it cannot renew from now on, and the lock is free when its lease has run out, after %s.", term(l.Lease)),
		},
	} {
		kind := kinds[a.Kind]
		if !mayOperate(who, kind, m.Name) {
			continue
		}
		a.Name, a.Token, a.MaxReason = m.Name, strconv.FormatUint(l.Token, 10), driver.MaxReasonLen
		a.Confirm = who.shares
		a.Command = commandOf(kind, m.Name)
		if a.Heir {
			a.Sample = []string{"--to=OWNER"}
			a.Owners, a.Labels = m.heirs(l)
		}
		a.Sample = append(a.Sample, "--reason='why'")
		a.Not = l.refuses(kind)
		m.Acts = append(m.Acts, a)
	}
	if len(m.Acts) == 0 {
		m.NoActs = who.Name() + " may not ask the holder for anything. " + rightsOf(who)
	}
}

// heirs are the owners and labels that have had the lock before.
func (m *lockModel) heirs(l *lock) (owners, labels []string) {
	seenOwner, seenLabel := map[string]bool{l.Owner: true, "": true, "unknown": true}, map[string]bool{l.Label: true, "": true}
	for _, t := range m.Tenures {
		if !seenOwner[t.Owner] {
			seenOwner[t.Owner], owners = true, append(owners, t.Owner)
		}
		if !seenLabel[t.Label] {
			seenLabel[t.Label], labels = true, append(labels, t.Label)
		}
	}
	return owners, labels
}

// kinds are the requests that a visitor can make, by their names in forms and audit lines.
var kinds = map[string]tenure.RequestKind{
	"step-down": tenure.RequestStepDown, "hand-over": tenure.RequestHandOver,
	"release-dead": tenure.RequestReleaseDead, "revoke": tenure.RequestRevoke,
}

// kindName returns the name of a kind of request.
func kindName(kind tenure.RequestKind) string {
	for name, k := range kinds {
		if k == kind {
			return name
		}
	}
	return string(kind)
}

// refuses says why a request of that kind is of no use now; "" if it may be.
func (l *lock) refuses(kind tenure.RequestKind) string {
	alive := l.state == held || l.state == asked || l.state == inDoubt
	switch {
	case l.state == unreadable:
		return "The record cannot be read."
	case l.state == free:
		return "Nobody holds the lock."
	case kind == tenure.RequestReleaseDead:
		return ""
	case l.state == reserved:
		return "Nobody holds the lock: it is reserved."
	case kind == tenure.RequestRevoke && l.Session != "":
		return "It is held under a session, with others: ask it to step down, or end its process."
	case kind == tenure.RequestRevoke:
		return ""
	case !alive:
		return "The holder shows no sign of life: it would not answer."
	case l.Request != nil:
		return "It was asked already, and carries one request at a time."
	}
	return ""
}

// actFrom reads the form of an act. The name is in the address, where it comes through as it
// is: in a form, a browser writes line ends its own way.
func actFrom(query, form url.Values) (name string, token uint64, q tenure.Request, p *problem) {
	bad := func(format string, args ...any) *problem {
		return &problem{http.StatusBadRequest, "This cannot be asked", fmt.Sprintf(format, args...)}
	}
	name, q.Kind = query.Get("name"), kinds[form.Get("kind")]
	q.Reason, q.To, q.ToLabel = strings.TrimSpace(form.Get("reason")), form.Get("to"), form.Get("to-label")
	token, err := strconv.ParseUint(form.Get("token"), 10, 64)
	switch {
	case q.Kind == "":
		p = bad("kind %.40q: %v", form.Get("kind"), errNoKind)
	case name == "":
		p = bad("no name of a lock was sent: begin at the page of the lock")
	case err != nil:
		p = bad("token %.40q is no number: begin at the page of the lock, which sends the token that it shows", form.Get("token"))
	case q.Reason == "":
		p = bad("the reason is empty: say why, for those who read the history")
	case q.Kind != tenure.RequestHandOver:
		q.To, q.ToLabel = "", ""
	case q.To == "" && q.ToLabel == "":
		p = bad("a hand-over needs to whom: name an owner, or a label")
	case q.To != "" && q.ToLabel != "":
		p = bad("a hand-over is to an owner or to a label, not to both: leave one of them empty")
	}
	return name, token, q, p
}

// acting reads the form of a visitor who changes something. If it returns false, the request
// has had its answer.
func (d *Dashboard) acting(w http.ResponseWriter, r *http.Request) (visitor, bool) {
	who, ok := d.admitted(w, r)
	if !ok {
		return who, false
	}
	if !who.form {
		d.unknown(w, r)
		return who, false
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		d.failed(w, r, badForm(err))
		return who, false
	}
	if who.shares {
		if p := d.confirm(r, who); p != nil {
			if p.status == http.StatusTooManyRequests {
				w.Header().Set("Retry-After", retryAfter)
			}
			d.failed(w, r, p)
			return who, false
		}
	}
	return who, true
}

// confirm returns a problem unless the form has a secret of the visitor. No page knows it, so
// whoever has the cookie from another port of this host does not have it.
func (d *Dashboard) confirm(r *http.Request, who visitor) *problem {
	secret := strings.TrimSpace(r.PostForm.Get("secret"))
	refused := func(format string, args ...any) *problem {
		return &problem{http.StatusForbidden, "Not confirmed", fmt.Sprintf(format, args...)}
	}
	if secret == "" {
		return refused("a browser sends the cookie of a page without TLS to every port of this host, so a form sends the token of %s besides, and there was none: go back, and type it", who.Name())
	}
	p, ok := d.options.Access.ByToken(secret)
	switch {
	case ok && p.Name() == who.Name():
		if d.options.Admit(r, p, secret) == 0 {
			return nil
		}
	case d.failures.allow(r.RemoteAddr):
		d.failures.add(r.RemoteAddr)
		d.options.Wrong(r, secret)
		d.audit(r.Context(), access.Act{Principal: who.Name(), Action: "confirm", Outcome: "unauthenticated", Detail: "from " + host(r.RemoteAddr)})
		return refused("this is no token of %s: go back, and type it again", who.Name())
	}
	return &problem{http.StatusTooManyRequests, "Too many", tooMany}
}

// act lays a request to the holder of a lock.
func (d *Dashboard) act(w http.ResponseWriter, r *http.Request) {
	who, ok := d.acting(w, r)
	if !ok {
		return
	}
	name, token, q, problem := actFrom(r.URL.Query(), r.PostForm)
	if problem != nil {
		d.failed(w, r, problem)
		return
	}
	q.By, q.At = who.Name(), time.Now()
	line := access.Act{
		Principal: who.Name(), Action: kindName(q.Kind), Lock: name,
		To: q.To, ToLabel: q.ToLabel, Reason: q.Reason,
	}
	if !mayOperate(who, q.Kind, name) {
		line.Outcome = "forbidden"
		d.audit(r.Context(), line)
		d.failed(w, r, notAllowed(who, askedText(&q)+" the holder of this lock"))
		return
	}
	said, err := d.carryOut(r.Context(), name, token, q, line)
	if said.failed() {
		d.refused(w, r, who, name, said, err)
		return
	}
	seeOther(w, lockLink(name)+"&said="+url.QueryEscape(string(said)))
}

// badForm says why a form cannot be read.
func badForm(err error) *problem {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return &problem{http.StatusRequestEntityTooLarge, "Too large", fmt.Sprintf("the form has more than %d bytes", maxForm)}
	}
	return &problem{http.StatusBadRequest, "Not understood", "the form cannot be read: " + err.Error()}
}

// carryOut does what was asked. It goes on when the visitor has waited for long enough, and
// so does the audit line, which tells what has come of it.
func (d *Dashboard) carryOut(ctx context.Context, name string, token uint64, q tenure.Request, line access.Act) (saying, error) {
	st, err := d.client.Status(ctx, name)
	if err == nil && st.Token != token {
		line.Outcome, line.Detail = string(changed), "another tenure had begun"
		d.audit(ctx, line)
		return changed, nil
	}
	if err != nil {
		line.Outcome, line.Detail = string(outcomeOf(err)), err.Error()
		d.audit(ctx, line)
		return outcomeOf(err), err
	}
	if q.Kind == tenure.RequestHandOver && (q.To != "" && q.To == st.Owner || q.ToLabel != "" && q.ToLabel == st.Label) && st.Held {
		line.Outcome = string(itself)
		d.audit(ctx, line)
		return itself, nil
	}
	type result struct {
		said saying
		err  error
	}
	results := make(chan result, 1)
	started := d.work.start(func(ctx context.Context) {
		ctx, cancel := bounded(ctx, max(leastAct, actLeases*st.Lease))
		defer cancel()
		err := d.ask(ctx, name, q)
		said := outcomeOf(err)
		line.Outcome = string(said)
		if err != nil {
			line.Detail = err.Error()
		}
		d.audit(ctx, line)
		d.locks.stale()
		d.censuses.stale()
		d.histories.stale()
		results <- result{said, err}
	})
	if !started {
		line.Outcome = string(busy)
		d.audit(ctx, line)
		return busy, nil
	}
	timer := time.NewTimer(actPatience)
	defer timer.Stop()
	select {
	case res := <-results:
		return res.said, res.err
	case <-timer.C:
	case <-ctx.Done():
	}
	d.locks.stale()
	if q.Kind == tenure.RequestReleaseDead {
		return watching, nil
	}
	return underWay, nil
}

// errNoKind says that there is no such request.
var errNoKind = errors.New("no such request: it is one of step-down, hand-over, release-dead, revoke")

// ask lays a request, and waits until it is done.
func (d *Dashboard) ask(ctx context.Context, name string, q tenure.Request) error {
	return d.client.Remote().Ask(ctx, tenure.RemoteRequest{Name: name, Kind: q.Kind, By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel})
}

// refused shows the page of the lock again, with what was wrong above it.
func (d *Dashboard) refused(w http.ResponseWriter, r *http.Request, who visitor, name string, said saying, err error) {
	if !who.May(access.Read, name) {
		d.failed(w, r, &problem{said.status(), "Not done", sayings[string(said)].Text})
		return
	}
	query := url.Values{"name": {name}}
	p, problem := d.lock(r.Context(), who, query)
	if problem != nil {
		d.failed(w, r, problem)
		return
	}
	told := sayings[string(said)]
	if err != nil {
		if said == invalid || said == already || said == unanswered {
			told.Text += " " + err.Error() // which is about the request
		} else {
			told.Text += " " + d.storeError(who, err)
		}
	}
	p.Said, p.Status = &told, said.status()
	d.show(w, r, who, d.views()["lock"], p, query)
}
