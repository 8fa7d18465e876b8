// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/wait"
)

// callBound bounds a call of an operator, who may wait for a holder's answer.
const callBound = 30 * time.Second

// Answer is what the service said.
type Answer struct {
	Status int
	Body   []byte
}

// Post calls a replica as the principal of a token.
func (r *Replicas) Post(ctx context.Context, i int, token, path string, body any) (Answer, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return Answer{}, err
	}
	return send(ctx, callBound, http.MethodPost, r.URLs()[i]+path, token, text)
}

// Get looks something up at a replica, as its operator, into found. A replica whose store
// is slow for a moment says so, and is asked again.
func (r *Replicas) Get(ctx context.Context, i int, path string, query url.Values, found any) error {
	var a Answer
	var err error
	wait.Within(ctx, callBound, func() bool {
		a, err = send(ctx, callBound, http.MethodGet, r.URLs()[i]+path+"?"+query.Encode(), r.Operator, nil)
		return err != nil || a.Status != http.StatusServiceUnavailable
	})
	switch {
	case err != nil:
		return err
	case a.Status != http.StatusOK:
		return fmt.Errorf("%s: %d %.300s", path, a.Status, a.Body)
	}
	return json.Unmarshal(a.Body, found)
}

func send(ctx context.Context, bound time.Duration, method, url, token string, body []byte) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Close = true // a connection that is kept may be one of a process that was killed
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	text, err := io.ReadAll(response.Body)
	return Answer{response.StatusCode, text}, err
}

// Tenure is a tenure in the history of a lock, as far as it is needed here.
type Tenure struct {
	Token uint64 `json:"token"`
	Owner string `json:"holder"`
}

// History returns the tenures of a lock that the service knows of, the newest first.
func (r *Replicas) History(ctx context.Context, i int, name string) ([]Tenure, error) {
	var found struct {
		Tenures []Tenure `json:"tenures"`
		Next    uint64   `json:"next"`
	}
	var all []Tenure
	for query := (url.Values{"name": {name}, "limit": {"100"}}); ; {
		found.Tenures, found.Next = nil, 0
		if err := r.Get(ctx, i, "/v1/history", query, &found); err != nil {
			return nil, err
		}
		all = append(all, found.Tenures...)
		if found.Next == 0 {
			return all, nil
		}
		query.Set("below", fmt.Sprint(found.Next))
	}
}
