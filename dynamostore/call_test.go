// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/driver"
)

// early answers before it has read the request, as a fast server of net/http
// may do.
type early struct{ request *http.Request }

func (h *early) Do(r *http.Request) (*http.Response, error) {
	h.request = r
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// TestBodyStaysOpen checks that the SDK does not close the body of a request
// that net/http may still be reading: it would close the connection from which
// the answer is read.
func TestBodyStaysOpen(t *testing.T) {
	h := &early{}
	url := "http://127.0.0.1:1"
	store, err := New(dynamodb.New(dynamodb.Options{
		BaseEndpoint: &url, Region: "local", Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""), HTTPClient: h,
	}), "locks", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(t.Context(), "k", driver.Strong); !errors.Is(err, driver.ErrNotFound) {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(h.request.Body); err != nil || !strings.Contains(string(body), `"locks"`) {
		t.Errorf("after the answer the request's body is %q, %v", body, err)
	}
}
