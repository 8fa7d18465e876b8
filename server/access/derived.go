// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package access

import "github.com/tenurelock/tenure/internal/text"

// Base returns the name that a lock's name is derived from, and the name itself if it is
// not derived: "nightly" for "nightly:once", "orders" for "orders:part/7". Packages once,
// semaphore, rwlock and shard make several locks of one name. Where one could read a name in
// two ways, it returns the shorter base.
func Base(name string) string { return text.Base(name) }
