// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/server/access"
)

// errorLog writes the errors of the store into the log, each once a minute, under an id that
// callers are told instead: the text of a driver has its address, its database and its user.
type errorLog struct {
	mu sync.Mutex
	at map[string]time.Time // when it was written last, by id
}

const (
	errorPeriod = time.Minute
	// maxErrors bounds how many are remembered. An error has few texts.
	maxErrors = 1000
)

// ErrorID writes an error of the store into the log, unless it was written within the last
// minute, and returns the id that it has there. All servers have the same id for the same text.
func (s *Server) ErrorID(err error) string {
	cause := err // without the name of the lock: it is the same for all of them
	var of *tenure.Error
	for errors.As(cause, &of) && of.Err != nil {
		cause = of.Err
	}
	sum := sha256.Sum256([]byte(cause.Error()))
	id := hex.EncodeToString(sum[:4])
	l := &s.errors
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if at, written := l.at[id]; !written || now.Sub(at) >= errorPeriod {
		if l.at == nil || len(l.at) >= maxErrors {
			l.at = map[string]time.Time{}
		}
		l.at[id] = now
		s.o.Logger.Warn("tenure: the store cannot be used", "id", id, "error", err)
	}
	return id
}

// told returns the problem that an error is, as the principal may know it: what a store says
// is for those who have all rights.
func (c *call) told(err error) *problem {
	p := problemOf(err)
	if p.cause == nil {
		return p
	}
	of := "error " + c.s.ErrorID(p.cause)
	if all := c.principal.Prefixes(access.Admin, ""); len(all) == 1 && all[0] == "" {
		of += ": " + p.cause.Error()
	}
	told := *p
	told.Detail = fmt.Sprintf("%s (%s; the log of this server has it)", p.Detail, of)
	return &told
}
