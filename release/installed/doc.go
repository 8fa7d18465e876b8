// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package installed tests what a release is to its users: it makes one of a clone of this
// repository, with tags, and installs it in all the ways that the guides name, on stand-ins
// for machines. It has no code of its own.
//
// A stand-in has the file system of a small Debian, systemd as its first process, and a
// network of its own. Its kernel and its clock are those of the machine under it.
//
// The tests take minutes, and need root: "make release-check" runs them.
package installed
