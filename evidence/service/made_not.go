// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && !tenure_wrong

package main

import "fmt"

// makeMistake returns an error: the machines make none in a program that was built for use.
func makeMistake(name string) error {
	return fmt.Errorf("%s=%s: this program makes no such mistake; the build tag tenure_wrong has it make some", wrongEnv, name)
}
