// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && tenure_wrong

package main

import (
	"fmt"

	"github.com/tenurelock/tenure/internal/protocol"
)

// made are the mistakes of package protocol, by the names that they have here.
var made = map[string]protocol.Mistake{
	waitOutlives: protocol.OfferStays, heartbeatRevive: protocol.RelayRevives, heartbeatDrops: protocol.RelayDropsRequest,
	anyToken: protocol.RelayAnyToken, anyBeat: protocol.RelayAnyBeat,
}

// makeMistake has the machines of this process make a mistake for as long as it runs.
func makeMistake(name string) error {
	m, found := made[name]
	if !found {
		return fmt.Errorf("%s=%s: there is no such mistake", wrongEnv, name)
	}
	protocol.Make(m)
	return nil
}
