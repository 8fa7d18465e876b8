// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"fmt"
	"strings"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/sqlitestore"
)

// OpenStore opens the store without asking it anything: it may be out of reach
// just now.
func OpenStore(url string) (driver.Store, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		return sqlitestore.Open(rest, nil)
	case "dynamodb":
		return dynamostore.New(dynamo.Connect(rest), Table, nil)
	default:
		return nil, fmt.Errorf("store %q: want sqlite:PATH or dynamodb:URL", url)
	}
}
