// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"fmt"
	"os"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
)

// Locate returns where the locks are: in the store of the flag --store, or TENURE_STORE, or
// otherwise in this user's file; then named is false, and the caller reports it. If attended
// is false there is no terminal, and no one reads that report: cron, a unit, a pipeline or a
// container would use a separate file without noticing, so the store must be named there.
func Locate(store *string, attended bool) (l storeurl.Location, named bool, err error) {
	url := os.Getenv("TENURE_STORE")
	named = true
	switch {
	case store != nil:
		url = *store
	case url == "" && !attended:
		return l, true, Usage("no store is named, and without a terminal there is no default: " +
			"write --store URL, or TENURE_STORE=URL: " +
			"dynamodb://TABLE?region=REGION for several machines, sqlite:PATH for one, default: for this user's file")
	case url == "":
		url, named = "default:", false
	}
	if l, err = storeurl.Parse(url); err != nil {
		return l, named, Usage("%w", err)
	}
	if l.Preset() {
		if err := storeurl.MakeFolder(l); err != nil {
			return l, named, Failed(StatusStore, fmt.Errorf("default store %s: %w; name one with --store or TENURE_STORE",
				l.Shown(), err))
		}
	}
	return l, named, nil
}
