// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestParseS3(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"s3://my-bucket", "s3://my-bucket"},
		{"s3://my-bucket/", "s3://my-bucket"},
		{"s3://my-bucket/team/locks/?region=eu-central-1", "s3://my-bucket/team/locks?region=eu-central-1"},
		{"s3://b.x-1/p?path_style=1&endpoint=https://ACC.r2.example.com/&region=auto", "s3://b.x-1/p?region=auto&endpoint=https://acc.r2.example.com&path_style=1"},
		{"s3://my-bucket?path_style=0&trust=true&profile=ops", "s3://my-bucket?profile=ops&trust=1"},
	} {
		wantParsed(t, tc.url, tc.want, "")
	}
	for url, want := range map[string]string{
		"s3:":                              "the bucket is missing",
		"s3:my-bucket":                     "the bucket is missing",
		"s3:///locks":                      "the bucket is missing",
		"s3://key:secret@my-bucket":        "credentials come from",
		"s3://localhost/locks":             "a host or a port stands where the bucket's name belongs",
		"s3://h:9000/locks":                "a host or a port stands where the bucket's name belongs",
		"s3://My_Bucket":                   "3 to 63 lower-case letters",
		"s3://ab":                          "3 to 63 lower-case letters",
		"s3://my-bucket/a//b":              "it has an empty part at position 3",
		"s3://my-bucket/a b":               "must end with a slash, and have at most 100",
		"s3://my-bucket#x":                 "write %23",
		"s3://my-bucket?region=a/b":        "is no name of a region",
		"s3://my-bucket?path_style=yes":    "path_style= is neither 1 nor 0",
		"s3://my-bucket?endpoint=h:9000":   "endpoint= is no address of a server",
		"s3://my-bucket?pathstyle=1":       `parameter "pathstyle" is unknown: the parameters are region, endpoint, path_style, profile, trust`,
		"s3://my-bucket?region=":           "region= has no value",
		"s3://my-bucket?region=a&region=b": "region= is there 2 times",
	} {
		wantRefused(t, url, want)
	}
}

// TestOpenS3: to open reads once. What is wrong is told; and the URL has what was found.
func TestOpenS3(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-west-9")
	t.Setenv("AWS_CONFIG_FILE", "/nowhere")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
	b := enginetest.NewBucket(t)
	at, err := storeurl.Parse("s3://" + b.Name + "/p?path_style=1&endpoint=" + b.URL)
	if err != nil {
		t.Fatal(err)
	}
	store, err := at.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if counts := b.Counts(); counts[http.MethodGet] != 1 || len(counts) != 1 {
		t.Errorf("requests: %v", counts)
	}
	if want := "s3://" + b.Name + "/p?region=eu-west-9&endpoint=" + b.URL + "&path_style=1"; at.URL() != want {
		t.Errorf("the URL is %q, want %q", at.URL(), want)
	}
	b.Deny(true)
	if _, err := at.Open(); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "access is denied") {
		t.Errorf("%v", err)
	}
}
