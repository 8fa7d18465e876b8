// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
)

// historyCmd is tenure history.
type historyCmd struct {
	Name  string  `arg:""`
	At    *string `placeholder:"TIME"`
	Limit int     `default:"100" must:"be positive"`
	readerFlags
}

// Run shows who held the lock.
func (h *historyCmd) Run(c *console) error {
	var at span
	if h.At != nil {
		var err error
		if at, err = parseTime(*h.At, time.Now()); err != nil {
			return err
		}
		if at.from.After(time.Now()) {
			return usage("--at %s is in the future", at.text)
		}
	}
	options := tenure.Options{HistoryLimit: h.Limit}
	if h.At != nil {
		options.HistoryLimit = 0 // as many as there are by default
	}
	if err := check(options, h.Name); err != nil {
		return err
	}
	v, err := h.client(c, &options, nil)
	if err != nil {
		return err
	}
	defer v.close()
	ctx, cancel := context.WithTimeout(v.ctx, lookTimeout)
	defer cancel()
	list, err := v.client.History(ctx, h.Name)
	if err == nil && len(list) == 0 {
		if locks, tenures, err := readersWritersHistory(ctx, v.client, h.Name); err != nil || len(locks) > 0 {
			if err != nil {
				return lookFailed(ctx, err)
			}
			return h.printReadersWriters(c, locks, tenures)
		}
	}
	switch {
	case err != nil:
		return lookFailed(ctx, err)
	case len(list) == 0 && c.sayLedgers(ctx, v.client, h.Name):
	case h.At != nil:
		h.printAt(c, list, at)
	default:
		h.print(c, "", list)
	}
	return nil
}

// print writes the tenures of a lock, which is named where there are several.
func (h *historyCmd) print(c *console, lock string, list []tenure.Tenure) {
	switch {
	case c.json:
		for _, t := range list {
			o := tenureObject(t)
			o.Lock = lock
			c.object(o)
		}
		return
	case len(list) == 0:
		c.say("%q was never held", h.Name)
		return
	case lock != "":
		c.put(lock + ":\n")
	}
	cells := [][]string{{"TOKEN", "OWNER", "HOST", "LABEL", "SINCE", "UNTIL", "HELD", "ENDED", "WHY"}}
	var next time.Time // when the nearest later tenure that is known began
	for i := 0; i < len(list); i++ {
		first := i
		for list[i].Unknown && i+1 < len(list) && list[i+1].Unknown {
			i++
		}
		line := tenureCells(list[i], next)
		if !list[i].Unknown {
			next = list[i].Since
		}
		if i > first {
			line[0] = fmt.Sprintf("%s-%s", line[0], formatToken(list[first].Token))
		}
		if list[i].Unknown && i == len(list)-1 {
			line[len(line)-1] = "not kept, or from before there was a history, or never written"
		}
		cells = append(cells, line)
	}
	c.table(cells)
	if last := list[len(list)-1]; last.Token > 1 {
		c.say("earlier tenures are not kept, or were held without a history")
	}
}

// printReadersWriters prints the history of each lock of one for readers and writers that was
// held.
func (h *historyCmd) printReadersWriters(c *console, locks []string, tenures [][]tenure.Tenure) error {
	if h.At != nil {
		return usage("--at is for one lock, and %q is %d of them: name the one of its writers, %q, or one of its readers'",
			h.Name, len(locks), locks[0])
	}
	for i, list := range tenures {
		if len(list) > 0 {
			h.print(c, locks[i], list)
		}
	}
	return nil
}

// tenureCells are the columns of a tenure. It was over at an instant, if that is not zero.
func tenureCells(t tenure.Tenure, over time.Time) []string {
	if t.Unknown {
		return []string{
			formatToken(t.Token), "unknown", "-", "-", "-", "-", "-", "unknown",
			"its holder and the next one crashed before it was written",
		}
	}
	until, held, why := clockText(t.Until), "-", "-"
	switch {
	case t.End == "":
		until, held = "now", round(time.Since(t.Since)).String()
	case t.Until.IsZero() && over.IsZero():
		until = "unknown"
	case t.Until.IsZero():
		until = "<" + clockText(over)
	default:
		held = round(t.Until.Sub(t.Since)).String()
	}
	if q := t.Request; q != nil {
		why = fmt.Sprintf("%s (%s)", q.Reason, q.By)
	}
	return dashed([]string{
		formatToken(t.Token), t.Owner, t.Host, t.Label, clockText(t.Since), until, held, endText(t),
		why,
	})
}

// endText says how a tenure ended.
func endText(t tenure.Tenure) string {
	switch {
	case t.End != "":
		return t.Ended()
	case t.Request != nil:
		return "asked " + requestText(*t.Request)
	}
	return "holds it"
}

// tenureJSON is a tenure as an object of --json.
type tenureJSON struct {
	Lock    string       `json:"lock,omitempty"` // where there are several
	Token   uint64       `json:"token"`
	Owner   string       `json:"owner,omitempty"`
	Host    string       `json:"host,omitempty"`
	Label   string       `json:"label,omitempty"`
	Since   string       `json:"since,omitempty"`
	Until   string       `json:"until,omitempty"`
	End     string       `json:"end,omitempty"`
	Request *requestJSON `json:"request,omitempty"`
	Unknown bool         `json:"unknown,omitempty"`
}

// requestJSON is what somebody asked.
type requestJSON struct {
	Kind    string `json:"kind"`
	By      string `json:"by"`
	Reason  string `json:"reason"`
	To      string `json:"to,omitempty"`
	ToLabel string `json:"to_label,omitempty"`
	At      string `json:"at,omitempty"`
}

func requestObject(q *tenure.Request) *requestJSON {
	if q == nil {
		return nil
	}
	return &requestJSON{Kind: string(q.Kind), By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel, At: instant(q.At)}
}

func tenureObject(t tenure.Tenure) tenureJSON {
	return tenureJSON{
		Token: t.Token, Owner: t.Owner, Host: t.Host, Label: t.Label, Since: instant(t.Since), Until: instant(t.Until),
		End: t.End, Request: requestObject(t.Request), Unknown: t.Unknown,
	}
}
