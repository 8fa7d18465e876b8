// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"sync"
)

// answersFile is where these tests write each call and its answer, a line of JSON for each,
// if it is set. internal/itest/server compares all of them with openapi.json: the root
// module's tests have no library that could.
var answersFile = os.Getenv("TENURE_TEST_ANSWERS")

// exchange is a call and its answer.
type exchange struct {
	Method, URL string
	Body        []byte // of the call, if it is not long
	Status      int
	Type        string
	Answer      []byte
}

var answers sync.Mutex // guards the file

// maxNoted is how much of a call and of an answer is written.
const maxNoted = 256 << 10

// takeBody returns the body of a request, and puts it back.
func takeBody(r *http.Request) []byte {
	if answersFile == "" || r.Body == nil || r.ContentLength < 0 || r.ContentLength > maxNoted {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body
}

func note(r *http.Request, body []byte, status int, header http.Header, answer []byte) {
	if answersFile == "" || len(answer) > maxNoted {
		return
	}
	line, err := json.Marshal(exchange{r.Method, r.URL.RequestURI(), body, status, header.Get("Content-Type"), answer})
	if err != nil {
		panic(err)
	}
	answers.Lock()
	defer answers.Unlock()
	f, err := os.OpenFile(answersFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		panic(err)
	}
	if err := f.Close(); err != nil {
		panic(err)
	}
}
