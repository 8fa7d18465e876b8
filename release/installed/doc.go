// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package installed tests a release as its users see it: it installs the release in all
// the ways that the guides name, on stand-ins for machines, and runs the guides' recipes.
// It has no code of its own.
//
// A stand-in has the file system of a small Debian, and systemd as its first process. Its kernel
// and its clock are those of the machine under it. All of them share a network, which has nothing
// but a loopback interface.
//
// The tests take minutes, and need root: "make release-check" makes the release and runs them.
package installed
