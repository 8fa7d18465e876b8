// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestOpenS3: opening reads once. It reports what is wrong, and the URL has what was found.
func TestOpenS3(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-west-9")
	t.Setenv("AWS_CONFIG_FILE", "/nowhere")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
	b := enginetest.NewBucket(t)
	at, err := Parse("s3://" + b.Name + "/p?path_style=1&endpoint=" + b.URL)
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
	b.Break(enginetest.DeniesAll)
	if _, err := at.Open(); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "access is denied") {
		t.Errorf("%v", err)
	}
}
