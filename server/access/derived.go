// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"strings"

	"github.com/tenurelock/tenure/internal/text"
)

// Base returns the name that a lock's name is derived from, and the name itself if it is
// not derived: "nightly" for "nightly:once", "orders" for "orders:part/7". Packages once,
// semaphore, rwlock and shard make several locks of one name. Where one could read a name in
// two ways, it returns the shorter base.
func Base(name string) string { return text.Base(name) }

// IsTrial says whether a name is that of a lock by which tenure doctor tries out a service. The
// service deletes its record at the release: nobody else takes it, and no fence sees its token.
func IsTrial(name string) bool { return strings.HasSuffix(name, text.TrialSuffix) }
