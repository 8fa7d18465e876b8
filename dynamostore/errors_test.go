// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestErrorsAreSorted answers writes like DynamoDB and the network before it,
// and checks the resulting errors. Codes and texts are from DynamoDB's
// documentation and from the SDK's tests.
func TestErrorsAreSorted(t *testing.T) {
	for _, tc := range []struct {
		status        int
		code, message string
		applied       meaning
		advice        string
	}{
		{400, "ProvisionedThroughputExceededException", "The level of configured provisioned throughput for the table was exceeded.", notApplied, "throttled"},
		{400, "ThrottlingException", "Rate of requests exceeds the allowed throughput.", notApplied, "throttled"},
		{400, "RequestLimitExceeded", "Throughput exceeds the current throughput limit for your account.", notApplied, "throttled"},
		{400, "TransactionConflictException", "Transaction is ongoing for the item", notApplied, "another write of the item is under way"},
		{400, "ReplicatedWriteConflictException", "One or more items in this request are being modified by a request in another Region.", notApplied, "another write"},
		{400, "ExpiredTokenException", "The security token included in the request is expired", notApplied, "credentials have expired; renew them"},
		{400, "InvalidSignatureException", "Signature expired: 20261121T000000Z is now earlier than 20261121T010000Z", notApplied, "clock of this machine is wrong"},
		{400, "InvalidSignatureException", "The request signature we calculated does not match the signature you provided.", hopeless, "secret access key"},
		{400, "ResourceNotFoundException", "Requested resource not found", hopeless, `check its name and the region, or create it with "tenure table create"`},
		{400, "ResourceInUseException", "Attempt to change a resource which is still in use", notApplied, "being created or changed"},
		{400, "AccessDeniedException", "User: arn:x is not authorized to perform: dynamodb:UpdateItem on resource: y", hopeless, `"tenure table policy" prints`},
		{400, "UnrecognizedClientException", "The security token included in the request is invalid.", notApplied, "the credentials are not valid here"},
		{400, "InvalidClientTokenId", "The security token included in the request is invalid.", notApplied, "the credentials are not valid here"},
		{400, "ItemCollectionSizeLimitExceededException", "Collection size exceeded.", notApplied, "too large for the table's local indexes"},
		{400, "MissingAuthenticationTokenException", "Request is missing Authentication Token", hopeless, "credentials are not valid"},
		{400, "ValidationException", "The provided key element does not match the schema", hopeless, "set PartitionKey, and SortKey with SortValue"},
		{400, "ValidationException", "Item size has exceeded the maximum allowed size", hopeless, "400 kB"},
		{400, "ValidationException", "Item size to update has exceeded the maximum allowed size", hopeless, "400 kB"},
		{400, "UnknownOperationException", "", hopeless, "does not know the operation"},
		{400, "KMSAccessDeniedException", "x", hopeless, "KMS"},
		{400, "TransactionInProgressException", "The transaction with the given request token is already in progress.", unknown, ""},
		{400, "SomethingNewException", "of a later year", unknown, ""},
		{500, "InternalServerError", "The request could not be processed because of an internal server error.", unknown, "DynamoDB reports an internal error"},
		{503, "ServiceUnavailable", "", unknown, "DynamoDB reports an internal error"},
		{503, "ProvisionedThroughputExceededException", "?", unknown, "DynamoDB reports an internal error"},
		{404, "ResourceNotFoundException", "of something else", unknown, "check that the endpoint is DynamoDB's"},
	} {
		t.Run(fmt.Sprint(tc.status, tc.code, tc.message), func(t *testing.T) {
			store := answering(t, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "application/x-amz-json-1.0")
				rw.WriteHeader(tc.status)
				fmt.Fprintf(rw, `{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":%q}`, tc.code, tc.message)
			})
			for what, err := range writes(t.Context(), store) {
				wantMeaning(t, what, err, tc.applied, tc.advice)
				if got := errors.Is(err, driver.ErrThrottled); got != (tc.advice == "throttled") {
					t.Errorf("%s: throttled is %t: %v", what, got, err)
				}
				if tc.message != "" && !strings.Contains(err.Error(), tc.message) {
					t.Errorf("%s: %v: it hides what DynamoDB says, %q", what, err, tc.message)
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: more than one line: %v", what, err)
				}
			}
		})
	}
}

// TestThrottlingReasons: whether a key range or the account is at its limit is
// what there is to be known.
func TestThrottlingReasons(t *testing.T) {
	store := answering(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(rw, `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"slow down",`+
			`"throttlingReasons":[{"reason":"TableWriteKeyRangeThroughputExceeded","resource":"arn:t"},{"reason":"TableWriteAccountLimitExceeded"}]}`)
	})
	for what, err := range writes(t.Context(), store) {
		wantMeaning(t, what, err, notApplied, "slow down (TableWriteKeyRangeThroughputExceeded of arn:t) (TableWriteAccountLimitExceeded)")
		if !errors.Is(err, driver.ErrThrottled) {
			t.Errorf("%s: %v is not throttled", what, err)
		}
	}
	cancelled := answering(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(rw, `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"cancelled",`+
			`"CancellationReasons":[{"Code":"None"},{"Code":"ThrottlingError","Message":"x"}]}`)
	})
	rec := held("k")
	rec.Token = 1
	if err := cancelled.fault(t.Context(), cancelled.writeBoth(t.Context(), rec, &expression{values: item{":x": text("x")}, set: []string{"#on = :x"}})); !errors.Is(err, driver.ErrThrottled) || !errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("a transaction: %v", err)
	}
}

// writes makes each kind of write, and returns the errors.
func writes(ctx context.Context, store *Store) map[string]error {
	rec := held("k")
	rec.Token = 1
	next := held("k")
	next.Token = 1
	_, _, claim := store.Claim(ctx, held("k"))
	_, swap := store.Swap(ctx, rec, next)
	return map[string]error{"claim": claim, "swap": swap, "delete": store.Delete(ctx, rec)}
}

func wantMeaning(t *testing.T, what string, err error, want meaning, advice string) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: no error", what)
	}
	if got := errors.Is(err, driver.ErrNotApplied); got != (want != unknown) {
		t.Errorf("%s: not applied is %v, want %v: %v", what, got, want != unknown, err)
	}
	if got := errors.Is(err, driver.ErrPermanent); got != (want == hopeless) {
		t.Errorf("%s: permanent is %v, want %v: %v", what, got, want == hopeless, err)
	}
	if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) {
		t.Errorf("%s: a conflict: %v", what, err)
	}
	if !strings.Contains(err.Error(), advice) || !strings.Contains(err.Error(), `dynamodb table "locks" in `+region) {
		t.Errorf("%s: %q; want the table and %q in it", what, err, advice)
	}
}

func answering(t *testing.T, answer http.HandlerFunc) *Store {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return open(t, server.URL, "locks", nil)
}

// TestErrorsOfTheWay has requests without an answer, in every possible way.
func TestErrorsOfTheWay(t *testing.T) {
	drop := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	t.Run("Dropped", func(t *testing.T) {
		for what, err := range writes(t.Context(), answering(t, drop)) {
			wantMeaning(t, what, err, unknown, "EOF")
		}
	})
	t.Run("Reset", func(t *testing.T) {
		store := answering(t, func(rw http.ResponseWriter, _ *http.Request) {
			conn, _, err := rw.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		})
		for what, err := range writes(t.Context(), store) {
			wantMeaning(t, what, err, unknown, "") // by the client's side it may be closed before it is reset
		}
	})
	t.Run("HalfAnAnswer", func(t *testing.T) {
		store := answering(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(rw, `{"Attri`)
		})
		_, _, err := store.Claim(t.Context(), held("k"))
		wantMeaning(t, "claim", err, unknown, "")
	})
	t.Run("NoDynamoDB", func(t *testing.T) {
		store := answering(t, func(rw http.ResponseWriter, _ *http.Request) {
			http.Error(rw, "<html>proxy</html>", http.StatusBadGateway)
		})
		for what, err := range writes(t.Context(), store) {
			wantMeaning(t, what, err, unknown, "")
		}
	})
	t.Run("Refused", func(t *testing.T) {
		store := open(t, "http://127.0.0.1:"+closedPort(t), "locks", nil)
		for what, err := range writes(t.Context(), store) {
			wantMeaning(t, what, err, notApplied, "the endpoint cannot be reached")
		}
	})
	t.Run("NoSuchHost", func(t *testing.T) {
		client := dynamodb.New(dynamodb.Options{
			BaseEndpoint: aws.String("http://dynamodb.invalid"), Region: region, Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
			HTTPClient: &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "dynamodb.invalid", IsNotFound: true}}
			}}},
		})
		store, err := New(client, "locks", nil)
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range writes(t.Context(), store) {
			wantMeaning(t, what, err, notApplied, "check the region, the endpoint and the network")
		}
	})
	t.Run("Late", func(t *testing.T) {
		gone := make(chan struct{})
		store := answering(t, func(http.ResponseWriter, *http.Request) { <-gone })
		t.Cleanup(func() { close(gone) }) // before the server waits for its handlers
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer stop()
		_, _, err := store.Claim(ctx, held("k"))
		wantMeaning(t, "claim", err, unknown, "no answer in time")
		if strings.Contains(err.Error(), "RequestID") || strings.Contains(err.Error(), "StatusCode") {
			t.Errorf("claim: %v shows what the SDK says of no answer", err)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("claim: %v does not match the context's error", err)
		}
	})
	t.Run("NoCredentials", func(t *testing.T) {
		for _, why := range []error{
			errors.New("no provider has any"),
			// A service that hands credentials out has codes of its own.
			&smithy.GenericAPIError{Code: "AccessDeniedException", Message: "not authorized to perform: sts:AssumeRole"},
			&smithy.GenericAPIError{Code: "ResourceNotFoundException", Message: "No such profile"},
		} {
			noCredentials(t, why)
		}
	})
}

func noCredentials(t *testing.T, why error) {
	t.Helper()
	sent := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sent = true }))
	t.Cleanup(server.Close)
	client := dynamodb.New(dynamodb.Options{
		BaseEndpoint: &server.URL, Region: region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, why
		}),
	})
	store, err := New(client, "locks", nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range writes(t.Context(), store) {
		wantMeaning(t, what, err, notApplied, "there are no credentials for AWS; set AWS_PROFILE")
	}
	if sent {
		t.Error("something was sent")
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	return port
}

// TestSDKRetriesNoWrite drops each reply, and counts. A client with the SDK's
// defaults tries three times.
func TestSDKRetriesNothing(t *testing.T) {
	requests := 0
	store := answering(t, func(rw http.ResponseWriter, _ *http.Request) {
		requests++
		rw.WriteHeader(http.StatusInternalServerError)
	})
	_, getErr := store.Get(t.Context(), "k", driver.Strong)
	errs := writes(t.Context(), store)
	if getErr == nil || requests != 1+len(errs) {
		t.Errorf("%d requests for %d calls (get: %v)", requests, 1+len(errs), getErr)
	}
}

// TestErrorsOfEngines meets the errors that an emulator can give.
func TestErrorsOfEngines(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		for what, err := range writes(t.Context(), open(t, e.URL, "tenure-test-no-such-table", nil)) {
			if !errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "there is no such table") {
				t.Errorf("%s in a table that is not there: %v", what, err)
			}
		}
		table := newTable(t, e, &TableOptions{SortKey: "part"})
		for what, err := range writes(t.Context(), open(t, e.URL, table, nil)) {
			if !errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "set PartitionKey, and SortKey with SortValue") {
				t.Errorf("%s without the table's sort key: %v", what, err)
			}
		}
		store := open(t, e.URL, newTable(t, e, nil), nil)
		big := held("k")
		big.Data = make([]byte, 420_000)
		_, _, err := store.Claim(t.Context(), big)
		if !errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "400 kB") {
			t.Errorf("an item of 420 kB: %v", err)
		}
		if _, err := store.Get(t.Context(), "k", driver.Strong); !errors.Is(err, driver.ErrNotFound) {
			t.Errorf("after it: %v", err)
		}
	})
}
