// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks

import "os"

// Notify has f called in place of signal.Notify, whose channel a bubble of
// testing/synctest cannot share.
func (g *Group) Notify(f func(chan<- os.Signal, ...os.Signal)) { g.notify = f }
