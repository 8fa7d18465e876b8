// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
)

// The values of RefusedHeader.
const (
	kindStale   = "stale"
	kindNoToken = "no-token"
	kindLock    = "wrong-lock"
	kindRequest = "request"
	kindGuard   = "guard"
)

// problem is a refusal in the format of RFC 9457. It has no type of its own:
// the member "refused" names the kind.
type problem struct {
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Kind     string `json:"refused"`
	Resource string `json:"resource,omitempty"`
	Token    uint64 `json:"token,omitempty"`
	Highest  uint64 `json:"highest,omitempty"`
}

const problemType = "application/problem+json"

func staleToken(e *StaleError) *problem {
	return &problem{
		Kind: kindStale, Status: http.StatusPreconditionFailed, Title: "Stale token",
		Detail:   fmt.Sprintf("token %d is stale, token %d has passed: another holder has begun, stop", e.Token, e.Highest),
		Resource: e.Resource, Token: e.Token, Highest: e.Highest,
	}
}

func unreadable(err error) *problem {
	p := &problem{Kind: kindNoToken, Status: http.StatusBadRequest, Title: "Token cannot be read", Detail: err.Error()}
	if missing := (*missingError)(nil); errors.As(err, &missing) {
		p.Status, p.Title = http.StatusPreconditionRequired, "Token required"
	}
	return p
}

func wrongLock(grant Grant, want string) *problem {
	return &problem{
		Kind: kindLock, Status: http.StatusForbidden, Title: "Wrong lock", Token: grant.Token(),
		Detail: fmt.Sprintf("this is written under the lock %q, but the request was made under %q", shown(want), shown(grant.Name())),
	}
}

func failed(began bool) *problem {
	if began {
		return &problem{
			Kind: kindGuard, Status: http.StatusInternalServerError, Title: "Outcome unknown",
			Detail: "the write was admitted, but could not be completed: whether it was applied is not known; check, or send it again under the same token",
		}
	}
	return &problem{
		Kind: kindGuard, Status: http.StatusServiceUnavailable, Title: "Guard not available",
		Detail: "the write was not admitted and nothing was written: send it again under the same token",
	}
}

func (p *problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte("{}") // unreachable: strings and numbers
	}
	h := w.Header()
	h.Set("Content-Type", problemType)
	h.Set("Cache-Control", "no-store") // the next one may have another token
	h.Set(RefusedHeader, p.Kind)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

// maxProblem bounds how much of a refusal is read.
const maxProblem = 64 << 10

// Refusal returns the error by which a [Handler] refused the request that r
// answers: a [*StaleError], an error that matches [ErrNoToken] or
// [ErrWrongLock], or another error that says why. It returns nil for every
// other answer, also one of the handler behind with the same status. The body
// of r can be read afterwards as before.
func Refusal(r *http.Response) error {
	kind := r.Header.Get(RefusedHeader)
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "" || err != nil || media != problemType || r.Body == nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxProblem))
	r.Body = &again{Reader: io.MultiReader(bytes.NewReader(text), r.Body), Closer: r.Body}
	if err != nil {
		return fmt.Errorf("fence: refused (%s), but the answer was cut off: %w", kind, err)
	}
	var p problem
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("fence: refused (%s), but the answer cannot be read: %w", kind, err)
	}
	switch kind {
	case kindStale:
		return &StaleError{Resource: p.Resource, Token: p.Token, Highest: p.Highest}
	case kindNoToken:
		return &refusedError{ErrNoToken, p.Detail}
	case kindLock:
		return &refusedError{ErrWrongLock, p.Detail}
	}
	return fmt.Errorf("fence: refused with status %d: %s", r.StatusCode, p.Detail)
}

// again is a body whose beginning has been read.
type again struct {
	io.Reader
	io.Closer
}

// refusedError has the words of the server, and our sentinel.
type refusedError struct {
	sentinel error
	detail   string
}

func (e *refusedError) Error() string { return "fence: refused: " + e.detail }
func (e *refusedError) Unwrap() error { return e.sentinel }
