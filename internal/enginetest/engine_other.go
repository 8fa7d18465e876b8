// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package enginetest

// Stop skips the test: no process can be made to hang here.
func (e *Engine) Stop() { e.t.Skip("no process can be stopped on this system") }

// Continue ends a Stop.
func (e *Engine) Continue() {}
