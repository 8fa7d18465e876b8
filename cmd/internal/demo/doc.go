// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package demo is `tenure demo`: three real processes campaign for one lock on
// a fresh SQLite file; the leader is killed; another one takes over.
//
// Each replica is this program again, started with a hidden subcommand
// ([ReplicaCmd]). It tells what happens to it as JSON lines on its standard
// output. The demo writes the play (play.go), shows it (show.go and the three
// outputs), and at the end holds the replicas' own reports against what Tenure
// promises (check.go): the demo fails if they do not fit.
package demo
